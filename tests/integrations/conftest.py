"""Each test is a run of its own, as a supervisor would start it; global state is put back afterwards."""

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name in ("STOKER_RUN_DIR", "WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    state = random.getstate()
    yield
    random.setstate(state)


@pytest.fixture
def start_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], "Run"]:
    """Begin the run, or begin it again: the next attempt has the newest checkpoint of the one before."""
    attempts: list[Run] = []

    def start() -> Run:
        checkpoints = attempts[-1].events("checkpoint") if attempts else []
        attempt = len(attempts) + 1
        folder = tmp_path / "runs" / "job" / "1" / str(attempt)
        folder.mkdir(parents=True)
        latest = checkpoints[-1]["path"] if checkpoints else None
        (folder / "run.json").write_text(json.dumps({"attempt": attempt, "latest_checkpoint": latest}))
        monkeypatch.setenv("STOKER_RUN_DIR", str(folder))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as in a new process
        attempts.append(Run(folder))
        return attempts[-1]

    return start


class Run:
    """A run directory, read as the supervisor reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def events(self, kind: str) -> list[dict[str, Any]]:
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["type"] == kind]

    def steps(self, group: str, metric: str) -> list[int]:
        """The steps at which a metric was reported."""
        found = self.events("metric")
        return [event["step"] for event in found if event["group"] == group and metric in event["values"]]

    def last(self, group: str, metric: str) -> float:
        found = [e["values"][metric] for e in self.events("metric") if e["group"] == group and metric in e["values"]]
        return float(found[-1])

    def checkpoints(self) -> list[int]:
        return [event["step"] for event in self.events("checkpoint")]


def tell_to_stop() -> None:
    """What a supervisor does to each process of a run."""
    os.kill(os.getpid(), signal.SIGTERM)
