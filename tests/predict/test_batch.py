"""Batch prediction without a server: how inputs are cut, what becomes of each row, and what a kill leaves."""

import contextlib
import gzip
import io
import json
import math
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import ConfigError, InstanceError, NotFoundError, UsageError
from stoker.formats.tfrecord import masked_crc32c
from stoker.predict.batch import plan as batch_plan
from stoker.predict.batch import reading as batch_reading
from stoker.predict.batch.plan import BatchPlan, DataFormat, make_plan
from stoker.predict.batch.rows import ShardPredictor
from stoker.predict.batch.writing import Counts, Output
from stoker.schema.bundle import FieldSpec, ModelCard, Signature
from stoker.storage import Storage

FIELDS = (FieldSpec(name="km", dtype="float", shape=()), FieldSpec(name="kind", dtype="string", shape=()))


class Fares:
    """Two a kilometre, five more for a cab; knows no other kinds."""

    card = ModelCard(
        name="fares", framework="custom", created=datetime(2026, 1, 1, tzinfo=UTC), signature=Signature(inputs=FIELDS)
    )

    def __init__(self) -> None:
        self.calls: list[int] = []

    def predict(self, instances: Sequence[Any]) -> list[Any]:
        self.calls.append(len(instances))
        return [{"fare": self._fare(instance, index)} for index, instance in enumerate(instances)]

    def _fare(self, instance: Any, index: int) -> float:
        if instance["km"] is None:
            raise InstanceError("is null; expected a number", index=index, field="km")
        if instance["kind"] not in ("cab", "bus"):
            raise InstanceError(f"unknown category {instance['kind']!r}", index=index, field="kind")
        fare = instance["km"] * 2 + (5 if instance["kind"] == "cab" else 0)
        return float(fare) if fare >= 0 else math.nan


