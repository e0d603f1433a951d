"""The process table: who is who, and ending all of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.host import processes
from stoker.host.processes import ProcessId
from tests.processes import kill_all_with_environment, wait_until

pytestmark = pytest.mark.slow

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
# os.write, because print writes a line and its end apart, and those of several processes mix.
DEAF = [
    sys.executable,
    "-c",
    "import os, signal, time; signal.signal(15, signal.SIG_IGN); os.write(1, b'deaf\\n'); time.sleep(600)",
]


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    kill_all_with_environment("STOKER_RUN_DIR", str(tmp_path))


@pytest.fixture
def environment(run_dir: Path) -> dict[str, str]:
    return {**os.environ, "STOKER_RUN_DIR": str(run_dir), "PYTHONUNBUFFERED": "1"}


def identity(process: "subprocess.Popen[bytes]") -> ProcessId:
    found = ProcessId.of(process.pid)
    assert found is not None
    return found


def test_process_is_alive_until_it_ends_and_a_zombie_is_not(environment: dict[str, str]) -> None:
    process = subprocess.Popen(SLEEP, env=environment)
    who = identity(process)
    assert who.is_alive()

    who.kill()

    wait_until(lambda: not who.is_alive(), what="the process to be a zombie")
    assert Path(f"/proc/{process.pid}").exists(), "nobody has waited for it yet"
    process.wait()
    assert ProcessId.of(process.pid) is None


def test_another_process_with_the_same_pid_is_another(environment: dict[str, str]) -> None:
    process = subprocess.Popen(SLEEP, env=environment)
    stranger = ProcessId(process.pid, identity(process).start - 1)

    stranger.kill()
    processes.signal_group(stranger, signal.SIGKILL)

    assert not stranger.is_alive()
    assert processes.in_groups([stranger]) == []
    assert identity(process).is_alive()
    process.kill()
    process.wait()


def test_name_with_brackets_and_blanks_is_read_right(tmp_path: Path, environment: dict[str, str]) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "600"], env=environment)
    wait_until(lambda: b"R 1" in Path(f"/proc/{process.pid}/comm").read_bytes(), what="it to have its name")

    assert [found.pid for found in processes.descendants(os.getpid())].count(process.pid) == 1
    assert identity(process).is_alive()
    process.kill()
    process.wait()


def test_processes_of_a_run_are_found_by_their_environment_alone(run_dir: Path, environment: dict[str, str]) -> None:
    process = subprocess.Popen(SLEEP, env=environment, start_new_session=True)
    other = subprocess.Popen(SLEEP, env={**environment, "STOKER_RUN_DIR": f"{run_dir}-2"})

    found = processes.of_run(run_dir)

    assert found == [identity(process)]
    for one in (process, other):
        one.kill()
        one.wait()


def test_command_line_gives_a_process_away(run_dir: Path, environment: dict[str, str]) -> None:
    process = subprocess.Popen([*SLEEP, "word", str(run_dir)], env=environment)
    words = [b"word", os.fsencode(run_dir)]
    wait_until(lambda: processes.with_words(words), what="it to have its words")

    assert processes.with_words(words) == [identity(process)]
    assert processes.with_words([b"word", os.fsencode(run_dir) + b"2"]) == []
    process.kill()
    process.wait()


def test_end_all_ends_a_whole_family_though_it_ignores_sigterm(run_dir: Path, environment: dict[str, str]) -> None:
    code = f"""if True:
        import os, subprocess
        children = [subprocess.Popen({DEAF!r}, start_new_session=bool(n % 2)) for n in range(4)]
        os.write(1, b"ready" + os.linesep.encode())
        [child.wait() for child in children]
    """
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    said = [parent.stdout.readline() for _ in range(5)]
    assert b"ready\n" in said

    ended = processes.end_all(lambda: processes.of_run(run_dir), grace_s=0.1)

    assert ended
    assert processes.of_run(run_dir) == []
    parent.communicate()


def test_end_all_lets_the_polite_save_within_the_grace(run_dir: Path, environment: dict[str, str]) -> None:
    code = """if True:
        import os, signal, sys, time
        def save(*_):
            open(os.path.join(os.environ["STOKER_RUN_DIR"], "saved"), "w")
            sys.exit()
        signal.signal(signal.SIGTERM, save)
        print("ready")
        time.sleep(600)
    """
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()

    assert processes.end_all(lambda: processes.of_run(run_dir), grace_s=60)

    assert (run_dir / "saved").exists()
    process.communicate()


def test_end_all_of_nothing_is_done_at_once(run_dir: Path) -> None:
    asked: list[float] = []

    def find() -> list[ProcessId]:
        asked.append(time.monotonic())
        return []

    assert processes.end_all(find, grace_s=600)
    assert len(asked) == 1


def test_group_is_signalled_though_its_leader_has_ended(environment: dict[str, str]) -> None:
    code = f"import subprocess; print(subprocess.Popen({SLEEP!r}, stdout=subprocess.DEVNULL).pid)"
    leader = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, start_new_session=True
    )
    who = identity(leader)
    said, _ = leader.communicate()
    left = ProcessId.of(int(said))
    assert left is not None
    assert processes.in_groups([who]) == [left]

    processes.signal_group(who, signal.SIGKILL)

    wait_until(lambda: not left.is_alive(), what="the rest of the group to end")
