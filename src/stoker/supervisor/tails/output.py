"""Read what a replica prints, as it grows, and make blocks of whole lines of it."""

import os
import time
from collections.abc import Callable

from stoker.run_dir import RunDir
from stoker.supervisor.levels import levels
from stoker.supervisor.spool import Entry, Position

BLOCK_BYTES = 256 << 10  # at most this much of one stream is one event
PARTIAL_BYTES = 64 << 10  # a line longer than this is cut
PARTIAL_S = 1.0  # a line that is not finished by then is shown as it is: a prompt, a progress bar


class OutputTail:
    """One stream of one replica.

    A progress bar redraws its line with carriage returns: of a line that is read at once, only the last state is kept.
    """

    def __init__(self, run_dir: RunDir, *, replica: str, stream: str, position: Position | None = None) -> None:
        path = run_dir.output(replica, stream)
        self.source = run_dir.name_of(path)
        self.echo: Callable[[bytes], None] | None = None  # sees every byte as it is read
        self._replica, self._stream = replica, stream
        self._file = os.open(path, os.O_RDONLY)
        self._offset = position.offset if position else 0
        self._is_open = bool(position and position.is_open)
        self._partial = b""
        self._partial_since = self._last_read = 0.0
        self._in_traceback = False
        self.has_more = False

    def read(self) -> Entry | None:
        """The next block, if whole lines (or a line that waited long enough) are there; `has_more` says if to go on."""
        data = os.pread(self._file, BLOCK_BYTES, self._offset + len(self._partial))
        now = time.monotonic()
        self.has_more = len(data) == BLOCK_BYTES
        if not data:
            return self._overdue(now)
        if self.echo is not None:
            self.echo(data)
        if not self._partial:
            self._partial_since = now
        self._last_read = now
        data = self._partial + data
        cut = data.rfind(b"\n") + 1
        self._partial = data[cut:]
        if cut:
            self._partial_since = now
            return self._block(data[: cut - 1], size_bytes=cut, is_open=False)
        if len(data) > PARTIAL_BYTES:
            return self._cut_partial()
        return self._overdue(now)

    def finish(self) -> Entry | None:
        """What is left when no more will come, once `read` has nothing."""
        return self._cut_partial(whole=True) if self._partial else None

    def close(self) -> None:
        os.close(self._file)

    def _overdue(self, now: float) -> Entry | None:
        if not self._partial:
            return None
        redrawn = b"\r" in self._partial
        since = self._partial_since if redrawn else self._last_read
        return self._cut_partial() if now - since >= PARTIAL_S else None

    def _cut_partial(self, *, whole: bool = False) -> Entry | None:
        """A line's beginning as a line. Not in the midst of a UTF-8 character, which may be half written."""
        cut = len(self._partial)
        if not whole:
            cut -= _unfinished_character(self._partial)
        block, self._partial = self._partial[:cut], self._partial[cut:]
        self._partial_since = time.monotonic()
        return self._block(block, size_bytes=cut, is_open=True) if block else None

    def _block(self, block: bytes, *, size_bytes: int, is_open: bool) -> Entry | None:
        was_open, self._is_open = self._is_open, is_open
        self._offset += size_bytes
        if was_open:
            if block in (b"", b"\r"):
                return None  # the end of a line that was shown already
            if block.startswith((b"\n", b"\r\n")):  # nothing but that end was missing: go on with the next line
                block = block.partition(b"\n")[2]
        if b"\r" in block:
            block = _last_states(block)
        found, self._in_traceback = levels(block, in_traceback=self._in_traceback)
        event = {
            "time": min(time.time(), os.fstat(self._file).st_mtime),
            "type": "log",
            "replica": self._replica,
            "stream": self._stream,
            "line": 0,  # numbered by the spool
            "count": block.count(b"\n") + 1,
            "levels": found,
            "text": block.decode("utf-8", "replace"),
        }
        return Entry(event, Position(self.source, self._offset, self._is_open))


def _last_states(block: bytes) -> bytes:
    lines = block.split(b"\n")
    for number, line in enumerate(lines):
        if b"\r" in line:
            states = [state for state in line.split(b"\r") if state]
            lines[number] = states[-1] if states else b""
    return b"\n".join(lines)


def _unfinished_character(data: bytes) -> int:
    """How many bytes at the end are the beginning of a UTF-8 character."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if needed > back else 0
        if byte < 0x80:
            return 0
    return 0
