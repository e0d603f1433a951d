"""The contract of every engine, as tests: subclass it, give it an engine, and it must pass.

An engine is given whole runs of real user code, and is asked about them by other instances of itself, as a server
that was restarted would.
"""

import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.engines.base import Engine, Liveness
from stoker.errors import StokerError
from stoker.host.home import Home
from stoker.run_dir import RunDir
from stoker.schema.launch import Launch, Replica, Role
from tests.fakes import FakeServer
from tests.processes import kill_all_with_environment, processes_with_environment, wait_until

SLEEP = """
    import os, time
    open(os.path.join(os.environ["STOKER_RUN_DIR"], "started-" + os.environ["STOKER_REPLICA"]), "w")
    time.sleep(600)
"""
# Children of all kinds: in its group, in sessions of their own, and all deaf to SIGTERM.
FAMILY = """
    import os, signal, subprocess, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if len(sys.argv) == 1:
        for session in (True, False):
            subprocess.Popen([sys.executable, __file__, str(session)], start_new_session=session)
    name = "-".join(["started", os.environ["STOKER_REPLICA"], *sys.argv[1:]])
    open(os.path.join(os.environ["STOKER_RUN_DIR"], name), "w")
    time.sleep(600)
"""


class EngineContract:
    """Override `engine`, and the rest where an engine keeps run directories elsewhere."""

    @pytest.fixture
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
        root = tmp_path / "home"
        monkeypatch.setenv("STOKER_HOME", str(root))
        monkeypatch.delenv("STOKER_SERVER", raising=False)
        yield Home(root).make()
        kill_all_with_environment("STOKER_HOME", str(root))
        kill_all_with_environment("STOKER_RUN_DIR", str(root), prefix=True)

    @pytest.fixture
    def server(self, home: Home) -> Iterator[FakeServer]:
        fake = FakeServer(home)
        fake.start()
        yield fake
        fake.stop()

    @pytest.fixture
    def another(self, home: Home) -> Callable[[], Engine]:
        """Makes the engine anew, as a server that was restarted does."""
        raise NotImplementedError("an engine's own test says how it is made")

    @pytest.fixture
    def engine(self, another: Callable[[], Engine], server: FakeServer) -> Engine:
        return another()

    @pytest.fixture
    def launch(self, tmp_path: Path) -> Callable[..., Launch]:
        """A run of this code; each has a job of its own."""
        made: list[Launch] = []

        def make(code: str, **fields: Any) -> Launch:
            job = f"job_{len(made)}"
            source = tmp_path / "sources" / job
            source.mkdir(parents=True)
            (source / "task.py").write_text(textwrap.dedent(code))
            chief = Replica(role=Role.CHIEF, index=0, rank=0)
            values = {"run": f"{job}.1.1", "job": job, "trial": 1, "trial_id": 1, "attempt": 1, "source": str(source)}
            made.append(Launch(**{**values, "module": "task", "replicas": (chief,), **fields}))
            return made[-1]

        return make

    def run_dir(self, home: Home, launch: Launch) -> RunDir:
        return home.run_dir(launch.job, launch.trial, launch.attempt)

    def wait_started(self, home: Home, launch: Launch, *names: str) -> None:
        for name in names or ("chief-0",):
            wait_until((self.run_dir(home, launch).path / f"started-{name}").exists, what=f"{name} to start")

    def wait_gone(self, engine: Engine, handle: str) -> None:
        wait_until(lambda: engine.poll([handle])[handle] is Liveness.GONE, what="the run to be gone")

    def processes(self, home: Home, launch: Launch) -> list[int]:
        return processes_with_environment("STOKER_RUN_DIR", str(self.run_dir(home, launch)))

    def test_run_is_alive_until_it_has_ended_and_said_so(
        self, engine: Engine, launch: Callable[..., Launch], server: FakeServer
    ) -> None:
        run = launch("print('hello')")

        handle = engine.submit(run)
        self.wait_gone(engine, handle)

        assert server.exit_of(run.run)["code"] == 0
        assert server.lines(run.run, "chief-0") == ["hello"]

    def test_handle_is_a_short_string_that_another_server_can_use(
        self, engine: Engine, another: Callable[[], Engine], launch: Callable[..., Launch], home: Home
    ) -> None:
        run = launch(SLEEP)
        handle = engine.submit(run)
        self.wait_started(home, run)

        later = another()

        assert isinstance(handle, str)
        assert len(handle) < 1000
        assert later.poll([handle]) == {handle: Liveness.ALIVE}
        later.cancel(handle)
        assert later.poll([handle]) == {handle: Liveness.GONE}
        assert self.processes(home, run) == []

    def test_poll_answers_for_each_handle(self, engine: Engine, launch: Callable[..., Launch], home: Home) -> None:
        lasting, short = launch(SLEEP), launch("")
        handles = [engine.submit(lasting), engine.submit(short)]
        self.wait_started(home, lasting)
        self.wait_gone(engine, handles[1])

        found = engine.poll(handles)

        assert found == {handles[0]: Liveness.ALIVE, handles[1]: Liveness.GONE}
        assert engine.poll([]) == {}
        engine.cancel(handles[0])

    @pytest.mark.parametrize("handle", ["", "nonsense", "{}", '{"run_dir": 3}', "[1]", "null"])
    def test_unknown_handle_is_gone_and_harmless(self, engine: Engine, handle: str) -> None:
        assert engine.poll([handle]) == {handle: Liveness.GONE}
        engine.cancel(handle)
        assert engine.diagnose(handle) == ""

    def test_cancel_ends_everything_the_run_started(
        self, engine: Engine, launch: Callable[..., Launch], home: Home
    ) -> None:
        worker = Replica(role=Role.WORKER, index=0, rank=1)
        run = launch(FAMILY, replicas=(Replica(role=Role.CHIEF, index=0, rank=0), worker))
        handle = engine.submit(run)
        names = [f"{name}{child}" for name in ("chief-0", "worker-0") for child in ("", "-True", "-False")]
        self.wait_started(home, run, *names)
        assert len(self.processes(home, run)) == 6

        engine.cancel(handle)

        assert self.processes(home, run) == []
        assert engine.poll([handle]) == {handle: Liveness.GONE}
        engine.cancel(handle)

    def test_cancel_at_any_moment_leaves_nothing(
        self, engine: Engine, launch: Callable[..., Launch], home: Home
    ) -> None:
        runs = [launch(SLEEP) for _ in range(5)]

        for run in runs:  # at once, so in the midst of starting
            engine.cancel(engine.submit(run))

        assert [self.processes(home, run) for run in runs] == [[]] * 5

    def test_cancel_leaves_other_runs_alone(self, engine: Engine, launch: Callable[..., Launch], home: Home) -> None:
        first, second = launch(SLEEP), launch(SLEEP)
        handles = [engine.submit(first), engine.submit(second)]
        self.wait_started(home, first)
        self.wait_started(home, second)

        engine.cancel(handles[0])

        assert engine.poll(handles) == {handles[0]: Liveness.GONE, handles[1]: Liveness.ALIVE}
        assert len(self.processes(home, second)) == 1
        engine.cancel(handles[1])

    def test_killed_supervisor_is_gone_and_something_is_known_of_it(
        self, engine: Engine, launch: Callable[..., Launch], home: Home
    ) -> None:
        run = launch(SLEEP)
        handle = engine.submit(run)
        self.wait_started(home, run)

        self.kill_supervisor(home, run)

        self.wait_gone(engine, handle)
        assert engine.diagnose(handle) != ""
        assert len(self.processes(home, run)) == 1, "user code lives on until it is cancelled"
        engine.cancel(handle)
        assert self.processes(home, run) == []

    def test_nothing_is_known_of_a_run_that_ended_in_order(self, engine: Engine, launch: Callable[..., Launch]) -> None:
        handle = engine.submit(launch(""))
        self.wait_gone(engine, handle)

        assert engine.diagnose(handle) == ""

    def test_run_that_cannot_be_started_raises(self, engine: Engine, launch: Callable[..., Launch], home: Home) -> None:
        run = launch(SLEEP)
        self.run_dir(home, run).path.parent.mkdir(parents=True)
        self.run_dir(home, run).path.write_text("a file is in the way")

        with pytest.raises(StokerError, match=run.run):
            engine.submit(run)

    def kill_supervisor(self, home: Home, launch: Launch) -> None:
        raise NotImplementedError("an engine's own test knows where it is")


def kill(pid: int) -> None:
    os.kill(pid, 9)
