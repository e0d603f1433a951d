"""`stoker local train`: the same supervisor in the foreground, with a terminal in the server's place."""

import signal
from collections.abc import Callable
from typing import BinaryIO

from stoker.host.home import Home
from stoker.run_dir import RunDir
from stoker.schema.launch import Launch
from stoker.supervisor.process import StopRequest, on_signals
from stoker.supervisor.spool import Spool
from stoker.supervisor.supervise import Supervision
from stoker.supervisor.tails.output import PARTIAL_BYTES


def run_here(
    launch: Launch, run_dir: RunDir, *, home: Home, out: BinaryIO, err: BinaryIO, distributed: bool = False
) -> int:
    """Run it to its end and return user code's exit code; what it says is shown as it comes. Main thread only.

    Ctrl-C asks user code to stop (SIGTERM, then the grace), a second one kills it; the code is 130 then. Raises the
    StokerError that kept user code from starting. The run directory is the record, as a job's is.
    """
    run_dir = RunDir(run_dir.path.absolute())
    launch.write(run_dir)
    spool = Spool(run_dir.spool)
    supervision = Supervision(launch, run_dir, home=home, spool=spool, clustered=distributed)
    terminal = _Terminal(out, err, prefixed=len(launch.replicas) > 1, on_closed=lambda: supervision.stop.ask("cancel"))
    supervision.inputs.on_bytes = terminal.show
    supervision.say = terminal.say
    signals = _Signals(supervision.stop)
    restore = on_signals(signals.handlers())
    try:
        try:
            result = supervision.run()
        finally:
            restore()
            terminal.finish()
        if supervision.error is not None:
            raise supervision.error
        if result.message and (len(launch.replicas) > 1 or result.signal):
            terminal.say(result.message)
    finally:  # after the last word: a terminal that is gone by then asks for a stop
        supervision.close()
        spool.close()
    if signals.first is not None:
        return 128 + signals.first
    return result.code or 0


class _Signals:
    """Ctrl-C once: stop; twice: at once."""

    _REASONS = {signal.SIGINT: "cancel", signal.SIGHUP: "cancel", signal.SIGTERM: "preempt"}

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop
        self.first: int | None = None

    def handlers(self) -> dict[int, Callable[[], None]]:
        """For all but those that were ignored from the start: `nohup` and scripts' `&` mean that."""
        heard = {number: r for number, r in self._REASONS.items() if signal.getsignal(number) is not signal.SIG_IGN}
        return {number: self._handler(number, reason) for number, reason in heard.items()}

    def _handler(self, number: int, reason: str) -> Callable[[], None]:
        def handle() -> None:
            if self.first is None:
                self.first = number
                self._stop.ask(reason)
            else:
                self._stop.ask_at_once()

        return handle


class _Terminal:
    """User code's output on ours: as it is for one replica; by lines, with the replica's name, for several."""

    def __init__(self, out: BinaryIO, err: BinaryIO, *, prefixed: bool, on_closed: Callable[[], None]) -> None:
        self._files = {"stdout": out, "stderr": err}
        self._prefixed = prefixed
        self._on_closed = on_closed
        self._begun: dict[tuple[str, str], bytes] = {}  # lines whose end is still to come

    def show(self, replica: str, stream: str, data: bytes) -> None:
        if not self._prefixed:
            self._write(stream, data)
            return
        *lines, rest = (self._begun.pop((replica, stream), b"") + data).split(b"\n")
        if len(rest) > PARTIAL_BYTES:
            lines, rest = [*lines, rest], b""
        if rest:
            self._begun[replica, stream] = rest
        self._write(stream, b"".join(b"[%s] %s\n" % (replica.encode(), _last_state(line)) for line in lines))

    def say(self, text: str) -> None:
        """stoker's own words, which are no result."""
        self._write("stderr", f"{text}\n".encode())

    def finish(self) -> None:
        for replica, stream in list(self._begun):
            self.show(replica, stream, b"\n")

    def _write(self, stream: str, data: bytes) -> None:
        file = self._files.get(stream)
        if file is None or not data:
            return
        try:
            file.write(data)
            file.flush()
        except (BrokenPipeError, ValueError):  # nobody reads it any more: as for any program in a pipe, that is the end
            del self._files[stream]
            self._on_closed()


def _last_state(line: bytes) -> bytes:
    return line.removesuffix(b"\r").rpartition(b"\r")[2]
