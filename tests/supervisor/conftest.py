"""A home, a server's other side, and real supervisors of real user code."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stoker.host.home import Home
from stoker.run_dir import RunDir
from stoker.schema.launch import Launch, Replica, Role
from tests.fakes import FakeServer
from tests.processes import DEADLINE_S, kill_all_with_environment, wait_until

RUN = "taxi.1.1"


def replicas(workers: int = 0, ps: int = 0, evaluators: int = 0) -> tuple[Replica, ...]:
    """A chief and these."""
    found = [Replica(role=Role.CHIEF, index=0, rank=0)]
    found += [Replica(role=Role.WORKER, index=index, rank=index + 1) for index in range(workers)]
    found += [Replica(role=Role.PS, index=index, rank=None) for index in range(ps)]
    found += [Replica(role=Role.EVALUATOR, index=index, rank=None) for index in range(evaluators)]
    return tuple(found)


@dataclass
class Supervised:
    """A run under way."""

    launch: Launch
    run_dir: RunDir
    process: "subprocess.Popen[bytes]"
    server: FakeServer

    @property
    def run(self) -> str:
        return self.launch.run

    def wait(self) -> dict[str, Any]:
        """Until its supervisor has ended; how the run ended, as the server was told."""
        assert self.process.wait(DEADLINE_S) == 0, self.log
        return self.server.exit_of(self.run)

    def kill(self) -> None:
        """kill -9 of the supervisor."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE_S)

    def wait_for_file(self, name: str) -> Path:
        path = self.run_dir.path / name
        wait_until(path.exists, what=f"user code to make {name}")
        return path

    def lines(self, replica: str = "chief-0", stream: str = "stdout") -> list[str]:
        return self.server.lines(self.run, replica, stream)

    @property
    def log(self) -> str:
        return self.run_dir.supervisor_log.read_text()


@dataclass
class Lab:
    """Makes user code and supervises it."""

    home: Home
    server: FakeServer
    source: Path
    started: list[Supervised] = field(default_factory=list)

    def launch(self, code: str, **fields: Any) -> Launch:
        """A run of this code, in place."""
        self.source.mkdir(exist_ok=True)
        (self.source / "task.py").write_text(textwrap.dedent(code))
        values = {"run": RUN, "job": "taxi", "trial": 1, "trial_id": 7, "attempt": 1, "source": str(self.source)}
        values |= {"module": "task", "replicas": replicas(), "grace_s": 30.0}
        return Launch(**{**values, **fields})

    def start(self, launch: Launch, *flags: str) -> Supervised:
        """Its supervisor, as an engine starts it."""
        run_dir = self.home.run_dir(launch.job, launch.trial, launch.attempt)
        launch.write(run_dir)
        with run_dir.supervisor_log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "stoker.supervisor", str(run_dir), *flags],
                env={**os.environ, "STOKER_HOME": str(self.home.root)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started.append(Supervised(launch, run_dir, process, self.server))
        return self.started[-1]

    def run(self, code: str, **fields: Any) -> Supervised:
        """The same, and wait for its end."""
        supervised = self.start(self.launch(code, **fields))
        supervised.wait()
        return supervised


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    root = tmp_path / "home"
    monkeypatch.setenv("STOKER_HOME", str(root))
    for name in ("STOKER_SERVER", "STOKER_TOKEN", "STOKER_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    yield Home(root).make()
    kill_all_with_environment("STOKER_RUN_DIR", str(root), prefix=True)


@pytest.fixture
def server(home: Home) -> Iterator[FakeServer]:
    fake = FakeServer(home)
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def lab(home: Home, server: FakeServer, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(home, server, tmp_path / "source")
    yield lab
    for supervised in lab.started:
        supervised.kill()
