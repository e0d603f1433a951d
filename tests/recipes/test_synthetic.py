"""The data sets are the same each time, and their truth is what they say."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

from stoker.cli.main import main
from stoker.recipes import synthetic


@pytest.mark.parametrize("name", synthetic.DATA_SETS)
def test_rows_are_the_same_for_the_same_seed_and_others_for_another(name: str) -> None:
    first, again, other = (synthetic.make(name, rows=500, seed=seed) for seed in (3, 3, 4))

    assert first.equals(again)
    assert not first.equals(other)


def test_the_fare_is_the_rate_times_the_distance_but_for_the_noise() -> None:
    rides = synthetic.make("taxi", rows=20_000)

    error = np.asarray(rides["fare_amount"]) - synthetic.expected("taxi", rides)

    assert synthetic.best_score("taxi", rides) == ("rmse", pytest.approx(synthetic.FARE_NOISE, rel=0.02))
    assert abs(error.mean()) < 0.02


def test_haversine_is_known_along_the_equator_and_between_cities() -> None:
    far = synthetic.haversine_km(*(np.array([v]) for v in (52.52, 13.405, 48.8566, 2.3522)))  # Berlin, Paris

    assert far[0] == pytest.approx(877.5, abs=1.0)


@pytest.mark.parametrize("name", ["census", "reviews"])
def test_labels_come_true_as_often_as_the_truth_says(name: str) -> None:
    table = synthetic.make(name, rows=15_000)
    said = synthetic.expected(name, table)
    made = synthetic.data_set(name)
    assert made.labels is not None
    came = np.asarray(table[made.target]) == made.labels[1]

    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        among = (said >= low) & (said < low + 0.2)
        assert came[among].mean() == pytest.approx(said[among].mean(), abs=0.045)
    assert synthetic.best_score(name, table)[1] == pytest.approx(roc_auc_score(came, said))


def test_census_has_missing_numbers_and_categories() -> None:
    people = synthetic.make("census", rows=5000)

    gaps = {name: people[name].null_count for name in people.column_names if people[name].null_count}

    assert set(gaps) == {"workclass", "occupation", "hours_per_week"}


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_stoker_data_writes_the_rows_in_every_format(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    path = tmp_path / "deep" / f"people.{ending}"

    assert main(["data", "census", "--rows", "50", "--out", str(path)]) == 0

    read = {"csv": pl.read_csv, "parquet": pl.read_parquet, "jsonl": pl.read_ndjson}[ending](path)
    assert read["age"].to_list() == synthetic.make("census", rows=50)["age"].to_pylist()
    assert "auc" in capsys.readouterr().err


def test_stoker_data_fills_a_folder_with_two_files_of_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))

    assert main(["data", "reviews", "--rows", "50", "--out", f"{tmp_path}/texts/", "--format", "jsonl"]) == 0

    files = [(tmp_path / "texts" / f"{name}.jsonl").read_text() for name in ("train", "eval")]
    texts = [[json.loads(line) for line in text.splitlines()] for text in files]
    assert [len(part) for part in texts] == [50, 10]
    assert not {row["text"] for row in texts[0]} & {row["text"] for row in texts[1]}


def test_stoker_data_refuses_what_it_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "taxi", "--rows", "5", "--out", str(tmp_path / "rides.txt")]) == 2
    assert "in which format?" in capsys.readouterr().err
    assert main(["data", "taxi", "--rows", "0", "--out", str(tmp_path / "rides.csv")]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_stoker_data_names_the_extra_it_needs(library: str, tmp_path: Path) -> None:
    words = ["data", "taxi", "--out", str(tmp_path / "rides.csv")]
    code = f"import sys; sys.modules[{library!r}] = None; from stoker.cli.main import main; sys.exit(main({words!r}))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: This needs {library}: pip install 'stoker[data]'.\n"


def test_area_under_the_curve_counts_ties_half() -> None:
    assert synthetic.area_under_curve(np.array([1.0, 1.0]), np.array([True, False])) == 0.5
    assert isinstance(synthetic.make("taxi", rows=1), pa.Table)
