"""`import hypertune` in every job: the original's interface and file."""

import json
import math
import subprocess
from pathlib import Path

import pytest

import stoker
from stoker.packaging.job_modules import hypertune
from tests.packaging.made import python_of

PROVIDED = Path(stoker.__file__).parent / "packaging/job_modules"


@pytest.fixture
def metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "made/by/it/output.metrics"
    monkeypatch.setenv("CLOUD_ML_HP_METRIC_FILE", str(file))
    monkeypatch.setenv("CLOUD_ML_TRIAL_ID", "7")
    return file


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_report_is_a_line_of_strings_with_sorted_keys(metrics: Path) -> None:
    hypertune.HyperTune().report_hyperparameter_tuning_metric("test_loss", 0.25, 2, checkpoint_path="/c")

    (text,) = metrics.read_text().splitlines()
    found = json.loads(text)
    assert isinstance(found.pop("timestamp"), float)
    assert found == {"checkpoint_path": "/c", "global_step": "2", "test_loss": "0.25", "trial": "7"}
    assert list(json.loads(text)) == sorted(json.loads(text))


def test_defaults_are_the_originals(metrics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOUD_ML_TRIAL_ID")
    tune = hypertune.HyperTune()
    tune.report_hyperparameter_tuning_metric("", "3")
    tune.report_hyperparameter_tuning_metric(hyperparameter_metric_tag="a", metric_value=math.nan, global_step=None)

    first, second = lines(metrics)

    assert (first["training/hptuning/metric"], first["global_step"], first["trial"]) == ("3.0", "0", "0")
    assert second["a"] == "nan"


def test_second_reporter_goes_on_where_the_first_stopped(metrics: Path) -> None:
    for epoch in range(1, 4):
        hypertune.HyperTune().report_hyperparameter_tuning_metric("loss", epoch, epoch)

    assert [line["global_step"] for line in lines(metrics)] == ["1", "2", "3"]


def test_file_keeps_the_last_hundred(metrics: Path) -> None:
    tune = hypertune.HyperTune()
    for step in range(130):
        tune.report_hyperparameter_tuning_metric("loss", 1, step)

    assert [line["global_step"] for line in lines(metrics)] == [str(step) for step in range(30, 130)]


@pytest.mark.slow
def test_it_works_on_the_oldest_python(metrics: Path) -> None:
    code = "import hypertune; hypertune.HyperTune().report_hyperparameter_tuning_metric('x', 1.5, 3)"

    subprocess.run([python_of("3.7"), "-c", code], env={"PYTHONPATH": str(PROVIDED), **_set(metrics)}, check=True)

    assert lines(metrics)[0]["x"] == "1.5"


def _set(metrics: Path) -> dict[str, str]:
    return {"CLOUD_ML_HP_METRIC_FILE": str(metrics), "PYTHONDONTWRITEBYTECODE": "1"}
