"""What is known of the data is learnt, and what was trained is what serves."""

import base64
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import torch
from torch.utils.data import TensorDataset

from stoker import pytorch
from stoker.cli.main import main
from stoker.errors import ConfigError, InstanceError, UsageError
from stoker.predict.base import TablePredictor
from stoker.predict.loading import load as load_model
from stoker.recipes import synthetic
from stoker.recipes.tabular import (
    Categorical,
    Metadata,
    Numeric,
    Result,
    Settings,
    fit,
    load,
    own_model,
    tf_example,
    train,
)
from stoker.recipes.tabular.inference import exact, infer
from stoker.recipes.tabular.models import MODELS, DeepModel
from stoker.recipes.tabular.trial import TableTrial
from tests.recipes.tabular.conftest import CENSUS, TAXI


@own_model
def tiny(features: Any, **settings: Any) -> torch.nn.Module:
    return DeepModel(features, hidden=(4,), dropout=0.0, wide=False)


@pytest.fixture
def predictor(trained: Result) -> TablePredictor:
    found = load_model(trained.folder)
    assert isinstance(found, TablePredictor)
    return found


@pytest.fixture
def instances(people: Path) -> list[dict[str, Any]]:
    return pl.read_csv(people / "eval.csv").drop("income_bracket").to_dicts()


def test_the_census_is_learnt_nearly_as_well_as_can_be(trained: Result) -> None:
    _, best = synthetic.best_score("census", synthetic.make("census", rows=4000, seed=2))

    assert best - 0.015 < trained.metrics["auc"] < best + 0.01
    assert trained.metrics["ece"] < 0.03
    assert 0 < trained.metrics["said_yes"] < 0.3
    assert trained.history[-1]["auc"] > trained.history[0]["auc"]


def test_the_taxi_fare_is_learnt_up_to_the_noise(tmp_path: Path) -> None:
    for name, rows, seed in (("train", 12_000, 1), ("eval", 3000, 2)):
        pl.DataFrame(synthetic.make("taxi", rows=rows, seed=seed)).write_parquet(tmp_path / f"{name}.parquet")

    result = train(
        TAXI,
        train_files=[str(tmp_path / "train.parquet")],
        eval_files=[str(tmp_path / "eval.parquet")],
        settings=Settings(batch_size=256, num_epochs=4, learning_rate=0.01),
    )

    assert result.metrics["rmse"] < synthetic.FARE_NOISE * 1.12
    ride = {"pickup_datetime": "2014-05-01 12:00:00", "pickup_longitude": -73.98, "pickup_latitude": 40.75}
    ride |= {"dropoff_longitude": -73.95, "dropoff_latitude": 40.78, "passenger_count": 2}
    expected = float(synthetic.expected("taxi", pa.table({key: [value] for key, value in ride.items()}))[0])
    assert load_model(result.folder).predict([ride])[0]["value"] == pytest.approx(expected, abs=0.6)


def test_the_bundle_predicts_what_training_evaluated_bit_for_bit(
    trained: Result, predictor: TablePredictor, people: Path, instances: list[dict[str, Any]]
) -> None:
    table = load([str(people / "eval.csv")], CENSUS, vocabularies=trained.features.vocabularies)
    evaluated = infer(exact(trained.net), trained.features, table.numbers, table.codes)

    answers = predictor.predict(instances)
    columns = predictor.predict_table(pa.Table.from_pylist(instances))

    assert [answer["probabilities"] for answer in answers] == evaluated.tolist()
    assert columns["probabilities"].to_pylist() == evaluated.tolist()
    assert [answer["label"] for answer in answers] == columns["label"].to_pylist()


def test_an_answer_does_not_depend_on_the_rows_beside_it(
    predictor: TablePredictor, instances: list[dict[str, Any]]
) -> None:
    together = predictor.predict(instances[:40])

    assert [predictor.predict([instance])[0] for instance in instances[:40]] == together


def as_csv(rows: Sequence[dict[str, Any]]) -> list[Any]:
    return pl.DataFrame(rows, infer_schema_length=None).write_csv(include_header=False).splitlines()


def as_examples(rows: Sequence[dict[str, Any]]) -> list[Any]:
    return [{"b64": base64.b64encode(tf_example.encode(row)).decode()} for row in rows]


