"""Searches with real trials: pruned ones really stop, packages of AI Platform and Determined run as they are, and a
server that is killed again and again loses and doubles nothing."""

import json
import random
import shutil
import textwrap
from pathlib import Path

import pytest

from stoker.client.client import Client, connect
from stoker.host.home import Home
from stoker.schema.record import Job
from stoker.schema.search import SearchSpec
from stoker.schema.state import JobState, RunState, StopReason
from stoker.search.searcher import build_searcher
from stoker.server.store.store import open_store
from tests.e2e.command import stoker, write_package
from tests.e2e.conftest import kill_server
from tests.fixtures.datasets import write_rides
from tests.processes import wait_until
from tests.server.searching import check_history

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent.parent

# Flags as AI Platform gave them; each step waits for its report to be heard, so that a stop can come at any of them.
STEPS = """
    import argparse, time
    import stoker

    parser = argparse.ArgumentParser()
    parser.add_argument("--x", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--pause_s", type=float)
    parser.add_argument("--job-dir")
    args = parser.parse_args()
    with stoker.init() as ctx:
        assert ctx.hparams["x"] == args.x
        if args.x > 0.95:
            raise stoker.InvalidHP("too large")
        for step in range(1, args.steps + 1):
            ctx.report(step, loss=(args.x - 0.3) ** 2 + 0.001 / step)
            print(step, flush=True)
            time.sleep(args.pause_s)
            if ctx.should_stop():
                print("stopped:", ctx.stop_reason, flush=True)
                break
"""


@pytest.fixture
def project(tmp_path: Path, home: Home) -> Path:
    return write_package(tmp_path / "project", steps=textwrap.dedent(STEPS))


def create(project: Path, *, steps: int, pause_s: float, **search: object) -> str:
    """The name of the job."""
    space = {"x": {"type": "double", "min": 0, "max": 1}, "steps": steps, "pause_s": pause_s}
    whole = {"sampler": "random", "metric": "loss", "space": space, **search}
    document = {"name": "steps", "module": "trainer.steps", "search": whole, "limits": {"grace_s": 20}}
    (project / "steps.yaml").write_text(json.dumps(document))
    done = stoker("experiment", "create", "steps.yaml", ".", cwd=project)
    assert done.code == 0, done.err
    return done.out.split()[-1]


def test_asha_stops_trials_early_for_real(client: Client, project: Path) -> None:
    stopping = {"name": "asha", "max_time": 64, "divisor": 4}
    name = create(project, steps=64, pause_s=0.05, stopping=stopping, max_trials=9, seed=2)

    job = client.wait(name, timeout_s=120)

    assert job.state is JobState.SUCCEEDED, job.reason
    pruned = [trial for trial in job.trials if trial.stopped.startswith("pruned")]
    assert len(pruned) >= 3
    for trial in pruned:
        (run,) = trial.runs
        assert (run.state, run.stop) == (RunState.STOPPED, StopReason.PRUNE)
        said = [block.text for block in client.logs(name, text="stopped:").blocks if block.run == run.id]
        assert said == ["stopped: prune"]
        assert max(p.step for p in client.metrics(name) if p.run == run.id) < 64
    status = client.search(name)
    assert status.best[0].number not in {trial.number for trial in pruned}
    assert status.curve[-1][1] == status.best[0].objective
    assert client.trials(name, sort="best", limit=1).trials[0].number == status.best[0].number


