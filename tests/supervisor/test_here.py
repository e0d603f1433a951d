"""`stoker local train`: the same supervisor in the foreground."""

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import StokerError
from stoker.host.home import Home
from stoker.run_dir import RunDir
from stoker.schema.launch import EnvironmentSpec, Launch
from stoker.supervisor.here import run_here
from stoker.supervisor.spool import recover
from tests.processes import DEADLINE_S, processes_with_environment, wait_until
from tests.supervisor.conftest import replicas

pytestmark = pytest.mark.slow


class Here:
    """Runs code in the foreground of this process."""

    def __init__(self, home: Home, folder: Path) -> None:
        self.home = home
        self.source = folder / "source"
        self.source.mkdir()
        self.run_dir = RunDir(folder / "run")
        self.out, self.err = io.BytesIO(), io.BytesIO()

    def launch(self, code: str, **fields: Any) -> Launch:
        (self.source / "task.py").write_text(textwrap.dedent(code))
        values = {"run": "here.1.1", "job": "here", "trial": 1, "trial_id": 0, "attempt": 1}
        values |= {"source": str(self.source), "module": "task", "replicas": replicas()}
        return Launch(**{**values, **fields})

    def run(self, code: str, *, distributed: bool = False, **fields: Any) -> int:
        launch = self.launch(code, **fields)
        return run_here(launch, self.run_dir, home=self.home, out=self.out, err=self.err, distributed=distributed)

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self.run_dir.spool.read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["type"] == kind]


@pytest.fixture
def here(home: Home, tmp_path: Path) -> Here:
    return Here(home, tmp_path)


def test_output_goes_where_it_belongs_and_the_exit_code_is_the_users(here: Here) -> None:
    code = here.run("import sys; print('to stdout'); print('to stderr', file=sys.stderr); sys.exit(3)")

    assert code == 3
    assert here.out.getvalue() == b"to stdout\n"
    assert here.err.getvalue() == b"to stderr\n"


def test_code_runs_in_place_with_args_and_job_dir(here: Here) -> None:
    code = here.run("import os, sys; print(os.getcwd(), *sys.argv[1:])", args=("--epochs", "3"), job_dir="out")

    assert code == 0
    assert here.out.getvalue().decode() == f"{here.source} --epochs 3 --job-dir out\n"


def test_folder_is_the_record(here: Here) -> None:
    here.run("import stoker; ctx = stoker.init(); ctx.report(1, loss=0.5); print('x')", hparams={"lr": 1})

    assert [event["values"] for event in here.events("metric")] == [{"loss": 0.5}]
    assert [event["text"] for event in here.events("log")] == ["x"]
    assert recover(here.run_dir.spool).has_ended
    assert here.run_dir.read_launch()["hparams"] == {"lr": 1}


def test_bytes_of_one_replica_pass_as_they_are(here: Here) -> None:
    here.run("import sys; sys.stdout.buffer.write(b'10%\\r20%\\r\\xff no newline')")

    assert here.out.getvalue() == b"10%\r20%\r\xff no newline"


@pytest.mark.parametrize(("distributed", "cluster"), [(False, set()), (True, {"chief"})])
def test_cluster_is_empty_unless_distributed(here: Here, distributed: bool, cluster: set[str]) -> None:
    here.run("import os; print(os.environ['TF_CONFIG'])", distributed=distributed)

    config = json.loads(here.out.getvalue())
    assert set(config["cluster"]) == cluster
    assert bool(config["task"]) == distributed


def test_lines_of_several_replicas_have_their_names(here: Here) -> None:
    code = here.run(
        "import os, sys; print('I am', os.environ['RANK']); sys.stdout.write('1%\\r2%\\nrest')",
        distributed=True,
        replicas=replicas(workers=1),
    )

    assert code == 0
    lines = here.out.getvalue().decode().splitlines()
    assert sorted(lines) == [
        "[chief-0] 2%",
        "[chief-0] I am 0",
        "[chief-0] rest",
        "[worker-0] 2%",
        "[worker-0] I am 1",
        "[worker-0] rest",
    ]


