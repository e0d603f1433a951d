"""The same rows get the same numbers from the trainer's evaluation, batch prediction and the server, to the last bit.

No tolerance is needed: all three predict in double precision and round to single at the end (inference.exact), so sums
in another order, as other batches bring them, never show. Numbers reach the model as float32 whatever the format, which
is what training reads and what a tf.Example holds, and answers are written as texts that give back the same float32.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stoker.formats.tfrecord import framed
from stoker.host.home import Home
from stoker.predict.batch.plan import DataFormat, make_plan
from stoker.predict.batch.rows import ShardPredictor
from stoker.predict.batch.writing import Output
from stoker.predict.loading import load as load_model
from stoker.recipes.tabular import Result, load, tf_example
from stoker.recipes.tabular.inference import exact, infer
from stoker.storage import Storage
from tests.predict.online.fakes import Caller
from tests.predict.online.test_agreement import served
from tests.recipes.tabular.conftest import CENSUS

ROWS = 300


@pytest.fixture(scope="module")
def server(trained: Result) -> Iterator[Caller]:
    with served(trained.folder) as call:
        yield call


@pytest.fixture
def table(people: Path, tmp_path: Path) -> pl.DataFrame:
    frame = pl.read_csv(people / "eval.csv", infer_schema_length=None).head(ROWS)
    frame.write_csv(tmp_path / "evaluated.csv")
    return frame.drop(CENSUS.target)


def as_csv(table: pl.DataFrame) -> bytes:
    return table.write_csv().encode()


def as_json(table: pl.DataFrame) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in table.to_dicts()).encode()


def as_records(table: pl.DataFrame) -> bytes:
    return b"".join(framed(tf_example.encode(row)) for row in table.to_dicts())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "data_format", "kind"),
    [
        (as_csv, "csv", "text/csv"),
        (as_json, "text", "application/json"),
        (as_records, "tf-record", "application/x-tfrecord"),
    ],
    ids=["csv", "json", "tf.Example"],
)
def test_trainer_batch_and_server_agree_to_the_last_bit(
    form: Any, data_format: DataFormat, kind: str, trained: Result, server: Caller, table: pl.DataFrame, tmp_path: Path
) -> None:
    held_out = load([str(tmp_path / "evaluated.csv")], CENSUS, vocabularies=trained.features.vocabularies)
    expected = infer(exact(trained.net), trained.features, held_out.numbers, held_out.codes).tolist()
    body = form(table)
    (tmp_path / "inputs").write_bytes(body)
    if kind == "application/json":
        body = json.dumps({"instances": table.to_dicts()}).encode()

    batch = predicted_in_batch(tmp_path, trained, data_format)
    online = server("POST", f"/v1/models/{load_model(trained.folder).card.name}:predict", body, kind=kind)

    assert online.status == 200, online.body
    assert [answer["probabilities"] for answer in batch] == expected
    assert online.json["predictions"] == batch


def predicted_in_batch(folder: Path, trained: Result, data_format: DataFormat) -> list[Any]:
    """What a rank of `stoker jobs submit prediction` writes."""
    storage = Storage(Home.find().root)
    out = str(folder / "out")
    plan = make_plan(
        storage, job="agree", data_format=data_format, inputs=[str(folder / "inputs")], output=out, ranks=1
    )
    output = Output(storage, out, plan)
    shards = ShardPredictor(storage, plan, load_model(trained.folder), batch_size=64, instance_key=None)
    numbers = range(len(plan.shards))
    assert list(shards.predict(numbers, output, should_stop=lambda: False)) == list(numbers)
    assert sum(counts.errors for counts in output.done().values()) == 0
    written = sorted(folder.glob("out/prediction.results*"))
    return [json.loads(line) for file in written for line in file.read_text().splitlines()]
