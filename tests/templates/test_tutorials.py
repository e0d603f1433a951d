"""Each template by its tutorial: laid down, trained by its Makefile here and as a job, and what was learnt looked at.

The truth is in stoker/recipes/synthetic.py (a ride costs 3.00, 1.60 for the kilometre, 2.00 more by night), and the
weight of the PyTorchTrial is 1.
"""

import json
import os
import re
from pathlib import Path

import joblib
import pandas as pd
import pytest
import torch

from stoker.home import Home
from stoker.storage.access import Storage
from stoker.templates import available, lay_down
from tests.e2e.command import Result, run, stoker
from tests.templates.pages import SHOWN, TUTORIAL, run_tutorial, tutorial
from tests.test_docs import commands

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # each trains several times; Keras installs TensorFlow


def done(result: Result) -> Result:
    assert result.code == 0, result.out + result.err
    return result


def passing_tests(project: Path) -> None:
    done(run(["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], cwd=project))


def test_sklearn_finds_the_price_of_a_kilometre_and_of_the_night(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = run_tutorial("sklearn", tmp_path)
    monkeypatch.syspath_prepend(project)  # the pipeline's file names the package's functions

    local = joblib.load(project / "model.joblib")
    with Storage(home.root).open_url("gs://my-bucket/models/taxi-fares/model.joblib") as file:
        pipeline = joblib.load(file)

    assert local.coef_[0] == pytest.approx(1.6, abs=0.05)
    ride = {
        "pickup_datetime": "2014-05-05 12:30:00",
        "pickup_longitude": -73.98,
        "pickup_latitude": 40.75,
        "dropoff_longitude": -73.98,
        "dropoff_latitude": 40.80,
        "passenger_count": 1,
    }
    day, night = pipeline.predict(pd.DataFrame([ride, {**ride, "pickup_datetime": "2014-05-05 23:30:00"}]))
    assert day == pytest.approx(3 + 1.6 * 5.56, abs=0.3)
    assert night - day == pytest.approx(2, abs=0.3)
    passing_tests(project)


def test_pytorch_learns_its_weight_searches_and_predicts(home: Home, tmp_path: Path) -> None:
    project = run_tutorial("pytorch", tmp_path)

    predictions = torch.load(project / "predictions" / "predictions.pt")
    best = json.loads(done(stoker("experiment", "best", "one_weight_grid_1", "--json")).out)
    assert predictions.shape == (64, 1)
    assert predictions.mean().item() == pytest.approx(1, abs=0.05)
    assert best["hparams"]["global_batch_size"] == 16
    passing_tests(project)


@pytest.mark.skipif(
    not os.environ.get("STOKER_TEST_KERAS"), reason="minutes of TensorFlow: STOKER_TEST_KERAS=1 runs it"
)
def test_keras_learns_the_fares_alone_and_with_workers(home: Home, tmp_path: Path) -> None:
    project = run_tutorial("keras", tmp_path)
    (python,) = home.root.glob("environments/*/bin/python")

    looked = run([str(python), "-c", LOOK_AT_KERAS, "output/saved_model", "jobs/fares_1/saved_model"], cwd=project)

    assert looked.code == 0, looked.out + looked.err  # the project's own tests passed
    fares_of_a_kilometre = [float(line.split()[1]) for line in looked.out.splitlines() if line.startswith("kilometre")]
    assert fares_of_a_kilometre == pytest.approx([1.6, 1.6], abs=0.2)


# One process for all that needs TensorFlow, which takes eight seconds to import.
LOOK_AT_KERAS = """
import sys
import pytest
import tensorflow as tf

ride = {"pickup_longitude": -73.98, "pickup_latitude": 40.75, "dropoff_longitude": -73.98, "dropoff_latitude": 40.75}
near = {name: tf.constant([value]) for name, value in ride.items()} | {"hour": tf.constant([12])}
for folder in sys.argv[1:]:
    model = tf.saved_model.load(folder)
    far = model.serve({**near, "dropoff_latitude": tf.constant([40.80])})  # 5.56 km
    print("kilometre", float(far[0] - model.serve(near)[0]) / 5.56)
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests"]))
"""


@pytest.mark.parametrize("template", [each.name for each in available() if tutorial(each.name).exists()])
def test_a_readme_tells_what_the_tutorial_runs(template: str, tmp_path: Path) -> None:
    """Its commands are run, then: all but those that serve until Ctrl-C, and the registry's, which sklearn's runs."""
    ran = [_without_variables(command) for command, _ in commands(tutorial(template), TUTORIAL)]
    name = next(command.split()[2] for command in ran if command.startswith("stoker init "))
    project = lay_down(template, name=name, directory=tmp_path / name)
    elsewhere = ("stoker serve ", "curl ", *(("stoker models ", "stoker versions ") if template != "sklearn" else ()))

    shown = [_without_variables(command) for command, _ in commands(project / "README.md", SHOWN)]

    assert shown
    assert [command for command in shown if command not in ran and not command.startswith(elsewhere)] == []


def _without_variables(command: str) -> str:
    return re.sub(r" [A-Z_]+=\S+", "", command)


def test_job_files_are_taken(home: Home, tmp_path: Path) -> None:
    for template in available():
        project = lay_down(template.name, name="fares", directory=tmp_path / template.name)

        launch = json.loads(done(stoker("jobs", "create", "stoker.yaml", "--dry-run", cwd=project)).out)

        assert launch["launch"]["module"] in ("train", "trainer.task", "fares.trainer")
