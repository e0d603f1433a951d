"""`stoker.submit` against a real server: a job that succeeds, one that fails, one that is cancelled, and a search."""

from pathlib import Path

import pytest

import stoker
from stoker.errors import UsageError
from stoker.host.home import Home
from tests.e2e.conftest import home

__all__ = ["home"]  # a fixture, for the tests here

pytestmark = pytest.mark.slow

TRAIN = """
import sys, time
import stoker

run = stoker.init()
if "--fail" in sys.argv:
    sys.exit(3)
if "--wait" in sys.argv:
    print("waiting", flush=True)
    time.sleep(600)
lr = float(sys.argv[sys.argv.index("--lr") + 1]) if "--lr" in sys.argv else 1.0
for step in (1, 2):
    run.report(step, loss=lr / step)
print("done", sys.argv[1:])
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "fares" / "train.py"
    path.parent.mkdir()
    path.write_text(TRAIN)
    return path


def test_job_from_submission_to_metrics(home: Home, script: Path) -> None:
    job = stoker.submit(script, args=["--epochs", 3], wait=True)

    assert (job.id, job.state, job.reason) == ("train_1", "SUCCEEDED", "")
    assert "done ['--epochs', '3']" in list(job.logs())
    assert list(job.logs(follow=True)) == list(job.logs())
    assert [(point.step, point.values) for point in job.metrics()] == [(1, {"loss": 1.0}), (2, {"loss": 0.5})]
    best = job.best()
    assert best is not None
    assert best.metrics == {"loss": 0.5}
    assert "loss 0.5" in job._repr_html_()
    job.cancel()
    assert job.state == "SUCCEEDED"

    failed = stoker.submit(script, args=["--fail"], wait=True)

    assert (failed.id, failed.state) == ("train_2", "FAILED")
    assert "3" in failed.reason
    assert "FAILED" in repr(failed)


def test_job_is_cancelled(home: Home, script: Path) -> None:
    job = stoker.submit(script, args=["--wait"], limits={"grace_s": 1})
    assert next(line for line in job.logs(follow=True) if line == "waiting")

    job.cancel()

    assert job.wait(timeout_s=60) == "CANCELLED"


def test_search_has_a_best_trial(home: Home, script: Path) -> None:
    space = {"lr": {"type": "categorical", "values": [4.0, 2.0]}}
    search = {"sampler": {"name": "grid"}, "metric": "loss", "goal": "minimize", "space": space}

    job = stoker.submit(script.parent, module="train", search=search, wait=True)

    best = job.best()
    assert best is not None
    assert (job.state, best.hparams, best.objective) == ("SUCCEEDED", {"lr": 2.0}, 1.0)


def test_native_job_with_contradictory_requirements_is_refused(home: Home, script: Path) -> None:
    with pytest.raises(UsageError, match="scikit-learn"):
        stoker.submit(script, environment={"requirements": ["scikit-learn>=1.3,<1.2"]})
