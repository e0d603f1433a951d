"""A search that is killed, one whose slots are changed, and one that reports by TensorBoard's event files alone."""

import json
import textwrap
from pathlib import Path

import pytest

from stoker.client.client import Client
from stoker.host.home import Home
from stoker.pytorch.tensorboard import EventFile
from stoker.schema.state import JobState, RunState, StopReason
from tests.e2e.command import Result, stoker, write_package
from tests.processes import processes_with_environment, wait_until

pytestmark = pytest.mark.slow

# Deaf to SIGTERM: without a kill it would have ten minutes.
DEAF = """
    import argparse, signal, time
    parser = argparse.ArgumentParser()
    parser.add_argument("--x", type=float)
    parser.parse_known_args()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf", flush=True)
    while True:
        time.sleep(1)
"""
# Code that knows nothing of searches but its flags: it leaves an event file where AI Platform looks for one.
WRITES = """
    import argparse, os, shutil
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float)
    parser.add_argument("--files")
    parser.add_argument("--job-dir")
    args = parser.parse_args()
    os.makedirs(os.environ["AIP_TENSORBOARD_LOG_DIR"])
    name = f"events.out.tfevents.{args.rate:g}"
    shutil.copyfile(os.path.join(args.files, name), os.path.join(os.environ["AIP_TENSORBOARD_LOG_DIR"], name))
"""


@pytest.fixture
def project(tmp_path: Path, home: Home) -> Path:
    return write_package(tmp_path / "project", deaf=textwrap.dedent(DEAF), writes=textwrap.dedent(WRITES))


def done(*words: str, cwd: Path | None = None) -> Result:
    result = stoker(*words, cwd=cwd)
    assert result.code == 0, result.err
    return result


def test_killed_search_ends_at_once_with_all_its_processes(client: Client, project: Path, home: Home) -> None:
    space = {"x": {"type": "double", "min": 0, "max": 1}}
    search = {"sampler": "random", "space": space, "max_trials": 8, "max_slots": 1}
    document = {"name": "deaf", "module": "trainer.deaf", "search": search, "limits": {"grace_s": 600}}
    (project / "deaf.yaml").write_text(json.dumps(document))
    name = done("experiment", "create", "deaf.yaml", ".", cwd=project).out.split()[-1]
    wait_until(lambda: len(client.logs(name, text="deaf").blocks) == 1, what="the first trial")
    assert len(client.trials(name).trials) == 1

    done("experiment", "set", "max-slots", name, "2")
    wait_until(lambda: len(client.logs(name, text="deaf").blocks) == 2, what="the second trial")
    done("experiment", "cancel", name)
    killed = done("experiment", "kill", name)

    assert killed.out.startswith(name)
    job = client.wait(name, timeout_s=60)
    assert job.state is JobState.CANCELLED
    ended = [(run.state, run.stop, run.message) for trial in job.trials for run in trial.runs]
    assert ended == [(RunState.STOPPED, StopReason.CANCEL, "It was killed.")] * 2
    runs = str(home.root / "runs" / name)
    wait_until(lambda: not processes_with_environment("STOKER_RUN_DIR", runs, prefix=True), what="all to be gone")


def test_metric_is_found_in_event_files(client: Client, project: Path, tmp_path: Path) -> None:
    for rate in (0.1, 0.5):
        folder = tmp_path / "files" / f"{rate:g}"
        file = EventFile(folder)
        for step in (1, 2, 3):
            file.add(step, {"accuracy": rate * step, "loss": 1.0})
        file.close()
        next(folder.iterdir()).rename(tmp_path / "files" / f"events.out.tfevents.{rate:g}")
    rates = {"parameterName": "rate", "type": "DISCRETE", "discreteValues": [0.1, 0.5]}
    tuned = {"goal": "MAXIMIZE", "hyperparameterMetricTag": "accuracy", "maxTrials": 2, "algorithm": "GRID_SEARCH"}
    config = {"trainingInput": {"hyperparameters": {**tuned, "params": [rates]}}}
    (project / "hptuning.yaml").write_text(json.dumps(config))
    flags = ["--config", "hptuning.yaml", "--module-name", "trainer.writes", "--package-path", "trainer"]
    words = ["--job-dir", str(tmp_path / "out"), "--", "--files", str(tmp_path / "files")]

    done("jobs", "submit", "training", "by_files", *flags, *words, cwd=project)

    job = client.wait("by_files", timeout_s=90)
    assert job.state is JobState.SUCCEEDED, job.reason
    assert job.search is not None
    assert (job.search.best, job.search.outcomes) == (pytest.approx(1.5), {"completed": 2})
    assert {(point.group, point.step) for point in client.metrics("by_files")} == {
        ("tensorboard", step) for step in (1, 2, 3)
    }
    best = client.trials("by_files", sort="best", limit=1).trials[0]
    assert best.hparams["rate"] == 0.5
