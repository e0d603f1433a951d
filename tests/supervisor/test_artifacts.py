"""Checkpoints and models kept at a URL, and fetched from there, without a cluster."""

import json
from pathlib import Path

import pytest

from stoker.errors import StokerError
from stoker.home import Home
from stoker.supervisor.artifacts import Artifacts, fetch_checkpoint
from stoker.supervisor.plan import Plan, Replica


def a_plan(**fields: object) -> Plan:
    chief = Replica(role="chief", index=0, rank=0)
    values = {"run": "job.1.2", "job": "job", "trial": 1, "trial_id": 1, "attempt": 2, "replicas": (chief,), **fields}
    return Plan(**values)  # type: ignore[arg-type]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home").make()
    home.config.write_text(f'[storage.buckets]\n"gs://*" = "{tmp_path / "buckets"}"\n')
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text('{"run": "job.1.2", "latest_checkpoint": "gs://kept/job/1/1/step-3"}')
    return home


@pytest.mark.parametrize("is_folder", [True, False])
def test_what_was_kept_at_a_url_is_fetched_by_the_run_that_goes_on_from_it(
    home: Home, tmp_path: Path, is_folder: bool
) -> None:
    saved = tmp_path / "checkpoints" / "step-3"
    saved.parent.mkdir()
    if is_folder:
        (saved / "deep").mkdir(parents=True)
    (saved / "deep" / "state" if is_folder else saved).write_text("3")
    artifacts = Artifacts(a_plan(artifacts="gs://kept/runs/"), tmp_path / "run", home=home)

    event = artifacts.keep({"type": "checkpoint", "step": 3, "path": str(saved)})
    fetch_checkpoint(a_plan(latest_checkpoint=event["path"]), tmp_path / "run", home=home)

    assert event == {"type": "checkpoint", "step": 3, "path": "gs://kept/runs/job/1/2/checkpoints/step-3"}
    fetched = Path(json.loads((tmp_path / "run" / "run.json").read_text())["latest_checkpoint"])
    assert (fetched / "deep" / "state" if is_folder else fetched).read_text() == "3"
    assert fetched.is_relative_to(tmp_path / "run")


def test_checkpoint_that_cannot_be_kept_is_told_where_it_is(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifacts = Artifacts(a_plan(artifacts="gs://kept"), tmp_path / "run", home=home)
    event = {"type": "model", "name": "model", "path": str(tmp_path / "nowhere")}

    assert artifacts.keep(event) == event
    assert "nowhere could not be kept at gs://kept/job/1/2/models/nowhere" in capsys.readouterr().err


def test_checkpoint_on_a_disk_that_is_not_here_is_told(home: Home, tmp_path: Path) -> None:
    with pytest.raises(StokerError, match=r"is not on this machine\. .* artifacts = URL under the pool"):
        fetch_checkpoint(a_plan(latest_checkpoint="/lost/disk/step-3"), tmp_path / "run", home=home)

    fetch_checkpoint(a_plan(latest_checkpoint="4f0c-an-id"), tmp_path / "run", home=home)  # for user code to find
