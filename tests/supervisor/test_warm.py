"""Trials forked from a zygote: the same as fresh interpreters in all but the time they take."""

import contextlib
import itertools
import json
import os
import signal
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoker.host.home import Home
from stoker.host.processes import ProcessId
from stoker.schema.launch import Launch
from stoker.supervisor.warm import launcher as warm
from tests.processes import kill_all_with_environment, processes_with_environment, wait_until
from tests.supervisor.conftest import Lab, Supervised

pytestmark = pytest.mark.slow

SELF = """
    import json, os, random, signal, sys, threading
    import numpy
    import collections.abc as kept
    def state():
        main = sys.modules["__main__"]
        fds = sorted((int(fd), os.readlink("/proc/self/fd/" + fd)) for fd in os.listdir("/proc/self/fd")
                     if os.path.exists("/proc/self/fd/" + fd) and int(fd) < 20)
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read().rstrip(b"\\0").decode().split("\\0")
        return {
            "argv": sys.argv, "path": sys.path, "orig_argv": sys.orig_argv, "flags": str(sys.flags), "words": words,
            "main": sorted(vars(main)), "name": __name__, "file": __file__,
            "spec": getattr(__spec__, "name", None), "loader": type(__loader__).__name__,
            "cwd": os.getcwd(), "environment": dict(os.environ), "leads": os.getsid(0) == os.getpid() == os.getpgid(0),
            "signals": {s.name: str(signal.getsignal(s)) for s in signal.valid_signals() if hasattr(s, "name")},
            "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "umask": os.umask(0o22),
            "fds": fds, "threads": threading.active_count(), "thread": threading.current_thread().name,
            "encodings": [sys.stdout.encoding, sys.stderr.errors, sys.getfilesystemencoding()],
            "through": sys.stdout.write_through, "daemon": os.environ.get("RANK"), "executable": sys.executable,
        }
    print(json.dumps(state()))
    print(random.random(), numpy.random.random(), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """One for all: its environment is made once, and zygotes are shared."""
    root = tmp_path_factory.mktemp("warm") / "home"
    home = Home(root).make()
    yield home
    end_zygotes(home)
    kill_all_with_environment("STOKER_RUN_DIR", str(root), prefix=True)


@pytest.fixture(autouse=True)
def at_home(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_HOME", str(home.root))
    for name in ("STOKER_SERVER", "STOKER_TOKEN", "STOKER_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def no_zygotes_of_others(home: Home, request: pytest.FixtureRequest) -> None:
    if request.node.originalname != "test_warm_process_ends_as_a_fresh_one_ends":  # they may share theirs
        end_zygotes(home)


_runs = itertools.count(1)


def launch(lab: Lab, code: str, **fields: Any) -> Launch:
    """A run of its own."""
    attempt = next(_runs)
    return lab.launch(
        code, **{"in_search": True, "warm": True, **fields, "attempt": attempt, "run": f"taxi.1.{attempt}"}
    )


def zygotes(home: Home) -> list[int]:
    found = []
    for pid in processes_with_environment("STOKER_ROOM", " " * 4096):
        with contextlib.suppress(OSError):  # another test's, gone meanwhile
            if os.readlink(f"/proc/{pid}/cwd") == str(home.zygotes):
                found.append(pid)
    return found


def end_zygotes(home: Home) -> None:
    for pid in zygotes(home):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not zygotes(home), what="zygotes to be gone")


def started_cold(run: Supervised) -> bool:
    return "is started cold" in run.log


def run_both(lab: Lab, code: str, **fields: Any) -> tuple[Supervised, Supervised]:
    """Cold, then warm, each in a run directory of its own."""
    cold = lab.start(launch(lab, code, warm=False, **fields))
    cold.wait()
    hot = lab.start(launch(lab, code, **fields))
    hot.wait()
    return cold, hot


def output(run: Supervised, stream: str) -> str:
    text = run.run_dir.output("chief-0", stream).read_text()
    return text.replace(str(run.run_dir), "RUN_DIR").replace(f"taxi.1.{run.launch.attempt}", "RUN")


@pytest.mark.parametrize(
    "fields",
    [
        {"hparams": {"lr": 0.1}, "args": ("--name", "a b")},
        {"module": None, "command": ("python", "task.py", "--lr", "1")},
        {"module": None, "command": ("python3", "-u", "-m", "task")},
        {"environment": {"variables": {"PYTHONHASHSEED": "3", "PYTHONOPTIMIZE": "1", "PYTHONIOENCODING": "latin-1"}}},
    ],
)
def test_warm_process_finds_what_a_fresh_one_finds(
    lab: Lab, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")  # else each run has a port of its own
    fields = {"start_port": 3000, **fields}

    cold, hot = run_both(lab, SELF, **fields)

    assert not started_cold(hot), hot.log
    expected, found = json.loads(output(cold, "stdout")), json.loads(output(hot, "stdout"))
    assert found == expected
    assert output(hot, "stderr") != output(cold, "stderr"), "random numbers are drawn anew"


def test_shell_command_that_is_plainly_python_is_warm(lab: Lab) -> None:
    code = "import sys; print(sys.argv); sys.exit(5)"

    cold, hot = run_both(lab, code, module=None, command=("sh", "-c", "python3 task.py --lr=0.1 x"))

    assert not started_cold(hot), hot.log
    assert output(hot, "stdout") == output(cold, "stdout")
    assert lab.server.exit_of(hot.run)["code"] == lab.server.exit_of(cold.run)["code"] == 5


ENDS = {
    "raises": "import json\ndef f():\n    raise ValueError('bad')\nf()",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('x') from error",
    "exits": "import sys; sys.exit(7)",
    "exits with words": "import sys; sys.exit('no data')",
    "leaves at once": "import os; print('a', end=''); os._exit(9)",
    "is killed": "import os; os.kill(os.getpid(), 9)",
    "crashes": "import os; os.abort()",
    "is interrupted": "raise KeyboardInterrupt",
    "cannot be read": "def f(:\n    pass",
    "finishes late": """
        import atexit, sys, threading, time
        class Slow:
            def __del__(self): sys.stderr.write("deleted\\n")
        atexit.register(print, "at exit")
        threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
        kept, file = Slow(), open("/proc/self/fd/1", "a")
        file.write("not flushed by hand\\n")
        print("main")
    """,
    "has a hook": """
        import sys
        sys.excepthook = lambda kind, error, traceback: print(kind, traceback.tb_frame.f_code.co_filename)
        raise ValueError
    """,
    "is refused": """
        import stoker
        with stoker.init() as ctx:
            raise stoker.InvalidHP("too large")
    """,
}


@pytest.mark.parametrize(
    ("kind", "how"),
    [*(("module", how) for how in ENDS), ("script", "raises"), ("script", "cannot be read"), ("script", "has a hook")],
)
def test_warm_process_ends_as_a_fresh_one_ends(lab: Lab, how: str, kind: str) -> None:
    fields = {"module": None, "command": ("python", "task.py")} if kind == "script" else {}

    cold, hot = run_both(lab, ENDS[how], **fields)

    assert started_cold(hot) == (how == "cannot be read"), "what it imports cannot be found out"
    ends = [lab.server.exit_of(run.run) for run in (cold, hot)]
    for end in ends:
        del end["time"], end["seq"]
    assert ends[0] == ends[1]
    for stream in ("stdout", "stderr"):
        assert output(hot, stream) == output(cold, stream)


def test_trials_do_not_see_each_other(lab: Lab) -> None:
    code = """
        import json, os, random, sys, decimal
        import numpy, torch
        print(json.dumps([os.getcwd(), getattr(decimal, "mark", None), os.environ.get("MARK"), "task" in sys.modules]))
        print(random.random(), numpy.random.random(), torch.rand(1).item(), torch.initial_seed(), file=sys.stderr)
        decimal.mark = os.environ["MARK"] = "seen"
        os.chdir("/")
    """
    runs = [lab.start(launch(lab, code)) for _ in range(3)]
    for run in runs:
        run.wait()
    shared = zygotes(lab.home)
    cold = lab.start(launch(lab, code, warm=False))
    cold.wait()

    assert not any(started_cold(run) for run in runs)
    assert {output(run, "stdout") for run in runs} == {output(cold, "stdout")}
    numbers = [number for run in runs for number in output(run, "stderr").split()]
    assert len(set(numbers)) == 12, "nothing is drawn twice"
    assert len(shared) == 1


def a_library(lab: Lab, code: str) -> dict[str, Any]:
    """An installed module named `library`."""
    folder = lab.source.parent / "installed"
    folder.mkdir()
    (folder / "library.py").write_text(textwrap.dedent(code))
    return {"environment": {"variables": {"PYTHONPATH": str(folder)}}}


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()", "thread"),
        ("import socket\nkept = socket.socket()", "socket"),
        ("kept = open('/tmp/stoker-test-kept', 'w')", "/tmp/stoker-test-kept"),
        ("raise RuntimeError('not here')", "RuntimeError('not here')"),
        ("import os\nos._exit(3)", "ended while it imported"),
    ],
)
def test_library_that_cannot_be_forked_is_imported_by_a_fresh_interpreter(lab: Lab, code: str, why: str) -> None:
    fields = a_library(lab, code)
    program = (
        "try:\n    import library\nexcept RuntimeError:\n    pass\nprint('hello', flush=True)\nimport os; os._exit(0)"
    )

    runs = [lab.start(launch(lab, program, **fields)) for _ in range(2)]

    ends = [run.wait() for run in runs]
    assert [end["phase"] for end in ends] == ["user code"] * 2
    assert all(run.log.count("is started cold") == 1 and why in run.log for run in runs), runs[0].log
    if "_exit" not in code:
        assert [run.lines() for run in runs] == [["hello"]] * 2
    assert zygotes(lab.home) == []
    Path("/tmp/stoker-test-kept").unlink(missing_ok=True)


def test_what_imports_say_is_said_in_each_trial(lab: Lab) -> None:
    fields = a_library(lab, "import sys, warnings\nprint('hello')\nwarnings.warn('old', stacklevel=1)")

    run, again = [lab.start(launch(lab, "import library\nprint('mine')", **fields)) for _ in range(2)]

    assert run.wait()["code"] == again.wait()["code"] == 0
    assert run.lines() == again.lines() == ["hello", "mine"]
    assert "UserWarning: old" in output(run, "stderr")
    assert output(run, "stderr") == output(again, "stderr")


@pytest.mark.parametrize(
    ("files", "command", "why"),
    [
        ({"decimal.py": "mark = 1"}, None, "module 'decimal' of its own"),
        ({"sitecustomize.py": ""}, None, "sitecustomize"),
        ({}, ("sh", "-c", "python task.py; true"), "more than a Python program"),
        ({}, ("python", "-O", "task.py"), "more than a Python program"),
    ],
)
def test_program_that_a_zygote_would_run_otherwise_is_started_cold(
    lab: Lab, files: dict[str, str], command: tuple[str, ...] | None, why: str
) -> None:
    code = "try:\n    import statistics\nexcept ImportError:\n    pass\nimport decimal\nprint(hasattr(decimal, 'mark'))"
    wanted = launch(lab, code)
    for name, text in files.items():
        (lab.source / name).write_text(text)
    if command is not None:
        wanted = replace(wanted, module=None, command=tuple(command))

    run = lab.start(wanted)

    assert run.wait()["code"] == 0
    assert why in run.log
    assert run.lines() == [str("decimal.py" in files)]


SLEEP = """
    import os, stoker, time
    ctx = stoker.init()
    ctx.report(1, loss=0.5)
    print("begun", flush=True)
    open(os.path.join(ctx.run_dir, "begun"), "w")
    while not ctx.should_stop():
        time.sleep(0.01)
    print("stopped for", ctx.stop_reason)
