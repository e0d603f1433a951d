"""Send the spool to the server, in order, once; and hear from it when to stop.

Lines are numbered in the spool, not on the server, so a batch that is sent twice is taken once. Whichever server there
is now is asked for again after every failure: a new one may have another address. None at all is no reason to give up.
"""

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stoker.client.connection import API, Connection
from stoker.errors import NotFoundError, ServerError, StokerError, UsageError
from stoker.host.home import ServerAddress
from stoker.run_dir import RunDir
from stoker.supervisor.spool import acked_before, seq_of, without_positions
from stoker.supervisor.tails.reports import supervisor_log

logger = logging.getLogger(__name__)

BATCH_BYTES = 1 << 20
_TIMEOUT_S = 60.0
_ORDERS_WAIT_S = 25
_FIRST_RETRY_S, _LAST_RETRY_S = 0.1, 2.0
_LOOK_S = 0.25  # how often a new server's address is looked for meanwhile
# The first words of a run go out at once; one that goes on talking is heard five times a second, in larger pieces.
_FIRST_GAP_S, _LAST_GAP_S = 0.02, 0.2
_QUIET_S = 1.0

FindServer = Callable[[], ServerAddress | None]


class Shipper(threading.Thread):
    """Posts spool lines until `close`, and then until the server has all of them; `wake` it when there are more."""

    def __init__(
        self, spool: Path, *, run: str, node: int, find_server: FindServer, on_stop: Callable[[str], None]
    ) -> None:
        super().__init__(name="ship", daemon=True)
        self._path = f"{API}/runs/{quote(run, safe='')}/events"
        self._head = b'{"node":%d,"events":[' % node
        self._server = _AnyServer(find_server)
        self._on_stop = on_stop
        self._spool = os.open(spool, os.O_RDONLY)
        self._ack_file = RunDir(spool.parent).spool_ack
        # The note is a hint, so the last event is sent in any case: the answer says what the server really has.
        self._offset = self._find(acked_before(self._ack_file) + 1, or_last=True)
        self._most_lines: int | None = None  # of a batch, while looking for an event that the server refuses
        self._gap_s, self._last_sent = _FIRST_GAP_S, 0.0
        self._grown, self._closing = threading.Event(), threading.Event()
        self.has_sent_all = False

    def wake(self) -> None:
        self._grown.set()

    def close(self, *, timeout_s: float) -> bool:
        """Send what is left; False if the server did not take all of it in that time."""
        self._closing.set()
        self._grown.set()
        self.join(timeout_s)
        return self.has_sent_all

    def run(self) -> None:
        try:
            self._ship()
        except NotFoundError as error:
            logger.warning("the server does not know this run, its events stay in the spool: %s", error)
        except StokerError as error:
            logger.error("the server refused an event and what stands for it, giving up: %s", error)
        finally:
            self._server.close()
            os.close(self._spool)

    def _ship(self) -> None:
        while True:
            self._grown.clear()
            is_closing = self._closing.is_set()  # before looking: what was written before `close` is seen then
            lines, size_bytes = self._next_batch()
            if lines:
                self._pace(size_bytes)
                try:
                    self._send(lines, size_bytes)
                except ServerError as error:
                    self._server.wait_for_another(error)
            elif is_closing:
                self.has_sent_all = True
                return
            else:
                self._grown.wait()

    def _next_batch(self) -> tuple[list[bytes], int]:
        """Whole lines from where the server is, and their size in the file."""
        want = BATCH_BYTES
        while True:
            data = os.pread(self._spool, want, self._offset)
            cut = data.rfind(b"\n") + 1
            if cut or len(data) < want:
                break
            want *= 2
        lines = data[:cut].split(b"\n")[:-1][: self._most_lines]
        return lines, sum(map(len, lines)) + len(lines)

    def _pace(self, size_bytes: int) -> None:
        now = time.monotonic()
        if now - self._last_sent > _QUIET_S:
            self._gap_s = _FIRST_GAP_S
        elif size_bytes < BATCH_BYTES // 2:
            self._closing.wait(self._last_sent + self._gap_s - now)
            self._gap_s = min(self._gap_s * 1.5, _LAST_GAP_S)
        self._last_sent = time.monotonic()

    def _send(self, lines: list[bytes], size_bytes: int) -> None:
        first, last = seq_of(lines[0]), seq_of(lines[-1])
        try:
            reply = self._post(without_positions(lines))
        except UsageError as error:
            if len(lines) > 1:
                self._most_lines = len(lines) // 2
                return
            logger.error("the server refused event %d: %s", first, error)
            reply = self._post([_stand_in(lines[0], error)])
        self._most_lines = None
        if not isinstance(reply, dict) or type(acked := reply.get("acked")) is not int:
            raise ServerError(f"The server's answer to events was {reply!r}.")
        if acked == last:
            self._offset += size_bytes
        else:
            self._offset = self._find(acked + 1)
            if acked < first:
                raise ServerError(f"It took nothing of events {first} to {last}: it has {acked}.")
        self._server.is_well()
        _write_ack(self._ack_file, acked)
        if reply.get("stop"):
            self._on_stop(reply["stop"])

    def _post(self, events: list[bytes]) -> Any:
        body = self._head + b",".join(events) + b"]}"
        return self._server.request("POST", self._path, body=body, content_type="application/json")

    def _find(self, seq: int, *, or_last: bool = False) -> int:
        """Where in the file this event begins, or will; or where the last one does that is there."""
        offset = last = 0
        with open(os.dup(self._spool), "rb") as file:
            file.seek(0)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                if seq_of(line) >= seq:
                    return offset
                last = offset
                offset += len(line)
        return last if or_last else offset


