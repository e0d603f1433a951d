"""When a supervisor leaves: nobody can read what it writes any more, or it is told to and has nothing left to stop."""

import shutil
import signal
import time
from collections.abc import Callable
from typing import IO

import pytest

from stoker.host.processes import descendants
from stoker.schema.launch import EnvironmentSpec
from stoker.supervisor.__main__ import _LOOK_S
from tests.processes import DEADLINE_S, processes_with_environment, wait_until
from tests.supervisor.conftest import RUN, Lab, Supervised

pytestmark = pytest.mark.slow

STUBBORN = """
    import pathlib, os, signal, subprocess, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    pathlib.Path(os.environ["STOKER_RUN_DIR"], "started").touch()
    time.sleep(1000)
"""


def has_ended(run: Supervised) -> bool:
    path = run.run_dir.spool
    return path.exists() and '"type":"exited"' in path.read_text()


def remove(run: Supervised) -> None:
    """The whole run directory; user code may write into it meanwhile."""

    def is_removed() -> bool:
        shutil.rmtree(run.run_dir, ignore_errors=True)
        return not run.run_dir.path.exists()

    wait_until(is_removed, what="the run directory to be gone")


def said(log: IO[str], run: Supervised) -> list[str]:
    """Its last words, but for those about the server."""
    return [line for line in log.read().splitlines() if str(run.run_dir) in line]


@pytest.fixture
def begin(lab: Lab) -> Callable[..., tuple[Supervised, IO[str]]]:
    """A run, and its supervisor's log, which can be read when it is removed."""

    def start(code: str, **fields: object) -> tuple[Supervised, IO[str]]:
        run = lab.start(lab.launch(code, **fields))
        return run, run.run_dir.supervisor_log.open()

    return start


def test_supervisor_ends_all_it_started_when_its_run_directory_is_removed(
    lab: Lab, begin: Callable[..., tuple[Supervised, IO[str]]]
) -> None:
    run, log = begin(STUBBORN)
    run.wait_for_file("started")
    lab.server.stop()

    remove(run)

    assert run.process.wait(DEADLINE_S) == 1
    assert not processes_with_environment("STOKER_RUN_DIR", str(run.run_dir))
    with log:
        (line,) = said(log, run)
        assert line.startswith(f"error: {run.run_dir} was removed")


def test_supervisor_leaves_when_its_run_directory_is_removed_before_user_code_runs(
    lab: Lab, begin: Callable[..., tuple[Supervised, IO[str]]]
) -> None:
    address = lab.home.server()
    assert address is not None
    requirement = f"slow @ {address.url}/held/slow-1.0-py3-none-any.whl"
    run, log = begin("", environment=EnvironmentSpec(requirements=(requirement,)))
    wait_until(lab.server.asked_for.is_set, what="the environment to be in the making")
    tools = descendants(run.process.pid)
    assert tools

    remove(run)

    assert run.process.wait(DEADLINE_S) == 1
    assert not any(tool.is_alive() for tool in tools)
    with log:
        assert len(said(log, run)) == 1


def test_supervisor_leaves_when_its_run_directory_is_removed_while_it_waits_for_a_server(
    lab: Lab, begin: Callable[..., tuple[Supervised, IO[str]]]
) -> None:
    lab.server.stop()
    run, log = begin("print('done')")
    wait_until(lambda: has_ended(run), what="the run to end")

    remove(run)

    assert run.process.wait(DEADLINE_S) == 1
    with log:
        assert len(said(log, run)) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_supervisor_that_only_waits_for_a_server_leaves_when_told_and_is_drained(lab: Lab, number: int) -> None:
    lab.server.stop()
    run = lab.start(lab.launch("print('done')"))
    wait_until(lambda: has_ended(run), what="the run to end")

    run.process.send_signal(number)

    assert run.process.wait(DEADLINE_S) == 1
    assert run.log.splitlines()[-1].startswith(f"Ended before a server took all of {run.run_dir}/spool.jsonl")
    lab.server.start()
    assert lab.start(run.launch, "--drain").process.wait(DEADLINE_S) == 0
    assert lab.server.exit_of(RUN)["code"] == 0
    assert run.lines() == ["done"]


def test_signal_that_stopped_user_code_does_not_cut_the_shipping_short(lab: Lab) -> None:
    """One signal, one stop: what user code said on its way out is told, though the server is away."""
    run = lab.start(
        lab.launch(
            """
            import pathlib, os, signal, sys, threading
            told = threading.Event()
            signal.signal(signal.SIGTERM, lambda *_: told.set())
            pathlib.Path(os.environ["STOKER_RUN_DIR"], "started").touch()
            told.wait()
            print("saved")
            """
        )
    )
    run.wait_for_file("started")
    lab.server.stop()

    run.process.send_signal(signal.SIGTERM)
    wait_until(lambda: has_ended(run), what="the run to end")
    time.sleep(3 * _LOOK_S)  # it goes on waiting, which no event can show
    lab.server.start()

    ended = run.wait()
    assert (ended["stop"], ended["code"]) == ("preempt", 0)
    assert run.lines() == ["saved"]