"""


def begin(lab: Lab, code: str = SLEEP, **fields: Any) -> tuple[Supervised, ProcessId]:
    run = lab.start(launch(lab, code, **fields))
    run.wait_for_file("begun")
    assert not started_cold(run), run.log
    file = run.run_dir.processes
    wait_until(lambda: "chief-0" in file.read_text(), what="its process to be noted")
    noted = json.loads(file.read_text())["replicas"]["chief-0"]
    return run, ProcessId(noted["pid"], noted["start"])


def test_warm_trial_stops_when_it_is_told_to(lab: Lab) -> None:
    run, child = begin(lab)

    lab.server.order_stop("prune")

    assert run.wait()["stop"] == "prune"
    assert run.lines() == ["begun", "stopped for prune"]
    assert not child.is_alive()


def test_killed_child_is_user_code_that_was_killed(lab: Lab) -> None:
    run, child = begin(lab)

    child.kill()

    end = run.wait()
    assert (end["signal"], end["phase"]) == ("SIGKILL", "user code")


def test_killed_zygote_takes_its_trials_along_and_they_count_as_lost(lab: Lab) -> None:
    runs = [begin(lab) for _ in range(2)]

    end_zygotes(lab.home)

    for run, child in runs:
        assert run.process.wait(60) != 0
        wait_until(lambda child=child: not child.is_alive(), what="the child to end")
        assert "zygote" in run.log
        # It may have been told to stop a moment before it was killed, and have said so.
        assert run.lines() == output(run, "stdout").splitlines(), "nothing that it said is lost"
        assert run.lines()[0] == "begun"
        assert not lab.server.has_ended(run.run)
    again, _ = begin(lab)
    lab.server.order_stop("cancel")
    again.wait()


def test_child_ends_with_its_supervisor(lab: Lab) -> None:
    run, child = begin(lab)

    run.kill()

    wait_until(lambda: not child.is_alive(), what="the child to end")
    assert zygotes(lab.home)


def test_processes_of_a_warm_run_are_found_by_its_directory(lab: Lab) -> None:
    run, child = begin(lab)

    assert processes_with_environment("STOKER_RUN_DIR", str(run.run_dir)) == [child.pid]

    lab.server.order_stop("cancel")
    run.wait()


def test_idle_zygote_goes_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(warm, "_IDLE_S", 0.05)
    python = Path(os.path.realpath("/proc/self/exe"))
    (tmp_path / "task.py").write_text("print('hello')")
    home = Home(tmp_path)
    here = warm.Zygotes(home.zygotes, package=None, go_on=lambda: True)

    child = here.start(
        [str(python), "-m", "task"],
        python=python,
        environment={"STOKER_RUN_DIR": "a", "STOKER_REPLICA": "b"},
        volatile=frozenset({"STOKER_RUN_DIR", "STOKER_REPLICA"}),
        roots=[],
        cwd=tmp_path,
        output=lambda stream: tmp_path / stream,
    )

    assert child is not None
    wait_until(lambda: child.poll() == 0, what="the child to end")
    child.close()
    assert (tmp_path / "stdout").read_text() == "hello\n"
    wait_until(lambda: not zygotes(home), what="the zygote to leave")
    assert [file.suffix for file in home.zygotes.iterdir()] == [".lock"]
