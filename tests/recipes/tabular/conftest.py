"""Small tables, and one training that many tests look at."""

from pathlib import Path

import polars as pl
import pytest

from stoker.recipes import synthetic
from stoker.recipes.tabular import Categorical, Date, GeoPoint, Metadata, Numeric, Result, Settings, train

CENSUS = Metadata(
    task="binary",
    header=tuple(synthetic.make("census", rows=1).column_names),
    target="income_bracket",
    labels=synthetic.LABELS,
    numeric=(
        Numeric("age"),
        Numeric("capital_gain", log=True),
        Numeric("capital_loss", log=True),
        Numeric("hours_per_week"),
        Numeric("years_employed"),
        Numeric("distance_to_work"),
    ),
    categorical=(
        Categorical("workclass"),
        Categorical("education", vocabulary=tuple(synthetic.EDUCATIONS)),
        Categorical("occupation"),
        Categorical("region", hash_buckets=64),
        Categorical("household_size", identity=8),
    ),
    crosses=(("education", "occupation"), ("age", "workclass")),
)
TAXI = Metadata(
    task="regression",
    header=tuple(synthetic.make("taxi", rows=1).column_names),
    target="fare_amount",
    categorical=(Categorical("passenger_count", identity=7),),
    dates=(Date("pickup_datetime"),),
    points=(
        GeoPoint("pickup", latitude="pickup_latitude", longitude="pickup_longitude"),
        GeoPoint("dropoff", latitude="dropoff_latitude", longitude="dropoff_longitude"),
    ),
    distances=(("pickup", "dropoff"),),
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train.csv and eval.csv of the census."""
    folder = tmp_path_factory.mktemp("people")
    for name, rows, seed in (("train", 16_000, 1), ("eval", 4000, 2)):
        pl.DataFrame(synthetic.make("census", rows=rows, seed=seed)).write_csv(folder / f"{name}.csv")
    return folder


@pytest.fixture(scope="session")
def trained(people: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A wide and deep model of the census; its bundle is in `folder`, a copy of it in out/income beside the run."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOKER_HOME", str(folder / "home"))
        patch.chdir(folder)
        return train(
            CENSUS,
            train_files=[str(people / "train.csv")],
            eval_files=[str(people / "eval.csv")],
            settings=Settings(batch_size=256, num_epochs=5),
            metrics={"said_yes": lambda predicted, target: float((predicted[:, 1] > 0.5).float().mean())},
            output=str(folder / "out"),
            name="income",
        )
