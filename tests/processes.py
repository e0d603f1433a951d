"""Looking at real processes from tests."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 90.0


def wait_until(condition: Callable[[], object], *, what: str, deadline_s: float = DEADLINE_S) -> None:
    """Poll until true; fail with what was awaited. The deadline is for hangs, not for speed."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"gave up after {deadline_s:g} s waiting for {what}")
        time.sleep(0.02)


def processes_with_environment(name: str, value: str, *, prefix: bool = False) -> list[int]:
    """Living processes (not zombies) whose environment has NAME=VALUE, but for this one."""
    wanted = f"{name}={value}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            entries = (folder / "environ").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and any(e.startswith(wanted) if prefix else e == wanted for e in entries):
                found.append(int(folder.name))
    return found


def kill_all_with_environment(name: str, value: str, *, prefix: bool = False) -> None:
    for pid in processes_with_environment(name, value, prefix=prefix):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