class TableFares(Fares):
    """The same by columns."""

    def predict_table(self, table: Any) -> Any:
        import pyarrow

        rows = table.to_pylist()
        return pyarrow.table({"fare": [self._fare(row, index) for index, row in enumerate(rows)]})


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "home")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of a hundred bytes or so, read in pieces that fit no line."""
    monkeypatch.setattr(batch_plan, "_MIN_BYTES", 100)
    monkeypatch.setattr(batch_plan, "_MAX_BYTES", 100)
    monkeypatch.setattr(batch_plan, "_CHUNK", 37)
    monkeypatch.setattr(batch_reading, "_CHUNK", 41)


def plan_of(storage: Storage, folder: Path, data_format: DataFormat, *inputs: str) -> BatchPlan:
    return make_plan(
        storage,
        job="job",
        data_format=data_format,
        inputs=inputs or [f"{folder}/in/*"],
        output=f"{folder}/out",
        ranks=2,
    )


def predicted(
    storage: Storage, folder: Path, plan: BatchPlan, model: Fares | None = None, *, key: str | None = None
) -> tuple[list[Any], list[Any]]:
    """All results and all errors, in the order of the shards."""
    output = Output(storage, f"{folder}/out", plan)
    shards = ShardPredictor(storage, plan, model or Fares(), batch_size=8, instance_key=key)
    numbers = range(len(plan.shards))
    assert list(shards.predict(numbers, output, should_stop=lambda: False)) == list(numbers)
    found: list[list[Any]] = []
    for kind in ("results", "errors_stats"):
        files = [folder / "out" / plan.name(kind, number) for number in range(len(plan.shards))]
        found.append([json.loads(line) for file in files for line in file.read_text().splitlines()])
    return found[0], found[1]


def written(folder: Path, name: str, data: bytes) -> Path:
    (folder / "in").mkdir(exist_ok=True)
    path = folder / "in" / name
    path.write_bytes(data)
    return path


def record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc32c(head)) + data + struct.pack("<I", masked_crc32c(data))


def example(km: float, kind: str) -> bytes:
    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    floats = field(2, field(1, struct.pack("<f", km)))
    texts = field(1, field(1, kind.encode()))
    entries = [field(1, b"km") + field(2, floats), field(1, b"kind") + field(2, texts)]
    return field(1, b"".join(field(1, entry) for entry in entries))


LINES = [json.dumps({"km": n, "kind": "cab"}) for n in range(40)]


@pytest.mark.usefixtures("small")
class TestShards:
    """However inputs are cut, every row is there once, in order."""

    def test_lines_are_cut_between_lines(self, storage: Storage, tmp_path: Path) -> None:
        written(tmp_path, "b.json", "\n".join(LINES[20:]).encode())  # without a newline at its end
        written(tmp_path, "a.json", "\r\n".join([*LINES[:20], ""]).encode())

        plan = plan_of(storage, tmp_path, "text")
        results, errors = predicted(storage, tmp_path, plan)

        assert len(plan.shards) > 8
        assert [each["fare"] for each in results] == [2 * n + 5 for n in range(40)]
        assert errors == []
        assert plan.name("results", 3) == f"prediction.results-00003-of-{len(plan.shards):05d}"

    def test_csv_is_not_cut_inside_of_quotes(self, storage: Storage, tmp_path: Path) -> None:
        odd = '"a\nb ""c"" d\ne"'
        rows = [f"{n},{'cab' if n % 3 else odd}" for n in range(40)]
        written(tmp_path, "a.csv", "\n".join(["km,kind", *rows, ""]).encode())

        plan = plan_of(storage, tmp_path, "csv")
        results, errors = predicted(storage, tmp_path, plan)

        assert len(plan.shards) == 4
        assert [each["fare"] for each in results] == [2 * n + 5 for n in range(40) if n % 3]
        assert [each["row"] for each in errors] == [f"{n},{odd}" for n in range(0, 40, 3)]
        # Lines are counted as an editor does, quoted newlines and all.
        starts = [2 + n + 2 * ((n + 2) // 3) for n in range(0, 40, 3)]
        assert [each["line"] for each in errors] == starts

    def test_records_are_cut_between_records(self, storage: Storage, tmp_path: Path) -> None:
        data = b"".join(record(example(n, "bus")) for n in range(30))
        written(tmp_path, "a.tfrecord", data)

        plan = plan_of(storage, tmp_path, "tf-record")
        results, errors = predicted(storage, tmp_path, plan)

        assert len(plan.shards) > 4
        assert ([each["fare"] for each in results], errors) == ([2 * n for n in range(30)], [])

    def test_packed_files_are_shards_of_their_own(self, storage: Storage, tmp_path: Path) -> None:
        written(tmp_path, "a.json.gz", gzip.compress("\n".join(LINES).encode()))

        plan = plan_of(storage, tmp_path, "text")

        assert len(plan.shards) == 1
        assert len(predicted(storage, tmp_path, plan)[0]) == 40

    def test_parquet_is_cut_by_row_groups(self, storage: Storage, tmp_path: Path) -> None:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        table = pyarrow.table({"km": [float(n) for n in range(40)], "kind": ["cab"] * 39 + ["ufo"]})
        stream = io.BytesIO()
        parquet.write_table(table, stream, row_group_size=7)
        written(tmp_path, "a.parquet", stream.getvalue())

        plan = plan_of(storage, tmp_path, "parquet")
        results, errors = predicted(storage, tmp_path, plan, TableFares())

        assert [(shard.start, shard.row) for shard in plan.shards][:2] == [(0, 1), (1, 8)]
        assert [each["fare"] for each in results] == [2 * n + 5 for n in range(39)]
        assert [(each["line"], each["field"]) for each in errors] == [(40, "kind")]

    def test_the_plan_is_kept_and_inputs_must_not_change(self, storage: Storage, tmp_path: Path) -> None:
        file = written(tmp_path, "a.json", "\n".join(LINES).encode())
        plan = plan_of(storage, tmp_path, "text")

        assert plan_of(storage, tmp_path, "text") == plan
        file.write_text("[]")
        with pytest.raises(UsageError, match=r"a\.json was \d+ bytes, and is 2"):
            plan_of(storage, tmp_path, "text")
        with pytest.raises(UsageError, match="holds predictions of job 'job'"):
            make_plan(storage, job="other", data_format="text", inputs=[str(file)], output=f"{tmp_path}/out", ranks=1)

    def test_an_output_inside_of_an_input_is_not_read(self, storage: Storage, tmp_path: Path) -> None:
        written(tmp_path, "a.json", "\n".join(LINES).encode())
        plan = plan_of(storage, tmp_path, "text", str(tmp_path / "in"), str(tmp_path))

        predicted(storage, tmp_path, plan)

        assert [Path(file.url).name for file in plan.files] == ["a.json"]
        assert plan_of(storage, tmp_path, "text", str(tmp_path / "in"), str(tmp_path)) == plan

    def test_inputs_that_are_not_there_are_named(self, storage: Storage, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError, match="nowhere"):
            plan_of(storage, tmp_path, "text", f"{tmp_path}/nowhere/*")


class TestRows:
    """A row has a prediction, or an error with its place."""

    def test_bad_lines_are_named_with_line_offset_and_reason(self, storage: Storage, tmp_path: Path) -> None:
        good = b'{"km": 1, "kind": "cab"}'
        bad = [b"{oops", b"", b'{"km": 1, "kind": "ufo"}', b"\xff\xfe"]
        written(tmp_path, "a.json", b"\xef\xbb\xbf" + b"\n".join([good, *bad, good, b""]))

        model = Fares()
        results, errors = predicted(storage, tmp_path, plan_of(storage, tmp_path, "text"), model)

        assert results == [{"fare": 7.0}] * 2
        assert [each["line"] for each in errors] == [2, 3, 4, 5]
        assert [each["offset"] for each in errors] == [28, 34, 35, 60]
        assert [each.get("field") for each in errors] == [None, None, "kind", None]
        reasons = " | ".join(each["reason"] for each in errors)
        assert all(word in reasons for word in ("not JSON", "empty", "unknown category 'ufo'", "not UTF-8"))

    def test_many_bad_rows_do_not_make_the_model_work_again_and_again(self, storage: Storage, tmp_path: Path) -> None:
        rows = [json.dumps({"km": n, "kind": "ufo" if n % 2 else "cab"}) for n in range(8)]
        written(tmp_path, "a.json", "\n".join(rows).encode())

        model = Fares()
        results, errors = predicted(storage, tmp_path, plan_of(storage, tmp_path, "text"), model)

        assert ([each["fare"] for each in results], len(errors)) == ([5, 9, 13, 17], 4)
        assert sum(model.calls) <= 3 * 8 + 8

    def test_tables_and_rows_write_the_same_lines(self, storage: Storage, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        rows = ["km,kind", "1.5,cab", "1e3,bus", "0.1,cab", "-1,bus"]  # below nothing: no fare at all
        written(tmp_path, "good.csv", "\n".join(rows).encode())
        written(tmp_path, "odd.csv", "\n".join([*rows, "x,cab", "1,ufo", "1", ",cab", "2,cab"]).encode())

        plan = plan_of(storage, tmp_path, "csv")
        by_rows = predicted(storage, tmp_path, plan)
        model = TableFares()
        by_tables = predicted(storage, tmp_path, plan, model)

        assert by_tables == by_rows
        assert [each["fare"] for each in by_rows[0]] == [8.0, 2000.0, 5.2, "NaN"] * 2 + [9.0]
        assert [(each["line"], each.get("field")) for each in by_rows[1]] == [
            (6, "km"),
            (7, "kind"),
            (8, None),
            (9, "km"),
        ]
        assert sum(model.calls) < 30, "the good file went by its columns"

    def test_tables_of_all_kinds_become_the_lines_that_rows_would(self) -> None:
        pyarrow = pytest.importorskip("pyarrow")
        from stoker.predict.batch.tables import lines_of
        from stoker.predict.online.encoding import encode

        columns = {
            '100% "odd" name': ["a\nb", None, "é"],
            "nested": pyarrow.array(
                [[[0.1, 2.0]], [[3.0, math.nan]], [[1e-9, 1e300]]],
                pyarrow.list_(pyarrow.list_(pyarrow.float64(), 2), 1),
            ),
            "single": pyarrow.array([0.1, 2.5, 1e9], pyarrow.float32()),
            "ragged": [[1], [], [1, 2]],
            "maybe": pyarrow.array([[1, 2], None, [3, 4]], pyarrow.list_(pyarrow.int64(), 2)),
            "flag": [True, False, None],
        }
        table = pyarrow.table(columns)
        in_chunks = pyarrow.concat_tables([table.slice(0, 1), table.slice(1)])

        lines = lines_of(in_chunks, key=None, keys=None)

        assert lines == b"".join(encode(row) + b"\n" for row in table.to_pylist())
        assert lines_of(table.select([2]).rename_columns([""]), key=None, keys=None).split()[1] == b"2.5"

    @pytest.mark.parametrize("model", [Fares, TableFares])
    def test_a_key_is_passed_on(self, storage: Storage, tmp_path: Path, model: type[Fares]) -> None:
        pytest.importorskip("pyarrow")
        written(tmp_path, "a.csv", b'km,"id",kind\n1,"r ""1""",cab\n2,r2,bus\n')

        results, _ = predicted(storage, tmp_path, plan_of(storage, tmp_path, "csv"), model(), key="id")

        assert results == [{"id": 'r "1"', "prediction": {"fare": 7.0}}, {"id": "r2", "prediction": {"fare": 4.0}}]

    def test_a_header_that_is_not_the_models_is_refused_with_the_file(self, storage: Storage, tmp_path: Path) -> None:
        written(tmp_path, "a.csv", b"km,colour\n1,red\n")

        with pytest.raises(ConfigError, match=r"a\.csv.*header is not the model's") as caught:
            predicted(storage, tmp_path, plan_of(storage, tmp_path, "csv"))
        assert "colour" in str(caught.value)

    @pytest.mark.parametrize("packed", [False, True])
    def test_damaged_records_are_named_with_their_offset(self, storage: Storage, tmp_path: Path, packed: bool) -> None:
        records = [record(example(n, "cab")) for n in range(4)]
        flipped = bytearray(records[1])
        flipped[15] ^= 1
        data = records[0] + bytes(flipped) + records[2] + records[3][:-9]
        written(tmp_path, "a.tfrecord", gzip.compress(data) if packed else data)

        plan = plan_of(storage, tmp_path, "tf-record-gzip" if packed else "tf-record")
        results, errors = predicted(storage, tmp_path, plan)

        assert [each["fare"] for each in results] == [5, 9]
        assert [(each["line"], each["offset"]) for each in errors] == [(2, len(records[0])), (4, 3 * len(records[0]))]
        assert "checksum" in errors[0]["reason"]
        assert "ends before it does" in errors[1]["reason"]

    def test_a_damaged_gzip_is_an_error_after_what_could_be_read(self, storage: Storage, tmp_path: Path) -> None:
        written(tmp_path, "a.json.gz", gzip.compress("\n".join(LINES).encode())[:-20])

        results, errors = predicted(storage, tmp_path, plan_of(storage, tmp_path, "text"))

        assert "gzip" in errors[-1]["reason"]
        assert len(results) <= 40


