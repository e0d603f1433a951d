"""Events on disk, numbered, before anyone else sees them; and, beside each, how far its input had been read.

A line of spool.jsonl is an event as the server takes it, with one more field at its end:

    {"seq":7,"time":…,"type":"log",…,"read":["logs/chief-0.stdout",4096,0,112]}

"read" names the input file, the offset behind the last byte that is in this event or an earlier one, whether that is
in the midst of a line, and how many log lines there are so far. As both are in one line, both are there after a
crash or neither is: who comes next goes on from the last whole line, and loses and doubles nothing.
"""

import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from stoker.errors import ConflictError

_READ = b',"read":'  # cannot be inside a JSON string, where quotes are escaped; the last one on a line is ours
_EXITED = b'"type":"exited"'
_DISK_FULL_RETRY_S = 1.0
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False).encode


class Position(NamedTuple):
    """How far an input file is in the spool."""

    source: str = ""
    offset: int = 0
    is_open: bool = False  # the last line was cut short; what follows is the rest of it


class Entry(NamedTuple):
    """An event, but for its number; and where its input was read up to."""

    event: dict[str, Any]
    position: Position = Position()


@dataclass(slots=True)
class Recovered:
    """What a spool tells about itself."""

    seq: int = 0
    lines: int = 0
    size_bytes: int = 0
    has_ended: bool = False
    positions: dict[str, Position] = field(default_factory=dict)
    reported: list[dict[str, Any]] = field(default_factory=list)  # events of inputs that have no offsets

    def position(self, source: str) -> Position:
        return self.positions.get(source, Position(source))


class Spool:
    """The one writer of a run directory's spool; safe to use from several threads."""

    def __init__(self, path: Path, *, wait: bool = False) -> None:
        """Open it, cutting off a last line that is not whole. While another process has it: wait, or ConflictError."""
        self.path = path
        self.grew: Callable[[], None] = lambda: None  # called after each write
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            os.close(self._file)
            raise ConflictError(f"Another supervisor is at work on {path.parent}. Wait until it has ended.") from error
        self.recovered = recover(path)
        os.ftruncate(self._file, self.recovered.size_bytes)
        self._size_bytes = self.recovered.size_bytes
        self._seq = self.recovered.seq
        self._lines = self.recovered.lines
        self._has_ended = self.recovered.has_ended
        self._lock = threading.Lock()

    def append(self, entries: Sequence[Entry], *, is_end: bool = False) -> None:
        """Number these and write them. They are in the file when this returns; nothing comes after an end."""
        with self._lock:
            if self._has_ended:
                return  # a preparation that was given up still talks
            lines = [self._line(entry) for entry in entries]
            self._write("".join(lines).encode())
            self._has_ended = is_end
        self.grew()

    def add(self, kind: str, **fields: Any) -> None:
        """One event that is not read from a file."""
        self.append([_now(kind, fields)])

    def end(self, **fields: Any) -> None:
        """The last event: how the run ended. What comes after it is dropped."""
        self.append([_now("exited", fields)], is_end=True)

    @property
    def seq(self) -> int:
        """The number of the last event."""
        return self._seq

    def is_removed(self) -> bool:
        """Whether its folder is gone and the file with it, so that nobody can ever read what is written.

        One that was moved, or whose disk is away, is not: user code is not ended for that.
        """
        try:
            os.stat(self.path.parent)
        except FileNotFoundError:
            pass
        except OSError:
            return False
        else:
            return False
        try:
            return os.fstat(self._file).st_nlink == 0
        except OSError as error:
            return error.errno == errno.ESTALE  # removed by another machine

    def close(self) -> None:
        os.close(self._file)

    def _line(self, entry: Entry) -> str:
        self._seq += 1
        event = {"seq": self._seq, **entry.event}
        if event["type"] == "log":
            event["line"] = self._lines + 1
            self._lines += event["count"]
        source, offset, is_open = entry.position
        return _encode({**event, "read": [source, offset, int(is_open), self._lines]}) + "\n"

    def _write(self, data: bytes) -> None:
        end = self._size_bytes + len(data)
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._file, view) :]
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                time.sleep(_DISK_FULL_RETRY_S)  # user code's output waits in its own files meanwhile
        self._size_bytes = end


def _now(kind: str, fields: dict[str, Any]) -> Entry:
    return Entry({"time": time.time(), "type": kind, **fields})


def recover(path: Path) -> Recovered:
    """Read what a spool holds up to its last whole line."""
    found = Recovered()
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            at = line.rindex(_READ)
            source, offset, is_open, found.lines = json.loads(line[at + len(_READ) : -2])
            found.size_bytes += len(line)
            found.seq += 1
            found.has_ended = _EXITED in line[:80]
            if offset:
                found.positions[source] = Position(source, offset, bool(is_open))
            elif source:
                found.reported.append(json.loads(line))
    return found


def without_positions(lines: Iterable[bytes]) -> list[bytes]:
    """The events of these lines as JSON, as the server takes them."""
    return [line[: line.rindex(_READ)] + b"}" for line in lines]


def seq_of(line: bytes) -> int:
    """The number of a line's event, without reading the rest of it."""
    return int(line[7 : line.index(b",")])


def acked_before(path: Path) -> int:
    """The number of the last event that the server has, as far as spool.ack tells."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
