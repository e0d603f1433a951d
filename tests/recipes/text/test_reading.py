"""Every kind of data set gives the same texts and labels, and what is wrong with one is said with its place."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from stoker.errors import NotFoundError, UsageError
from stoker.host.home import Home
from stoker.recipes.text import TextData, TextSettings, read_data
from stoker.storage import Storage
from tests.recipes.text.conftest import write_csv

ROWS = [{"text": f'text {n}, "quoted"', "label": "good" if n % 2 else "bad"} for n in range(40)]


def read(dataset: "str | Path", **settings: object) -> TextData:
    return read_data(TextSettings(dataset=str(dataset), **settings))  # type: ignore[arg-type]


def pairs(data: TextData) -> list[tuple[str, str]]:
    parts = (data.train, data.evaluation)
    return sorted((text, data.labels[n]) for part in parts for text, n in zip(part.texts, part.labels, strict=True))


def test_all_formats_and_folders_and_urls_give_the_same(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ROWS)
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    (tmp_path / "a.json").write_text(json.dumps(ROWS))
    pa.parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    for number, row in enumerate(ROWS):
        file = tmp_path / "folder" / row["label"] / f"{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(row["text"])
    Home.find().make()
    Storage(Home.find().root).copy(tmp_path / "a.csv", "gs://bucket/reviews/a.csv")

    expected = sorted((row["text"], row["label"]) for row in ROWS)
    for dataset in ("a.csv", "a.jsonl", "a.json", "a.parquet", "folder", "gs://bucket/reviews"):
        data = read(dataset)
        assert pairs(data) == expected, dataset
        assert data.labels == ("bad", "good")
        assert len(data.evaluation) == 4  # a tenth of each class
    assert read("a.csv").evaluation.texts == read("a.csv").evaluation.texts


def test_parts_are_told_by_folder_or_name_and_an_eval_dataset_wins(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    write_csv(tmp_path / "d" / "train-1.csv", ROWS[:20])
    write_csv(tmp_path / "d" / "test.csv", ROWS[20:26])
    other = write_csv(tmp_path / "other.csv", ROWS[30:])

    by_name = read(tmp_path / "d")
    given = read(tmp_path / "d", eval_dataset=str(other))

    assert (len(by_name.train), len(by_name.evaluation)) == (20, 6)
    assert (len(given.train), len(given.evaluation)) == (20, 10)


def test_numbers_as_labels_are_sorted_as_numbers_whatever_the_format(tmp_path: Path) -> None:
    rows = [{"sentence": f"t{n}", "target": n % 11} for n in range(44)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pa.parquet.write_table(pa.Table.from_pylist([{**r, "target": float(r["target"])} for r in rows]), "b.parquet")

    for dataset in ("a.jsonl", "b.parquet"):
        assert read(dataset, eval_share=0.25).labels == tuple(map(str, range(11)))


def test_a_datasets_name_is_loaded_by_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["neg", "pos"]))
    made = {"text": ["a", "b", "c", "d"], "label": [0, 1, 0, 1]}
    split = datasets.Dataset.from_dict(made, features=features)
    monkeypatch.setattr(datasets, "load_dataset", lambda name: datasets.DatasetDict(train=split, test=split))

    data = read("imdb")

    assert data.labels == ("neg", "pos")
    assert data.train.texts == data.evaluation.texts == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        (b"", {}, "bad.csv is empty"),
        (b"text,label\n", {}, "bad.csv is empty"),
        (
            b"words,label\nx,a\n",
            {},
            "bad.csv has no text column. It has words, label: name the one to use by text_column.",
        ),
        (b"text,stars\nx,a\n", {}, "bad.csv has no label column. It has text, stars"),
        (b"text,label\nx,a\n", {"text_column": "body"}, "has no column 'body' for the text. It has text, label"),
        (b"text,label\nx,a\ny,c\n", {"labels": ("a", "b")}, "bad.csv, row 2: label 'c' is not one of a, b."),
        (b"text,label\n" + b"x,a\n" * 20, {"labels": ("a", "b")}, "never has the class b."),
        (b"text,label\n" + b"x,a\n" * 20, {}, "has one class only (a)"),
        (b"text,label\nx,a\ny,\n", {}, "bad.csv, row 2: there is no label."),
        (b"text,label\nx,a\nh\xe9,b\n", {}, "bad.csv, line 3: not UTF-8 (byte 0xe9)."),
        (b"text,label\none, two,a\n", {}, "bad.csv, row 1: 3 cells, and the header has 2 columns."),
        (b"text,label\nx,a\ny,b\n", {}, "has 2 rows, too few to keep 0.1 of each class"),
    ],
)
def test_what_is_wrong_with_data_is_one_sentence(content: bytes, settings: dict[str, str], message: str) -> None:
    Path("bad.csv").write_bytes(content)

    with pytest.raises(UsageError) as caught:
        read("bad.csv", **settings)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_data_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": 1}\n[]\n')

    with pytest.raises(NotFoundError, match="No data at nowhere.csv"):
        read("nowhere.csv")
    with pytest.raises(UsageError, match="empty holds no data file"):
        read(tmp_path / "empty")
    with pytest.raises(UsageError, match=r"a.jsonl, line 2: expected a JSON object"):
        read("a.jsonl")
    with pytest.raises(UsageError, match="eval_share=2"):
        read("a.jsonl", eval_share=2)
