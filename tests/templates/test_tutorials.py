"""Each template by its tutorial: laid down, trained by its Makefile here and as a job, and what was learnt looked at.

The truth is in stoker/recipes/synthetic.py (a ride costs 3.00, 1.60 for the kilometre, 2.00 more by night), and the
weight of the PyTorchTrial is 1.
"""

import json
import re
from pathlib import Path

import joblib
import pandas as pd
import pytest
import torch

from stoker.host.home import Home
from stoker.storage.storage import Storage
from stoker.templates import available, lay_down
from tests.e2e.command import Result, run, stoker
from tests.templates.pages import DEADLINE_S, SHOWN, TUTORIAL, run_tutorial, tutorial
from tests.test_docs import commands

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # each trains several times; Keras fetches TensorFlow


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


@pytest.mark.long
def test_keras_learns_the_fares_alone_and_with_workers(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Four processes import TensorFlow; with bytecode, which is within `home`, all but the first take a third less.
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)

    project = run_tutorial("keras", tmp_path)

    (python,) = home.root.glob("environments/*/bin/python")
    words = [str(python), "-c", LOOK_AT_KERAS, "output/saved_model", "jobs/fares_1/saved_model"]
    looked = run(words, cwd=project, deadline_s=DEADLINE_S)
    assert looked.code == 0, looked.out + looked.err  # the project's own tests passed
    learnt = [json.loads(line.removeprefix("learnt ")) for line in looked.out.splitlines() if line.startswith("learnt")]
    assert learnt == [pytest.approx({"kilometre": 1.6, "night": 2.0}, abs=0.2)] * 2


# One process for all that needs TensorFlow, which takes seconds to import.
LOOK_AT_KERAS = """
import json, sys
import pytest
import tensorflow as tf

ride = {"pickup_longitude": -73.98, "pickup_latitude": 40.75, "dropoff_longitude": -73.98, "dropoff_latitude": 40.75}
near = {name: tf.constant([value]) for name, value in ride.items()} | {"hour": tf.constant([12])}
far = near | {"dropoff_latitude": tf.constant([40.80])}  # 5.56 km
for folder in sys.argv[1:]:
    model = tf.saved_model.load(folder)
    base, distant, late = (float(model.serve(each)[0]) for each in (near, far, far | {"hour": tf.constant([23])}))
    print("learnt", json.dumps({"kilometre": (distant - base) / 5.56, "night": late - distant}))
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests"]))
"""


@pytest.mark.parametrize("template", [each.name for each in available() if tutorial(each.name).exists()])
def test_a_readme_tells_what_the_tutorial_runs(template: str, tmp_path: Path) -> None:
    """Its commands are run, then: all but those that serve until Ctrl-C, the registry's, which sklearn's runs, and
    Keras with workers in the foreground, who train as a job."""
    ran = [_without_variables(command) for command, _ in commands(tutorial(template), TUTORIAL)]
    name = next(command.split()[2] for command in ran if command.startswith("stoker init "))
    project = lay_down(template, name=name, directory=tmp_path / name)
    elsewhere = (
        "stoker serve ",
        "curl ",
        "make run_distributed",
        *(("stoker models ", "stoker versions ") if template != "sklearn" else ()),
    )

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
