"""Experiments as a user has them: create, watch, steer, take; real trials on a real server."""

import csv
import json
from pathlib import Path

import pytest

from stoker.client.client import Client
from stoker.host.home import Home
from stoker.schema.state import JobState
from tests.e2e.command import Result, stoker
from tests.processes import wait_until

pytestmark = pytest.mark.slow

TRAIN = """
import stoker

ctx = stoker.init()
rate = ctx.hparams["learning_rate"]
print("trial", ctx.trial, "learning_rate", rate, flush=True)
for step in range(1, 5):
    # The second step is the best one, so that the best checkpoint is not the newest.
    loss = round((rate - 0.3) ** 2, 6) + abs(step - 2)
    with open("weights", "w") as file:
        file.write(str(step))
    ctx.save_checkpoint("weights", step)
    ctx.report(step, group="validation", validation_loss=loss)
"""
SLEEP = """
import time
import stoker

ctx = stoker.init()
print("asleep", ctx.trial, flush=True)
while not ctx.should_stop():
    time.sleep(0.02)
"""
GRID = """
name: grid search
entrypoint: python train.py
max_restarts: 0
hyperparameters:
  global_batch_size: 64
  learning_rate: {type: double, minval: 0.1, maxval: 0.5, count: 3}
searcher: {name: grid, metric: validation_loss, max_concurrent_trials: 2}
"""
RANDOM = """
name: naps
command: [python, sleep.py]
search: {max_trials: 2, max_concurrent_trials: 2, space: {x: {type: double, min: 0, max: 1}}}
"""


@pytest.fixture
def project(tmp_path: Path, home: Home) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in {"train.py": TRAIN, "sleep.py": SLEEP, "grid.yaml": GRID, "naps.yaml": RANDOM}.items():
        (folder / name).write_text(text)
    return folder


def done(*words: str, cwd: Path | None = None) -> Result:
    result = stoker(*words, cwd=cwd)
    assert result.code == 0, result.err
    return result


def test_a_grid_of_determineds_is_created_watched_and_taken(project: Path, client: Client, tmp_path: Path) -> None:
    created = stoker("e", "create", "grid.yaml", ".", "--follow-first-trial", cwd=project)

    assert created.code == 0, created.err
    assert created.out.splitlines()[0] == "grid_search_1"
    assert "the job is called grid_search" in created.err
    assert "Trial 1 of [grid_search_1] SUCCEEDED." in created.err
    assert [line for line in created.lines if line.startswith("trial")] == ["trial 1 learning_rate 0.5"]
    assert stoker("experiment", "wait", "grid_search_1").code == 0

    listed = done("experiment", "list").out.splitlines()
    assert listed[1].split()[:6] == ["grid_search_1", "SUCCEEDED", "1", "grid", "3/3", "validation_loss=0"]

    described = done("experiment", "describe", "1").out
    assert "trials:         3 of at most 3: 3 completed" in described
    assert "Best trials by validation_loss:\nTRIAL  STATE      validation_loss  learning_rate\n2  " in described
    assert "Best validation_loss so far, by trial:" in described
    assert "Best trials by validation_loss:" in done("jobs", "describe", "grid_search_1").out

    best = json.loads(done("experiment", "best", "grid_search_1", "--json").out)
    assert (best["number"], best["hparams"]["learning_rate"]) == (2, pytest.approx(0.3))

    ordered = json.loads(done("experiment", "list-trials", "1", "--sort", "~validation_loss", "--json").out)
    assert sorted(trial["number"] for trial in ordered[:2]) == [1, 3]
    assert ordered[2]["number"] == 2

    assert [line for line in done("trial", "logs", "grid_search_1/3").lines if line.startswith("trial")] == [
        "trial 3 learning_rate 0.1"
    ]
    assert f"(id {best['id']})" in done("trial", "describe", str(best["id"])).out

    done("trial", "download", "grid_search_1/2", "-o", str(tmp_path / "newest"))
    done("trial", "download", "grid_search_1/2", "--best", "-o", str(tmp_path / "best"))
    assert [next((tmp_path / name).iterdir()).read_text() for name in ("newest", "best")] == ["4", "2"]

    done("experiment", "export", "grid_search_1", "-o", str(tmp_path / "trials.csv"))
    rows = list(csv.DictReader((tmp_path / "trials.csv").read_text().splitlines()))
    assert [float(row["hparams.learning_rate"]) for row in rows] == pytest.approx([0.5, 0.3, 0.1])
    assert rows[1]["validation_loss"] == "0.0"


