"""Why a run failed, in the user's own words."""

import os
import textwrap
from pathlib import Path

import pytest

from stoker.run_dir import RunDir
from stoker.schema.launch import Replica
from stoker.supervisor.failure import first, last_traceback, message
from stoker.supervisor.process import Ended

SIMPLE = textwrap.dedent(
    """\
    Traceback (most recent call last):
      File "task.py", line 3, in <module>
        main()
    ValueError: bad"""
)


def ended(returncode: int, *, was_told: bool = False) -> Ended:
    return Ended(Replica(role="worker", index=1, rank=2), returncode, was_told, time=0.0)


@pytest.mark.parametrize(
    ("end", "stderr", "expected"),
    [
        (ended(3), "", "worker-1 exited with code 3"),
        (ended(3), "100%|####| 3/3", "worker-1 exited with code 3"),
        (ended(1), SIMPLE, "worker-1 exited with code 1: ValueError: bad"),
        (ended(2), "usage: x\ntask.py: error: bad flag\n", "worker-1 exited with code 2: task.py: error: bad flag"),
        (ended(-9), SIMPLE, "worker-1 was killed by SIGKILL (out of memory?)"),
        (ended(-9, was_told=True), "", "worker-1 was killed by SIGKILL"),
        (ended(-11), "", "worker-1 was killed by SIGSEGV"),
        (ended(-64), "", "worker-1 was killed by SIGRTMAX"),
    ],
)
def test_message_says_what_failed(end: Ended, stderr: str, expected: str) -> None:
    traceback = "" if end.signal else last_traceback(stderr)

    assert message(end, stderr=stderr, traceback=traceback) == expected


@pytest.mark.parametrize(("returncode", "code"), [(0, 0), (3, 3), (-9, 137), (-15, 143)])
def test_exit_code_is_as_a_shell_shows_it(returncode: int, code: int) -> None:
    assert ended(returncode).exit_code == code


def failed(run_dir: RunDir, index: int, *, time: float, stderr: str = "", returncode: int = 1) -> Ended:
    """A worker that ended then, and wrote this to stderr a second before."""
    path = run_dir.output(f"worker-{index}", "stderr")
    path.parent.mkdir(exist_ok=True)
    path.write_text(stderr)
    os.utime(path, (time - 1, time - 1))
    return Ended(Replica(role="worker", index=index, rank=index), returncode, was_told=False, time=time)


def test_first_to_complain_failed_first_though_it_ended_last(tmp_path: Path) -> None:
    failures = [
        failed(RunDir(tmp_path), 0, time=10.0, stderr=SIMPLE),
        failed(RunDir(tmp_path), 1, time=9.0, stderr=SIMPLE),
    ]

    assert first(failures, RunDir(tmp_path)) is failures[1]


def test_lost_connection_is_because_of_another(tmp_path: Path) -> None:
    lost = SIMPLE.replace("ValueError: bad", "RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:1")
    failures = [
        failed(RunDir(tmp_path), 0, time=9.0, stderr=lost),
        failed(RunDir(tmp_path), 1, time=10.0, stderr=SIMPLE),
    ]

    assert first(failures, RunDir(tmp_path)) is failures[1]


def test_killed_without_a_word_is_first_when_others_complain_later(tmp_path: Path) -> None:
    killed = failed(RunDir(tmp_path), 0, time=9.0, stderr="a warning\n", returncode=-9)
    failures = [failed(RunDir(tmp_path), 1, time=11.0, stderr=SIMPLE), killed]

    assert first(failures, RunDir(tmp_path)) is killed


def test_no_traceback_is_none() -> None:
    assert last_traceback("all is well\n") == ""


def test_traceback_is_found_among_other_talk() -> None:
    assert last_traceback(f"loading\n{SIMPLE}\n\ngoodbye\n") == SIMPLE


def test_last_of_several_is_taken() -> None:
    other = SIMPLE.replace("ValueError: bad", "KeyError: 'x'")

    assert last_traceback(f"{SIMPLE}\nwent on after that\nand on\n{other}\n") == other


def test_exceptions_that_led_to_the_last_are_kept() -> None:
    link = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    chain = SIMPLE + link + SIMPLE.replace("ValueError: bad", "RuntimeError: worse")

    assert last_traceback(f"before\n{chain}\n") == chain
    assert message(ended(1), stderr=chain, traceback=chain).endswith("RuntimeError: worse")


def test_message_of_several_lines_is_kept() -> None:
    stderr = SIMPLE + "\n  expected 3\n  got 4\n"

    assert last_traceback(stderr) == stderr.rstrip("\n")
    assert message(ended(1), stderr=stderr, traceback=last_traceback(stderr)).endswith(": ValueError: bad")


def test_ranks_prefix_is_taken_off() -> None:
    stderr = "".join(f"[rank1]: {line}\n" for line in SIMPLE.split("\n"))

    assert last_traceback(stderr) == SIMPLE


def test_very_long_traceback_keeps_its_end() -> None:
    frames = '  File "task.py", line 3, in f\n    f()\n' * 1000
    stderr = f"Traceback (most recent call last):\n{frames}RecursionError: too deep\n"

    found = last_traceback(stderr)

    assert found.count("\n") <= 100
    assert found.endswith("RecursionError: too deep")