@pytest.mark.parametrize(
    "form",
    [
        as_csv,
        as_examples,
        lambda rows: [tf_example.encode(row) for row in rows],
        lambda rows: [list(row.values()) for row in rows],
        lambda rows: [{key: None if value is None else str(value) for key, value in row.items()} for row in rows],
        lambda rows: [{**row, "income_bracket": "unknown", "note": "x"} for row in rows],
    ],
    ids=["csv", "tf.Example in JSON", "tf.Example", "rows", "texts", "with more"],
)
def test_all_forms_of_an_instance_get_the_same_answer(
    form: Any, predictor: TablePredictor, instances: list[dict[str, Any]]
) -> None:
    assert predictor.predict(form(instances[:50])) == predictor.predict(instances[:50])


def test_unseen_and_missing_values_are_answered(predictor: TablePredictor, instances: list[dict[str, Any]]) -> None:
    odd = {**instances[0], "occupation": "astronaut", "region": None, "age": None}

    answer = predictor.predict([odd])[0]

    assert sum(answer["probabilities"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("change", "index", "field"),
    [
        (lambda row: {**row, "age": "old"}, 1, "age"),
        (lambda row: {**row, "age": [1, 2]}, 1, "age"),
        (lambda row: {key: value for key, value in row.items() if key != "region"}, 1, "region"),
        (lambda row: [1, 2, 3], 1, None),
        (lambda row: 7, 1, None),
        (lambda row: {"b64": "###"}, 1, "b64"),
        (lambda row: b"\xff\xff", 1, None),
    ],
)
def test_what_is_wrong_with_an_instance_is_said_with_its_place(
    change: Any, index: int, field: str | None, predictor: TablePredictor, instances: list[dict[str, Any]]
) -> None:
    with pytest.raises(InstanceError) as caught:
        predictor.predict([instances[0], change(instances[1])])

    assert (caught.value.index, caught.value.field) == (index, field)


def test_bundle_and_report_are_handed_out_and_hold_no_code(trained: Result) -> None:
    out = trained.folder.parents[3] / "out"
    card = load_model(out / "income").card

    page = (out / "income.report.html").read_text()

    assert {file.path for file in card.files} == {"model.safetensors", "table.json"}
    assert card.labels == synthetic.LABELS
    assert card.metrics["auc"] == pytest.approx(trained.metrics["auc"])
    assert [field.name for field in card.signature.inputs] == [n for n in CENSUS.header if n != "income_bracket"]
    assert page.count("<svg") == 3
    assert "<script" not in page
    assert re.findall(r'(?:src|href)="', page) == []


def test_a_model_of_ones_own_is_trained_saved_and_found_again_by_its_name(people: Path, tmp_path: Path) -> None:
    result = train(
        CENSUS,
        train_files=[str(people / "eval.csv")],
        eval_files=[str(people / "eval.csv")],
        settings=Settings(num_epochs=1),
        build=tiny,
    )

    about = json.loads((result.folder / "table.json").read_text())
    assert about["build"].endswith(":tiny")
    with pytest.raises(UsageError, match=":tiny runs code"):
        load_model(result.folder)
    predictor = load_model(result.folder, trust_pickle=True)
    assert predictor.predict([{name: None for name in CENSUS.feature_columns}])


def test_a_bundle_cannot_call_what_builds_no_models(trained: Result, tmp_path: Path) -> None:
    from stoker.recipes.tabular.bundle import read_bundle

    about = json.loads((trained.folder / "table.json").read_text())
    (tmp_path / "table.json").write_text(json.dumps({**about, "build": "os:system"}))

    with pytest.raises(ConfigError, match="no function marked with @own_model"):
        read_bundle(tmp_path)
    with pytest.raises(UsageError, match="put @own_model over the function"):
        train(CENSUS, train_files=["x"], eval_files=["x"], build=lambda features, **_: torch.nn.Identity())


def test_weights_decide_whom_to_believe_and_early_stopping_ends_it(tmp_path: Path) -> None:
    """Two groups of rows contradict each other; the one with the weight wins."""
    metadata = Metadata(
        task="binary",
        header=("x", "c", "w", "y"),
        target="y",
        labels=("0", "1"),
        numeric=(Numeric("x", buckets=0),),
        categorical=(Categorical("c"),),
        weight="w",
    )
    rows = [
        f"{x % 7},{'ab'[x % 2]},{w},{int((x % 2 == 0) == believed)}"
        for x in range(400)
        for w, believed in ((9, 1), (1, 0))
    ]
    (tmp_path / "t.csv").write_text("\n".join(["x,c,w,y", *rows, ""]))

    result = train(
        metadata,
        train_files=[str(tmp_path / "t.csv")],
        eval_files=[str(tmp_path / "t.csv")],
        settings=Settings(model="linear", batch_size=64, num_epochs=60, wide_learning_rate=1.0, patience=2),
    )

    said = [answer["probabilities"][1] for answer in load_model(result.folder).predict([[1, "a"], [1, "b"]])]
    assert said == [pytest.approx(0.9, abs=0.04), pytest.approx(0.1, abs=0.04)]
    assert len(result.history) < 60


def test_bad_data_is_refused_before_training_starts(people: Path, tmp_path: Path) -> None:
    one_class = [line for line in (people / "train.csv").read_text().splitlines() if ">50K" not in line]
    (tmp_path / "poor.csv").write_text("\n".join([*one_class, ""]))

    with pytest.raises(UsageError, match="The label '>50K' never occurs"):
        train(CENSUS, train_files=[str(tmp_path / "poor.csv")], eval_files=[str(people / "eval.csv")])
    with pytest.raises(UsageError, match="No model 'forest'"):
        train(CENSUS, train_files=["x"], eval_files=["x"], settings=Settings(model="forest"))
    assert not (tmp_path / "stoker-runs").exists()


def test_a_training_that_was_stopped_goes_on_as_if_it_had_not_been(people: Path) -> None:
    table = load([str(people / "eval.csv")], CENSUS)
    features = fit(table, CENSUS)
    loader = pytorch.DataLoader(TensorDataset(*table.tensors), 256, shuffle=True)

    def trained_for(batches: int, checkpoint: str | None) -> tuple[dict[str, torch.Tensor], str]:
        with pytorch.init(seed=3) as context:
            net = MODELS["wide_deep"](features)
            trial = context.build_trial(TableTrial, net, features, Settings(), steps=40, metrics={})
            context.train(
                trial,
                loader,
                table,
                max_length=pytorch.Batch(batches),
                validation_period=pytorch.Batch(25),
                latest_checkpoint=checkpoint,
                progress=False,
            )
            assert context.run.latest_checkpoint is not None
            return net.state_dict(), context.run.latest_checkpoint

    whole, _ = trained_for(40, None)
    _, half = trained_for(20, None)
    again, _ = trained_for(40, half)

    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_settings_are_changed_by_a_search() -> None:
    changed = Settings().changed_by({"learning-rate": "0.1", "batch_size": 64.0, "unknown": 1})

    assert (changed.learning_rate, changed.batch_size) == (0.1, 64)
    with pytest.raises(UsageError, match="Num_epochs is 0"):
        Settings(num_epochs=0)


def test_infer_writes_metadata_that_trains(people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "metadata.py"

    assert main(["recipes", "infer", str(people / "train.csv"), "-o", str(output)]) == 0

    found: dict[str, Any] = {}
    exec(output.read_text(), found)
    metadata = found["METADATA"]
    assert (metadata.task, metadata.labels, metadata.target) == ("binary", synthetic.LABELS, "income_bracket")
    assert {item.name for item in metadata.numeric if item.log} == {"capital_gain", "capital_loss"}
    assert {item.name: item.identity for item in metadata.categorical}["household_size"] == 8
    assert len(load([str(people / "eval.csv")], metadata)) == 4000
    assert "long-tailed: its logarithm is taken" in capsys.readouterr().err
    assert main(["recipes", "infer", str(people / "train.csv"), "-o", str(output)]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err


def test_infer_finds_dates_places_and_says_why_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pl.DataFrame(synthetic.make("taxi", rows=300)).with_columns(ride=pl.int_range(300).cast(pl.String) + "x")
    frame.write_csv(tmp_path / "rides.csv")

    assert main(["recipes", "infer", str(tmp_path / "rides.csv"), "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["metadata"]["task"] == "regression"
    assert [date["name"] for date in found["metadata"]["dates"]] == ["pickup_datetime"]
    assert found["metadata"]["distances"] == [["pickup", "dropoff"]]
    reasons = {row["column"]: row["taken_for"] for row in found["reasons"]}
    assert reasons["ride"] == "left aside"
    assert main(["recipes", "infer", str(tmp_path / "rides.csv"), "--target", "nope"]) == 2
