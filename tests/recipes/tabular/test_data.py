"""Files to tensors: what each column becomes, in any format, and what is refused in one sentence."""

import gzip
import threading
from pathlib import Path

import polars as pl
import pytest
import torch

from stoker.errors import ConfigError, NotFoundError, UsageError
from stoker.recipes import synthetic
from stoker.recipes.tabular import Categorical, Date, GeoPoint, Metadata, Numeric, Table, files, load
from stoker.recipes.tabular.cache import kept
from stoker.recipes.tabular.data import check_classes
from stoker.recipes.tabular.hashing import bucket_of
from tests.recipes.tabular.conftest import CENSUS, TAXI

SMALL = Metadata(
    task="multiclass",
    header=("size", "colour", "month", "key", "kind", "extra"),
    target="kind",
    labels=("a", "b", "c"),
    numeric=(Numeric("size"),),
    categorical=(Categorical("colour"), Categorical("month", identity=12), Categorical("key", hash_buckets=8)),
)
HEADER = "size,colour,month,key,kind,extra\n"
ROWS = "1.5,red,0,k1,a,x\n,blue,11,k2,b,x\n3,,12,,c,x\n-2,red,,k1,a,x\n"
NAN = float("nan")


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def same(one: Table, other: Table) -> bool:
    pairs = zip(one.tensors, other.tensors, strict=True)
    return all(torch.equal(a.nan_to_num(-9e9), b.nan_to_num(-9e9)) for a, b in pairs)


def test_every_kind_of_column_becomes_what_it_should(tmp_path: Path) -> None:
    table = load([written(tmp_path / "t.csv", HEADER + ROWS)], SMALL)

    hashed = [2 + int(code) for code in bucket_of(pl.Series(["k1", "k2"]), 8)]
    torch.testing.assert_close(table.numbers, torch.tensor([[1.5], [NAN], [3.0], [-2.0]]), equal_nan=True)
    # colour: blue 2, red 3 (sorted), 0 missing; month: 12 is none, so 1, unseen; key: a bucket
    assert table.codes.tolist() == [[3, 2, hashed[0]], [2, 13, hashed[1]], [0, 1, 0], [3, 0, hashed[0]]]
    assert table.target.tolist() == [0, 1, 2, 0]
    assert table.vocabularies == {"colour": ("blue", "red")}


def test_values_that_training_did_not_see_are_unseen_in_evaluation(tmp_path: Path) -> None:
    table = load([written(tmp_path / "t.csv", HEADER + ROWS)], SMALL)
    later = written(tmp_path / "later.csv", HEADER + "1,green,1,k,a,x\n1,red,1,k,a,x\n1,?,1,k,a,x\n")

    held_out = load([later], SMALL, vocabularies=table.vocabularies)

    assert held_out.codes[:, 0].tolist() == [1, 3, 0]


def test_hashes_are_fnv_1a() -> None:
    def fnv(text: str) -> int:
        value = 0xCBF29CE484222325
        for byte in text.encode():
            value = (value ^ byte) * 0x100000001B3 % 2**64
        return value

    texts = ["", "a", "größer", "x" * 100, "b"]

    assert bucket_of(pl.Series(texts), 10_007).tolist() == [fnv(text) % 10_007 for text in texts]


def test_dates_and_places_become_parts_and_distances(tmp_path: Path) -> None:
    rides = synthetic.make("taxi", rows=200)
    pl.DataFrame(rides).write_csv(tmp_path / "rides.csv")

    table = load([str(tmp_path / "rides.csv")], TAXI)

    corners = [f"{end}_{axis}" for end in ("pickup", "dropoff") for axis in ("latitude", "longitude")]
    distance = torch.from_numpy(synthetic.haversine_km(*(rides[name].to_numpy() for name in corners))).float()
    times = pl.DataFrame(rides)["pickup_datetime"].str.to_datetime("%Y-%m-%d %H:%M:%S")
    torch.testing.assert_close(table.numbers[:, 5], distance)
    assert (table.codes[:, 1] - 2).tolist() == (times.dt.month() - 1).to_list()
    assert (table.codes[:, 2] - 2).tolist() == (times.dt.weekday() - 1).to_list()
    assert (table.codes[:, 3] - 2).tolist() == times.dt.hour().to_list()


