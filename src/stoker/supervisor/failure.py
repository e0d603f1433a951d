"""Say why a run failed, in one line, with the user's own traceback."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from stoker.host import home
from stoker.run_dir import RunDir
from stoker.supervisor.process import Ended

_TAIL_BYTES = 256 << 10
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_MAX_LINES = 100
_LOST_CONNECTION = re.compile(r"Connection|BrokenPipe|EOFError|Dist(?:Backend|Network|Store)Error|[Gg]loo|NCCL")


def first(failures: Sequence[Ended], run_dir: RunDir) -> Ended:
    """Which of these, all failed within a moment, failed first: the others may have failed because of it.

    By when each printed its traceback, because ranks that lose their connection to another may end before it does;
    and one that complains of nothing but a lost connection comes after those with other complaints.
    """

    def order(ended: Ended) -> tuple[bool, float]:
        path = run_dir.output(ended.replica.name, "stderr")
        traceback = "" if ended.signal else last_traceback(end_of(path))
        if not traceback:
            return False, ended.time
        return _LOST_CONNECTION.search(_last_line(traceback)) is not None, os.stat(path).st_mtime

    return min(failures, key=order)


def message(ended: Ended, *, stderr: str, traceback: str) -> str:
    """One line for a person."""
    name = ended.replica.name
    if ended.signal is not None:
        hint = " (out of memory?)" if ended.signal == "SIGKILL" and not ended.was_told else ""
        return f"{name} was killed by {ended.signal}{hint}"
    said = _last_line(traceback) or _complaint(stderr)
    return f"{name} exited with code {ended.exit_code}" + (f": {said}" if said else "")


def end_of(path: Path) -> str:
    """The last part of what was printed, long enough for a traceback."""
    return home.end_of(path, size_bytes=_TAIL_BYTES)


def last_traceback(stderr: str) -> str:
    """The last one, with those that led to it; empty if there is none."""
    lines = [_without_rank(line) for line in stderr.split("\n")]
    heads = [number for number, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    if not heads:
        return ""
    end = _end_of_traceback(lines, heads[-1])
    start = heads[-1]
    for earlier in reversed(heads[:-1]):
        if not any(line.startswith(_CHAINED) for line in lines[earlier:start]):
            break
        start = earlier
    return "\n".join(lines[max(start, end - _MAX_LINES) : end])


def _end_of_traceback(lines: list[str], head: int) -> int:
    """Behind the exception's own line and the rest of its message."""
    number = head + 1
    while number < len(lines) and (lines[number].startswith(" ") or not lines[number]):
        number += 1
    number += 1
    # A message may have several lines; it ends with the process, or with a blank line before other talk.
    while number < len(lines) and lines[number].strip() and number - head < _MAX_LINES:
        number += 1
    return min(number, len(lines))


def _last_line(traceback: str) -> str:
    """The exception and its message's first line: the first line after the last frame."""
    found = ""
    for line in traceback.split("\n"):
        if line.startswith(_TRACEBACK):
            found = ""
        elif not found and line and not line.startswith(" "):
            found = line
    return found[:500]


def _complaint(stderr: str) -> str:
    """What a program that ends without a traceback says last, if it says that it is an error."""
    last = stderr.rstrip().rpartition("\n")[2].strip()
    return last[:500] if "error" in last.lower() or "No module named" in last else ""


def _without_rank(line: str) -> str:
    """Without the [rank0]: that torch puts before each line of a traceback."""
    if line.startswith("[rank"):
        return line.partition("]:")[2].removeprefix(" ")
    return line.removesuffix("\r")