class OrderListener(threading.Thread):
    """Waits at the server for the order to stop; ends with it, or when the server does not know the run."""

    def __init__(self, *, run: str, find_server: FindServer, on_stop: Callable[[str], None]) -> None:
        super().__init__(name="orders", daemon=True)
        self._path = f"{API}/runs/{quote(run, safe='')}/orders"
        self._server = _AnyServer(find_server)
        self._on_stop = on_stop

    def run(self) -> None:
        try:
            self._on_stop(self._next_order())
        except NotFoundError:
            pass  # its shipper says so
        finally:
            self._server.close()

    def _next_order(self) -> str:
        while True:
            asked = time.monotonic()
            try:
                reply = self._server.request("GET", self._path, params={"wait_s": _ORDERS_WAIT_S})
            except NotFoundError:
                raise
            except StokerError as error:
                self._server.wait_for_another(error)
                continue
            self._server.is_well()
            if isinstance(reply, dict) and reply.get("stop"):
                return str(reply["stop"])
            # A server that does not hold the question must not be asked without pause.
            time.sleep(max(0.0, asked + 1.0 - time.monotonic()))


class _AnyServer:
    """A connection to whichever server there is; one thread's own."""

    def __init__(self, find: FindServer) -> None:
        self._find = find
        self._address: ServerAddress | None = None
        self._connection: Connection | None = None
        self._retry_s = _FIRST_RETRY_S
        self._in_trouble = False

    def request(self, method: str, path: str, **options: Any) -> Any:
        if self._connection is None:
            self._address = self._find()
            if self._address is None:
                raise ServerError("There is no server.")
            self._connection = Connection(self._address, timeout_s=_TIMEOUT_S)
        try:
            return self._connection.request(method, path, **options)
        except ValueError as error:  # not JSON: something else answers there
            raise ServerError(f"{self._address.url if self._address else ''} does not answer as a server.") from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def is_well(self) -> None:
        if self._in_trouble:
            logger.warning("the server is there again")
        self._retry_s, self._in_trouble = _FIRST_RETRY_S, False

    def wait_for_another(self, error: StokerError) -> None:
        """After a failure: wait longer each time, but no longer than until another server's address is written."""
        if not self._in_trouble:
            logger.warning("will try again: %s", error)
        self._in_trouble = True
        self.close()
        until = time.monotonic() + self._retry_s
        self._retry_s = min(self._retry_s * 2, _LAST_RETRY_S)
        while (left_s := until - time.monotonic()) > 0 and self._find() == self._address:
            time.sleep(min(left_s, _LOOK_S))


def _stand_in(line: bytes, error: UsageError) -> bytes:
    """An event of the same number for one that the server will not take: a gap would stop all that follow."""
    found = json.loads(line)
    text = f"An event of type {found.get('type')} was refused by the server and is left out: {error}"
    event = {"seq": found["seq"], **supervisor_log(text, level="ERROR"), "line": max(1, found["read"][3])}
    return json.dumps(event).encode()


def _write_ack(path: Path, seq: int) -> None:
    with contextlib.suppress(OSError):  # a hint, and a full or vanished disk is no reason to stop telling the server
        path.write_text(f"{seq}\n")