def test_all_ways_to_write_a_table_give_the_same_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.DataFrame(synthetic.make("census", rows=3000))
    monkeypatch.setattr(files, "BLOCK_BYTES", 20_000)  # many blocks
    frame.write_csv(tmp_path / "whole.csv")
    whole = load([str(tmp_path / "whole.csv")], CENSUS)
    (tmp_path / "whole.csv.gz").write_bytes(gzip.compress((tmp_path / "whole.csv").read_bytes()))
    for number in range(3):
        frame[1000 * number : 1000 * (number + 1)].write_csv(tmp_path / f"part-{number}.csv")
    frame.write_parquet(tmp_path / "whole.parquet", row_group_size=700)
    frame.write_csv(tmp_path / "no_header.csv", include_header=False)
    frame.write_csv(tmp_path / "tabs.csv", separator="\t")
    frame.select(reversed(frame.columns)).write_csv(tmp_path / "turned.csv", quote_style="always")
    spaced = "\n".join(line.replace(",", " , ") for line in (tmp_path / "whole.csv").read_text().splitlines())
    (tmp_path / "spaced.csv").write_text(spaced + "\n\n")
    names = ["whole.csv.gz", "part-*.csv", "whole.parquet", "no_header.csv", "tabs.csv", "turned.csv", "spaced.csv"]

    for name in names:
        other = load([str(tmp_path / name)], CENSUS, vocabularies=whole.vocabularies)
        assert same(whole, other), name


def test_a_bucket_is_read_as_a_folder_is(tmp_path: Path, home: Path) -> None:
    bucket = home / "buckets" / "gs" / "people"
    bucket.mkdir(parents=True)
    (home / "config.toml").write_text(f'[storage.buckets]\n"gs://people" = "{bucket}"\n')
    pl.DataFrame(synthetic.make("census", rows=100)).write_csv(bucket / "a.csv")

    assert len(load(["gs://people/*.csv"], CENSUS)) == 100


def test_a_newline_inside_quotes_ends_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 40)
    text = HEADER + '1,"dark\nred",1,"k,1",a,x\n' * 5

    table = load([written(tmp_path / "t.csv", text)], SMALL)

    assert len(table) == 5
    assert table.vocabularies["colour"] == ("dark\nred",)


def test_of_many_values_the_most_frequent_are_kept(tmp_path: Path) -> None:
    rows = "".join(f"1,{colour},1,k,a,x\n" for colour in ["rare", "red", "red", "blue", "blue", "blue"])
    few = Metadata.from_json({**SMALL.to_json(), "categorical": [{"name": "colour", "max_size": 2}]}, source="test")

    table = load([written(tmp_path / "t.csv", HEADER + rows)], few)

    assert table.vocabularies["colour"] == ("blue", "red")
    assert table.codes[:, 0].tolist() == [1, 3, 3, 2, 2, 2]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("\n\n", "t.csv is empty: it has no rows."),
        (HEADER, "t.csv is empty: it has no rows."),
        ("size,colour,month,key,kind\n1,red,1,k,a\n", "its header does not match the metadata's: it lacks 'extra'."),
        (HEADER.replace("kind", "sort") + ROWS, "it lacks 'kind' and has 'sort' besides."),
        (HEADER.replace("extra", "extra,more") + "1,red,1,k,a,x,y\n", "it has 'more' besides."),
        (HEADER + ROWS + "big,red,1,k,a,x\n", "t.csv, row 5, column 'size': 'big' is not a number."),
        (HEADER + ROWS + "inf,red,1,k,a,x\n", "t.csv, row 5, column 'size': the number is not finite."),
        (HEADER + ROWS + "1,red,May,k,a,x\n", "t.csv, row 5, column 'month': 'May' is not a number."),
        (HEADER + ROWS + "1,red,1,k,d,x\n", "t.csv, row 5, column 'kind': the label 'd' is not one of 'a', 'b', 'c'."),
        (HEADER + ROWS + "1,red,1,k,,x\n", "t.csv, row 5, column 'kind': the label is missing."),
        (HEADER + ROWS + "1,red,1\n", "t.csv, row 5: 3 values, expected 6."),
        (HEADER + ROWS + "1,red,1,k,a,x,y,z\n", "t.csv, row 5: 8 values, expected 6."),
    ],
)
def test_bad_files_are_refused_in_one_sentence(text: str, complaint: str, tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", text)

    with pytest.raises(UsageError) as caught:
        load([path], SMALL)

    assert complaint in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_bad_number_is_found_in_a_later_block_and_in_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 100)
    text = HEADER + ROWS * 50 + "big,red,1,k,a,x\n" + ROWS
    with pytest.raises(UsageError, match="row 201, column 'size': 'big' is not a number"):
        load([written(tmp_path / "t.csv", text)], SMALL)
    pl.DataFrame({"size": ["1", "big"], "colour": "r", "month": 1, "key": "k", "kind": "a", "extra": 0}).write_parquet(
        tmp_path / "t.parquet"
    )
    with pytest.raises(UsageError, match=r"t.parquet, row 2, column 'size': 'big' is not a number"):
        load([str(tmp_path / "t.parquet")], SMALL)