def test_start_port_gives_ports_to_chief_ps_and_workers_in_turn(here: Here) -> None:
    code = "import os; print(os.environ['TF_CONFIG']) if os.environ['STOKER_REPLICA'] == 'chief-0' else None"

    here.run(code, distributed=True, replicas=replicas(workers=2, ps=1), start_port=27182)

    line = next(line for line in here.out.getvalue().decode().splitlines() if line.startswith("[chief-0] "))
    assert json.loads(line.removeprefix("[chief-0] "))["cluster"] == {
        "chief": ["127.0.0.1:27182"],
        "ps": ["127.0.0.1:27183"],
        "worker": ["127.0.0.1:27184", "127.0.0.1:27185"],
    }


def test_first_rank_to_fail_is_named(here: Here) -> None:
    code = here.run(
        "import os, sys, time; sys.exit(4) if os.environ['RANK'] == '1' else time.sleep(600)",
        distributed=True,
        replicas=replicas(workers=1),
    )

    assert code == 4
    assert "worker-0 exited with code 4\n" in here.err.getvalue().decode()


def test_signal_that_ends_user_code_is_named(here: Here) -> None:
    code = here.run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")

    assert code == 139
    assert here.err.getvalue().decode() == "chief-0 was killed by SIGSEGV\n"


def test_error_before_user_code_is_raised(here: Here) -> None:
    with pytest.raises(StokerError, match="no-such-runtime"):
        here.run("", environment=EnvironmentSpec(runtime="no-such-runtime"))

    assert here.events("exited")[0]["phase"] == "environment"


def test_signal_handlers_are_put_back(here: Here) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]

    here.run("")

    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_secrets_are_kept_from_user_code(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_TOKEN", "t")

    here.run("import os; print('STOKER_TOKEN' in os.environ)")

    assert here.out.getvalue() == b"False\n"


# --- with a terminal: in a process of its own, which gets the signals

MAIN = """
import sys
from pathlib import Path
from stoker.host.home import Home
from stoker.run_dir import RunDir
from stoker.schema.launch import Launch
from stoker.supervisor.here import run_here
from stoker.run_dir import RunDir
launch = Launch.read(RunDir(sys.argv[1]))
sys.exit(run_here(launch, RunDir(sys.argv[2]), home=Home.find(), out=sys.stdout.buffer, err=sys.stderr.buffer))
"""


def foreground(here: Here, launch: Launch) -> "subprocess.Popen[bytes]":
    path = here.source / "launch"
    launch.write(RunDir(path))
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, path, here.run_dir], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


POLITE = """
    import os, stoker, time
    ctx = stoker.init()
    print("started", flush=True)
    while not ctx.should_stop():
        time.sleep(0.01)
    print("saved")
"""
DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('started', flush=True); time.sleep(600)"
)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_ctrl_c_lets_user_code_save(here: Here, number: int, code: int) -> None:
    process = foreground(here, here.launch(POLITE))
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"

    process.send_signal(number)
    out, err = process.communicate(timeout=DEADLINE_S)

    assert (process.returncode, out) == (code, b"saved\n")
    assert b"Told to stop" in err
    assert b"Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_what_was_ignored_when_it_was_started_stays_ignored(here: Here, number: int) -> None:
    """`nohup stoker local train …` outlives its terminal; so does one that a script started with `&`."""
    before = signal.signal(number, signal.SIG_IGN)
    process = foreground(here, here.launch(POLITE))
    signal.signal(number, before)
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"

    process.send_signal(number)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 143


def test_second_ctrl_c_kills(here: Here) -> None:
    process = foreground(here, here.launch(DEAF))
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"started\n"

    process.send_signal(signal.SIGINT)
    assert b"Told to stop (cancel)" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 130
    assert processes_with_environment("STOKER_RUN_DIR", str(here.run_dir)) == []


def test_run_ends_when_nobody_reads_its_output(here: Here) -> None:
    process = foreground(
        here, here.launch("import time\nwhile True: print('x', flush=True); time.sleep(0.01)", grace_s=1)
    )
    assert process.stdout is not None
    process.stdout.readline()

    process.stdout.close()  # `| head -1`
    process.wait(DEADLINE_S)

    assert process.stderr is not None
    process.stderr.close()
    wait_until(lambda: not processes_with_environment("STOKER_RUN_DIR", str(here.run_dir)), what="user code to be gone")


def test_user_code_reads_no_terminal(here: Here) -> None:
    process = foreground(here, here.launch("print(repr(input()))"))
    out, err = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 1
    assert b"EOFError" in err
    assert os.path.exists(here.run_dir.processes)