def test_an_experiment_is_steered(project: Path, client: Client) -> None:
    done("experiment", "create", "naps.yaml", "--paused", cwd=project)
    wait_until(lambda: client.job("naps_1").state is JobState.PAUSED, what="the experiment to be paused")

    done("experiment", "activate", "naps_1")
    wait_until(lambda: client.search("naps_1").states.get("RUNNING") == 2, what="both trials to run")
    assert "2 running" in done("experiment", "describe", "naps_1").out
    assert stoker("experiment", "best", "naps_1").code == 1

    done("experiment", "pause", "naps_1")
    wait_until(lambda: client.job("naps_1").state is JobState.PAUSED, what="the experiment to be paused again")
    done("experiment", "set", "priority", "naps_1", "7")
    assert client.job("naps_1").priority == 7

    done("experiment", "activate", "1")
    wait_until(lambda: client.search("naps_1").states.get("RUNNING") == 2, what="both trials to run again")
    done("experiment", "kill", "naps_1")
    assert stoker("experiment", "wait", "naps_1").code == 1
    assert client.job("naps_1").state is JobState.CANCELLED


def test_a_fork_runs_the_same_code_with_other_words(project: Path, client: Client) -> None:
    done("experiment", "create", "grid.yaml", cwd=project)
    (project / "train.py").unlink()  # a fork takes its code from the server
    done("experiment", "wait", "grid_search_1")

    forked = done("experiment", "fork", "grid_search_1", "--config", "hyperparameters.learning_rate.count=2")

    assert forked.out == "grid_search_2\n"
    done("experiment", "wait", "grid_search_2")
    rates = [trial.hparams["learning_rate"] for trial in client.trials("grid_search_2").trials]
    assert sorted(rates) == pytest.approx([0.1, 0.5])
    refused = stoker("experiment", "fork", "grid_search_1", "--config", "searcher.name=gird")
    assert (refused.code, refused.out) == (2, "")


def test_a_single_trial_is_continued_from_its_checkpoint(project: Path, client: Client) -> None:
    config = ("--config", "searcher={name: single, metric: validation_loss}")
    rate = ("--config", "hyperparameters.learning_rate=0.2")
    done("experiment", "create", "grid.yaml", *config, *rate, cwd=project)
    done("experiment", "wait", "grid_search_1")

    done("experiment", "continue", "grid_search_1")

    done("experiment", "wait", "grid_search_2")
    old, new = (client.trials(name).trials[0] for name in ("grid_search_1", "grid_search_2"))
    launch = json.loads((Path(new.runs[0].directory) / "run.json").read_text())
    assert launch["latest_checkpoint"] == old.latest_checkpoint


def test_a_search_without_its_metric_says_what_was_reported(project: Path) -> None:
    done("experiment", "create", "grid.yaml", "--config", "searcher.metric=accuracy", cwd=project)

    waited = stoker("experiment", "wait", "grid_search_1")

    assert waited.code == 1
    assert "no trial reported 'accuracy'" in waited.err
    assert "they reported: validation_loss" in done("experiment", "describe", "grid_search_1").out


def test_the_older_dialect_needs_neither_name_nor_metric(project: Path, client: Client) -> None:
    (project / "old.yaml").write_text(
        "entrypoint_script: python3 train.py\n"
        "hyperparameters:\n"
        "    learning_rate: 0.1\n"
        "    global_batch_size: {type: categorical, vals: [16, 32, 64]}\n"
        'searcher: {name: "grid", max_length: {epochs: 20}}\n'
    )

    created = done("experiment", "create", "old.yaml", ".", cwd=project)

    assert created.out == "project_1\n"
    done("experiment", "wait", "project_1")
    sizes = [trial.hparams["global_batch_size"] for trial in client.trials("project_1").trials]
    assert sizes == [64, 32, 16]
    described = done("experiment", "describe", "project_1").out
    assert "search:         grid\ntrials:         3 of at most 3: 3 completed\n" in described
    assert "Best" not in described
    listed = done("experiment", "trials", "project_1").out.splitlines()
    assert listed[0].split() == ["TRIAL", "STATE", "global_batch_size"]
    assert "no trial is better" in stoker("experiment", "best", "project_1").err