def test_hptuning_config_drives_an_unmodified_package_that_reports_by_hypertune(client: Client, tmp_path: Path) -> None:
    project = shutil.copytree(TESTS / "fixtures" / "tabular_torch", tmp_path / "tabular")
    (project / "hptuning.yaml").write_text(
        textwrap.dedent(
            """
            trainingInput:
              hyperparameters:
                goal: MINIMIZE
                hyperparameterMetricTag: test_loss
                maxTrials: 2
                maxParallelTrials: 2
                enableTrialEarlyStopping: true
                params:
                - {parameterName: learning-rate, type: DOUBLE, minValue: 1e-4, maxValue: 1, scaleType: UNIT_LOG_SCALE}
                - {parameterName: batch-size, type: DISCRETE, discreteValues: [50, 100]}
            """
        )
    )
    files = [str(write_rides(tmp_path / "train.csv")), str(write_rides(tmp_path / "eval.csv", seed=1))]
    flags = ["--config", "hptuning.yaml", "--module-name", "trainer.task", "--package-path", "trainer"]
    more = ["--region", "local", "--job-dir", str(tmp_path / "out")]
    words = ["--train-files", files[0], "--eval-files", files[1], "--num-epochs", "2"]

    done = stoker("jobs", "submit", "training", "tabular_search", *flags, *more, "--", *words, cwd=project)

    assert done.code == 0, done.err
    job = client.wait("tabular_search", timeout_s=200)
    assert job.state is JobState.SUCCEEDED, job.reason
    assert [trial.number for trial in job.trials] == [1, 2]
    assert all(trial.objective is not None and trial.hparams["batch-size"] in (50, 100) for trial in job.trials)
    assert [(tmp_path / "out" / str(number) / "model.pth").exists() for number in (1, 2)] == [True] * 2
    assert {point.group for point in client.metrics("tabular_search")} == {"hypertune"}


def test_grid_of_the_seed_runs_with_a_learning_rate_added(client: Client, tmp_path: Path) -> None:
    shutil.copy(TESTS / "pytorch" / "seed_scripts" / "train.py", tmp_path / "train.py")
    (tmp_path / "grid.yaml").write_text(
        textwrap.dedent(
            """
            # grid.yaml
            entrypoint_script: python3 train.py
            hyperparameters:
                learning_rate: 0.1
                global_batch_size:
                    type: categorical
                    vals: [16, 32, 64]
            searcher:
                name: "grid"
                max_length:
                    epochs: 20
            """
        )
    )

    done = stoker("experiment", "create", "grid.yaml", ".", cwd=tmp_path)

    assert done.code == 0, done.err
    (line,) = client.jobs()
    job = client.wait(line.id, timeout_s=200)
    assert job.state is JobState.SUCCEEDED, job.reason
    assert sorted(trial.hparams["global_batch_size"] for trial in job.trials) == [16, 32, 64]
    for trial in job.trials:
        assert trial.latest_checkpoint is not None
        epochs = [p for p in client.metrics(job.id) if p.trial == trial.number and p.group == "validation"]
        assert len(epochs) == 20


@pytest.mark.parametrize(("at_once", "trials", "kills"), [(2, 30, 5), pytest.param(1, 8, 3, marks=pytest.mark.long)])
def test_search_survives_a_server_that_is_killed_again_and_again(
    home: Home, project: Path, at_once: int, trials: int, kills: int
) -> None:
    stopping = {"name": "asha", "max_time": 16, "divisor": 4}
    limits = {"max_trials": trials, "max_concurrent_trials": at_once}
    name = create(project, steps=16, pause_s=0.01, stopping=stopping, seed=5, **limits)
    dice = random.Random(at_once)

    for number in range(1, kills + 1):
        with connect(home) as client:
            goal = number * trials // (kills + 2)
            wait_until(lambda at=goal, c=client: made(c, name) >= at or c.job(name).state.is_final, what="trials")
        if dice.random() < 0.5:
            wait_until(lambda: any(home.run_dir(name, 1, 1).path.parents[1].iterdir()), what="a run")
        kill_server(home)
    with connect(home) as client:
        job = client.wait(name, timeout_s=200)
        found = client.trials(name, limit=1000).trials

    assert job.state is JobState.SUCCEEDED, job.reason
    kill_server(home)
    store = open_store(home.database)
    try:
        check_history(store, name)
    finally:
        store.close()
    valid = [trial for trial in found if trial.outcome != "invalid_hp"]
    assert len(valid) == trials
    assert {trial.outcome for trial in valid} <= {"completed", "stopped"}
    if at_once == 1:
        assert [trial.hparams for trial in found] == undisturbed(job, len(found))


def made(client: Client, name: str) -> int:
    return client.trials(name, limit=1).total


def undisturbed(job: Job, count: int) -> list[dict[str, object]]:
    """The hyperparameters that a search of its own, asked so often, makes."""
    assert job.spec.search is not None
    free = SearchSpec.model_validate(
        {**job.spec.search.model_dump(), "max_concurrent_trials": 0, "stopping": "none", "max_trials": count}
    )
    searcher = build_searcher(free)
    suggestions = [searcher.ask() for _ in range(count)]
    return [suggestion.hparams for suggestion in suggestions if suggestion is not None]
