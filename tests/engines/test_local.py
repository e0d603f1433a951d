"""The local engine: the contract, and what is its own."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.engines import local, nursery, traces
from stoker.engines.base import Engine, Liveness
from stoker.engines.local import LocalEngine, local_capacity
from stoker.host.home import Home
from stoker.schema.launch import Launch
from tests.contracts.engine import SLEEP, EngineContract, kill
from tests.fakes import FakeServer
from tests.processes import wait_until

TALK = """
    import os, time
    for number in range(1_000_000):
        print(number, flush=True)
        time.sleep(0.001)
"""


# A fork kills its nursery, and goes on when the engine has had time to look for it and start another supervisor.
KILL_THE_NURSERY = """
import os, signal, time
from pathlib import Path
from stoker.supervisor.warm import zygote
set_words = zygote.Title.set_words
def late(title, words):
    os.kill(os.getppid(), signal.SIGKILL)
    spool = Path(words[4]) / "spool.jsonl"
    while not spool.exists():
        time.sleep(0.01)
    set_words(title, words)
    Path(os.environ["STOKER_HOME"], "orphan").touch()
zygote.Title.set_words = late
"""


@pytest.mark.slow
class TestLocalEngine(EngineContract):
    @pytest.fixture
    def another(self, home: Home) -> Callable[[], Engine]:
        return lambda: LocalEngine(home)

    @pytest.fixture
    def local(self, home: Home, server: FakeServer) -> LocalEngine:
        return LocalEngine(home)

    def kill_supervisor(self, home: Home, launch: Launch) -> None:
        noted = json.loads(self.run_dir(home, launch).processes.read_text())
        kill(noted["supervisor"]["pid"])

    def test_supervisor_is_detached_from_the_server(
        self, local: LocalEngine, launch: Callable[..., Launch], home: Home
    ) -> None:
        run = launch(SLEEP)
        handle = local.submit(run)
        pid = json.loads(handle)["pid"]
        self.wait_started(home, run)

        session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3]
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")

        assert session == str(pid)
        assert words[1:5] == ["-P", "-m", "stoker.supervisor", str(self.run_dir(home, run))]
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
        assert os.readlink(f"/proc/{pid}/fd/2") == str(self.run_dir(home, run).supervisor_log)
        local.cancel(handle)

    def test_run_json_is_the_launch(self, local: LocalEngine, launch: Callable[..., Launch], home: Home) -> None:
        run = launch("", hparams={"lr": 0.1})
        self.wait_gone(local, local.submit(run))

        written = self.run_dir(home, run).launch.read_text()

        assert Launch.from_json(json.loads(written)) == run

    def test_ended_supervisors_do_not_stay_as_zombies(self, local: LocalEngine, launch: Callable[..., Launch]) -> None:
        handle = local.submit(launch(""))
        entry = Path(f"/proc/{json.loads(handle)['pid']}")

        def has_left() -> bool:
            local.poll([handle])
            return not entry.exists()

        wait_until(has_left, what="the process table to be rid of it")

    def test_run_whose_handle_was_lost_is_found(
        self, local: LocalEngine, launch: Callable[..., Launch], home: Home
    ) -> None:
        lasting, ended, never = launch(SLEEP), launch(""), launch("")
        handles = [local.submit(lasting), local.submit(ended)]
        assert local.find(lasting) == handles[0], "also in its first moments"
        self.wait_started(home, lasting)
        self.wait_gone(local, handles[1])

        later = LocalEngine(home)

        assert [later.find(lasting), later.find(ended)] == handles
        assert later.find(never) is None
        later.cancel(handles[0])

    def test_second_supervisor_of_a_run_leaves_the_first_alone(
        self, local: LocalEngine, launch: Callable[..., Launch], home: Home, server: FakeServer
    ) -> None:
        run = launch(SLEEP)
        first = local.submit(run)
        self.wait_started(home, run)

        second = local.submit(run)

        self.wait_gone(local, second)
        assert local.poll([first])[first] is Liveness.ALIVE
        assert len(self.processes(home, run)) == 1
        local.cancel(first)

    def test_drain_ships_the_last_words_of_a_killed_supervisor(
        self, local: LocalEngine, launch: Callable[..., Launch], home: Home, server: FakeServer
    ) -> None:
        run = launch(TALK)
        handle = local.submit(run)
        wait_until(lambda: len(server.lines(run.run, "chief-0")) > 10, what="some talk")
        self.kill_supervisor(home, run)
        local.cancel(handle)

        drain = local.drain(handle)

        assert drain is not None
        self.wait_gone(local, drain)
        written = self.run_dir(home, run).output("chief-0", "stdout").read_text().splitlines()
        assert server.lines(run.run, "chief-0") == written

    def test_there_is_nothing_to_drain_of_a_run_that_never_was(self, local: LocalEngine, home: Home) -> None:
        handle = json.dumps({"run_dir": str(home.root / "nowhere"), "pid": 1, "start": 1})

        assert local.drain(handle) is None
        assert local.drain("nonsense") is None

    def test_diagnosis_has_the_supervisors_last_words(
        self, local: LocalEngine, launch: Callable[..., Launch], home: Home
    ) -> None:
        run = launch(SLEEP)
        handle = local.submit(run)
        self.wait_started(home, run)
        with self.run_dir(home, run).supervisor_log.open("a") as log:
            log.write("MemoryError: in the supervisor\n")
        self.kill_supervisor(home, run)
        self.wait_gone(local, handle)

        assert "MemoryError: in the supervisor" in local.diagnose(handle)
        local.cancel(handle)

    def test_run_of_a_server_inside_a_run_is_not_part_of_that_run(
        self, local: LocalEngine, launch: Callable[..., Launch], home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("STOKER_RUN_DIR", "/outer/run")
        monkeypatch.setenv("STOKER_REPLICA", "worker-7")
        run = launch(SLEEP)
        handle = local.submit(run)
        self.wait_started(home, run)

        variables = Path(f"/proc/{json.loads(handle)['pid']}/environ").read_bytes().split(b"\0")

        assert not [name for name in variables if name.startswith((b"STOKER_RUN_DIR", b"STOKER_REPLICA"))]
        local.cancel(handle)


@pytest.mark.slow
class TestNursery(TestLocalEngine):
    """The same, with supervisors that are forked."""

    @pytest.fixture
    def another(self, home: Home) -> Callable[[], Engine]:
        return lambda: forking(home)

    @pytest.fixture
    def local(self, home: Home, server: FakeServer) -> LocalEngine:
        return forking(home)

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
    def test_killed_or_stuck_nursery_harms_no_run(
        self,
        local: LocalEngine,
        launch: Callable[..., Launch],
        home: Home,
        server: FakeServer,
        number: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(nursery, "_ANSWER_S", 0.1)
        lasting, next_one = launch(SLEEP), launch("print('hello')")
        local._nursery.end()
        begin_nursery(local)
        handle = local.submit(lasting)
        self.wait_started(home, lasting)

        os.kill(local._nursery._pid, number)
        self.wait_gone(local, local.submit(next_one))

        assert local.poll([handle])[handle] is Liveness.ALIVE
        assert server.lines(next_one.run, "chief-0") == ["hello"]
        local.cancel(handle)

    def test_fork_that_cannot_be_found_when_its_nursery_is_killed_leaves_the_run_to_another(
        self,
        local: LocalEngine,
        launch: Callable[..., Launch],
        home: Home,
        server: FakeServer,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """It has been forked, and has no command line of its own yet, by which the engine looks for it."""
        (tmp_path / "sitecustomize.py").write_text(KILL_THE_NURSERY)
        run = launch("print('hello')")
        local._nursery.end()
        with monkeypatch.context() as patch:
            patch.setenv("PYTHONPATH", str(tmp_path))
            begin_nursery(local)

        self.wait_gone(local, local.submit(run))

        wait_until((home.root / "orphan").exists, what="the fork to go on")
        wait_until(lambda: not traces.living(self.run_dir(home, run)), what="both to have ended")
        assert server.lines(run.run, "chief-0") == ["hello"]
        assert self.run_dir(home, run).supervisor_log.read_text() == ""

    def test_nursery_goes_with_its_engine_and_runs_stay(
        self, local: LocalEngine, launch: Callable[..., Launch], home: Home
    ) -> None:
        run = launch(SLEEP)
        handle = local.submit(run)
        self.wait_started(home, run)
        pid = local._nursery._pid

        local._nursery._socket.close()  # as when the server is killed

        wait_until(lambda: os.waitpid(pid, os.WNOHANG)[0], what="the nursery to leave")
        later = LocalEngine(home)
        assert later.find(run) == handle
        assert later.poll([handle])[handle] is Liveness.ALIVE
        later.cancel(handle)
        local._nursery._socket = None

    def test_forked_supervisor_has_the_environment_of_its_own_submission(
        self, local: LocalEngine, launch: Callable[..., Launch], home: Home, server: FakeServer, tmp_path: Path
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OF_THIS_RUN", "yes")
            patch.chdir(tmp_path)
            run = launch("import os; print(os.environ['OF_THIS_RUN'], os.environ['STOKER_HOME'])")
            self.wait_gone(local, local.submit(run))
        other = launch("import os; print(os.environ.get('OF_THIS_RUN'))")
        self.wait_gone(local, local.submit(other))

        assert server.lines(run.run, "chief-0") == [f"yes {home.root}"]
        assert server.lines(other.run, "chief-0") == ["None"]


def forking(home: Home) -> LocalEngine:
    engine = LocalEngine(home)
    begin_nursery(engine)
    return engine


def begin_nursery(engine: LocalEngine) -> None:
    variables = {**os.environ, "STOKER_HOME": os.environ["STOKER_HOME"]}
    engine._nursery.start({name: text for name, text in variables.items() if name != "STOKER_RUN_DIR"})
    wait_until(engine._nursery._has_begun, what="the nursery to be ready")


# --- what this machine has


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(local, "_CGROUP", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def test_capacity_is_what_the_process_may_use(cgroup: Path) -> None:
    found = local_capacity()

    assert found.cpus == len(os.sched_getaffinity(0))
    assert found.memory_gb > 0


@pytest.mark.parametrize(("quota", "cpus"), [("100000 100000", 1), ("50000 100000", 1), ("max 100000", None)])
def test_cpu_quota_of_a_container_counts(cgroup: Path, quota: str, cpus: int | None) -> None:
    (cgroup / "cpu.max").write_text(quota + "\n")

    assert local_capacity().cpus == (cpus or len(os.sched_getaffinity(0)))


def test_older_cgroups_quota_counts(cgroup: Path) -> None:
    (cgroup / "cpu").mkdir()
    (cgroup / "cpu" / "cpu.cfs_quota_us").write_text("100000\n")
    (cgroup / "cpu" / "cpu.cfs_period_us").write_text("100000\n")

    assert local_capacity().cpus == 1


@pytest.mark.parametrize(("limit", "memory_gb"), [("500000000", 0.5), ("max", None)])
def test_memory_limit_of_a_container_counts(cgroup: Path, limit: str, memory_gb: float | None) -> None:
    whole = local_capacity().memory_gb
    (cgroup / "memory.max").write_text(limit + "\n")

    assert local_capacity().memory_gb == (memory_gb or whole)


@pytest.mark.parametrize(("visible", "gpus"), [("", 0), ("0", 1), ("0,1,2", 3), ("-1", 0)])
def test_visible_gpus_count(cgroup: Path, monkeypatch: pytest.MonkeyPatch, visible: str, gpus: int) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert local_capacity().gpus == gpus


def test_gpus_are_counted_by_the_drivers_tool(cgroup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if Path("/proc/driver/nvidia/gpus").exists():
        pytest.skip("the driver's own list is there")
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\necho "GPU 0: NVIDIA H200 (UUID: GPU-1)"\necho "GPU 1: NVIDIA H200 (UUID: GPU-2)"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    assert local_capacity().gpus == 2