def test_a_stop_is_heard_between_two_batches(storage: Storage, tmp_path: Path) -> None:
    written(tmp_path, "a.json", "\n".join(LINES).encode())
    plan = plan_of(storage, tmp_path, "text")
    model = Fares()
    shards = ShardPredictor(storage, plan, model, batch_size=8, instance_key=None)
    output = Output(storage, f"{tmp_path}/out", plan)

    assert list(shards.predict([0], output, should_stop=lambda: len(model.calls) == 2)) == []

    assert model.calls == [8, 8]
    assert output.done() == {}


class TestOutput:
    """A shard is done whole, or not at all."""

    def test_a_shard_that_is_left_leaves_nothing_and_is_done_anew(self, storage: Storage, tmp_path: Path) -> None:
        written(tmp_path, "a.json", "\n".join(LINES).encode())
        plan = plan_of(storage, tmp_path, "text")
        output = Output(storage, f"{tmp_path}/out", plan)

        with contextlib.suppress(KeyboardInterrupt), output.shard(0) as writer:
            writer.add_lines(b"1\n", 1)
            raise KeyboardInterrupt

        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["_stoker"]
        assert output.done() == {}
        assert len(predicted(storage, tmp_path, plan)[0]) == 40
        assert Output(storage, f"{tmp_path}/out", plan).done() == {0: Counts(predictions=40)}