def test_a_class_that_never_occurs_and_a_file_that_is_not_there_are_refused(tmp_path: Path) -> None:
    table = load([written(tmp_path / "t.csv", HEADER + "1,red,1,k,a,x\n1,red,1,k,b,x\n")], SMALL)

    with pytest.raises(UsageError, match="The label 'c' never occurs in the training data"):
        check_classes(table, SMALL)
    with pytest.raises(NotFoundError):
        load([str(tmp_path / "nowhere.csv")], SMALL)


def test_missing_values_are_refused_when_the_metadata_says_so(tmp_path: Path) -> None:
    strict = Metadata.from_json({**SMALL.to_json(), "missing": "error"}, source="test")

    with pytest.raises(UsageError, match="row 2, column 'size': the value is missing"):
        load([written(tmp_path / "t.csv", HEADER + ROWS)], strict)


def test_a_bad_time_is_named(tmp_path: Path) -> None:
    rides = pl.DataFrame(synthetic.make("taxi", rows=5)).with_columns(pickup_datetime=pl.lit("yesterday"))
    rides.write_csv(tmp_path / "rides.csv")

    with pytest.raises(UsageError, match="row 1, column 'pickup_datetime': 'yesterday' is not a time"):
        load([str(tmp_path / "rides.csv")], TAXI)


def test_what_was_parsed_once_is_not_parsed_again_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cache = written(tmp_path / "t.csv", HEADER + ROWS), tmp_path / "cache"
    first = load([path], SMALL, cache=cache)
    made = {entry.name: entry.stat().st_mtime_ns for entry in cache.iterdir()}

    with monkeypatch.context() as patch:
        patch.setattr(pl, "read_csv", lambda *_, **__: pytest.fail("parsed again"))
        again = load([path], SMALL, cache=cache)

    assert same(first, again)
    assert {entry.name: entry.stat().st_mtime_ns for entry in cache.iterdir()} == made
    written(tmp_path / "t.csv", HEADER + ROWS * 2)
    assert len(load([path], SMALL, cache=cache)) == 8
    assert len(load([path], SMALL, use_cache=False)) == 8


def test_those_who_start_together_parse_once_and_all_find_it_whole(tmp_path: Path) -> None:
    calls, found = [], []
    begin = threading.Barrier(4)

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "table.json").write_text("{}")

    def ask() -> None:
        begin.wait()
        found.append((kept(tmp_path, "key", make) / "table.json").read_text())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(calls) == 1
    assert found == ["{}"] * 4


def test_a_parse_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", HEADER + "big,red,1,k,a,x\n")

    with pytest.raises(UsageError):
        load([path], SMALL, cache=tmp_path / "cache")

    assert [entry.name for entry in (tmp_path / "cache").iterdir() if not entry.name.endswith(".lock")] == []


def test_metadata_that_cannot_be_right_names_every_problem() -> None:
    with pytest.raises(ConfigError) as caught:
        Metadata(
            task="binary",
            header=("a", "a", "b"),
            target="t",
            labels=("x",),
            numeric=(Numeric("c", std=0.0),),
            categorical=(Categorical("b", vocabulary=("u", "u"), identity=3),),
            points=(GeoPoint("p", "lat", "lon"),),
            distances=(("p", "q"),),
            crosses=(("b",), ("b", "z")),
        )

    assert len(caught.value.problems) == 12


def test_metadata_survives_json_and_source() -> None:
    from stoker.recipes.tabular.metadata import to_source

    names = {"Categorical": Categorical, "Date": Date, "GeoPoint": GeoPoint, "Metadata": Metadata, "Numeric": Numeric}
    for metadata in (CENSUS, TAXI, SMALL):
        assert eval(to_source(metadata), names) == metadata
        assert Metadata.from_json(metadata.to_json(), source="test") == metadata
