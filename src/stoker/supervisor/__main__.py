"""`python -m stoker.supervisor RUN_DIR [--node N] [--lifeline FD] [--drain]`: what an engine starts on a node.

Imports little, because user code waits for it: the rest is loaded once user code runs.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.errors import ConflictError, StokerError
from stoker.host.home import Home
from stoker.run_dir import RunDir
from stoker.schema.launch import Launch
from stoker.supervisor.inputs import Inputs
from stoker.supervisor.process import StopRequest, on_signals
from stoker.supervisor.spool import Spool
from stoker.supervisor.supervise import LostError, RemovedError, Supervision, check_is_there

if TYPE_CHECKING:
    from stoker.supervisor.ship import Shipper

USAGE = "usage: python -m stoker.supervisor RUN_DIR [--node N] [--lifeline FD] [--drain]"
_TRIAL_QUIET_S = 0.05
_LOOK_S = 0.25  # how often a finished run looks whether it is still to wait for a server
_SHIP_FOR_S = 24 * 3600.0  # how long a finished run waits for a server to take its last words


def main(arguments: list[str]) -> int:
    words = [word for word in arguments if word != "--drain"]
    node = _take_number(words, "--node") or 0
    lifeline = _take_number(words, "--lifeline")
    if len(words) != 1 or words[0].startswith("-"):
        sys.stderr.write(USAGE + "\n")
        return 2
    run_dir = RunDir(Path(words[0]).absolute())
    try:
        if "--drain" in arguments:
            return drain(run_dir, home=Home.find(), node=node)
        return supervise(run_dir, home=Home.find(), node=node, lifeline=lifeline)
    except StokerError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


def _take_number(words: list[str], flag: str) -> int | None:
    if flag not in words[:-1]:
        return None
    at = words.index(flag)
    number = int(words[at + 1])
    del words[at : at + 2]
    return number


def supervise(run_dir: RunDir, *, home: Home, node: int = 0, lifeline: int | None = None) -> int:
    """Run it and tell the server all of it. 0 when that was done, however the run itself ended.

    `lifeline` is a pipe that whoever started us holds open: when it is gone, nobody else would end what we started.
    """
    launch = Launch.read(run_dir)
    spool = Spool(run_dir.spool)
    if spool.recovered.seq:
        raise ConflictError(f"{run_dir} holds a run already. Each attempt has a directory of its own.")
    supervision = Supervision(launch, run_dir, home=home, spool=spool, node=node)
    on_signals(
        {
            signal.SIGTERM: supervision.hear_signal,
            signal.SIGINT: supervision.hear_signal,
            # Of no concern to us; but not ignored, because user code would inherit that.
            signal.SIGHUP: lambda: None,
        }
    )
    if lifeline is not None:
        _end_with(lifeline, supervision.stop)
    server = _Server(launch, home=home, spool=spool, node=node, stop=supervision.stop)
    supervision.on_slow = server.begin_in_time
    try:
        supervision.run()
    except LostError:
        server.finish(is_told=lambda: supervision.is_told_to_leave)
        raise
    except RemovedError:
        raise
    except Exception as error:  # noqa: BLE001 -- a bug of ours must end the run in words, not leave it to be found lost
        check_is_there(spool)
        import traceback  # noqa: PLC0415 -- see above

        traceback.print_exc()
        spool.end(
            phase=supervision.phase, message=f"The supervisor failed: {error!r}.", traceback=traceback.format_exc()
        )
    code = server.finish(is_told=lambda: supervision.is_told_to_leave)
    if code == 0 and supervision.inputs.artifacts is not None:
        supervision.inputs.artifacts.finish(is_told=lambda: supervision.is_told_to_leave or supervision.stop.at_once)
    return code


def _end_with(lifeline: int, stop: StopRequest) -> None:
    """End everything at once when the other end of this pipe is closed."""

    def wait() -> None:
        while os.read(lifeline, 1):
            pass
        stop.ask("preempt")
        stop.ask_at_once()

    os.set_inheritable(lifeline, False)
    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def drain(run_dir: RunDir, *, home: Home, node: int = 0) -> int:
    """Tell the server what a supervisor that was killed had no time to tell; starts and ends nothing."""
    launch = Launch.read(run_dir)
    spool = Spool(run_dir.spool, wait=True)
    try:
        if not spool.recovered.has_ended:
            inputs = Inputs(run_dir, spool)
            if launch.artifacts is not None:
                from stoker.supervisor.artifacts import Artifacts  # noqa: PLC0415 -- few runs need it

                inputs.artifacts = Artifacts(launch, run_dir, home=home, say=inputs.say)
            inputs.open(launch.on_node(node), launch=launch)
            inputs.finish()
        return _Server(launch, home=home, spool=spool, node=node).finish()
    finally:
        spool.close()


class _Server:
    """The threads that speak to the server; begun late, because what they import would delay user code."""

    def __init__(self, launch: Launch, *, home: Home, spool: Spool, node: int, stop: StopRequest | None = None) -> None:
        self._launch, self._home, self._spool, self._node, self._stop = launch, home, spool, node, stop
        self._shipper: Shipper | None = None
        self._begin_at = 0.0

    def begin_in_time(self) -> None:
        """For a trial of a search not at once: one that is over by then is told of in one request instead of three."""
        if self._shipper is None:
            self._begin_at = self._begin_at or time.monotonic() + (_TRIAL_QUIET_S if self._launch.warm else 0.0)
            if time.monotonic() >= self._begin_at:
                self._begin(hear_orders=True)

    def _begin(self, *, hear_orders: bool) -> None:
        import logging  # noqa: PLC0415 -- see the class

        from stoker.supervisor.ship import OrderListener, Shipper  # noqa: PLC0415

        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
        find_server, run = self._home.server, self._launch.run
        on_stop = self._stop.ask if self._stop is not None else lambda reason: None
        shipper = Shipper(self._spool.path, run=run, node=self._node, find_server=find_server, on_stop=on_stop)
        self._spool.grew = shipper.wake
        shipper.start()
        if hear_orders:
            OrderListener(run=run, find_server=find_server, on_stop=on_stop).start()
        self._shipper = shipper

    def finish(self, *, is_told: Callable[[], bool] = lambda: False) -> int:
        """Tell it the rest, however long that takes within reason, or until we are told to leave.

        What is left then is on disk, and the next server has it drained. RemovedError when it is there no more.
        """
        check_is_there(self._spool)
        if self._shipper is None:
            self._begin(hear_orders=False)
        assert self._shipper is not None
        give_up = time.monotonic() + _SHIP_FOR_S
        while not self._shipper.close(timeout_s=_LOOK_S) and self._shipper.is_alive():
            check_is_there(self._spool)
            if is_told() or time.monotonic() > give_up:
                sys.stderr.write(f"Ended before a server took all of {self._spool.path}: the next one will.\n")
                break
        return 0 if self._shipper.has_sent_all else 1


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the interpreter's own end would wait for threads of a copy that a store holds up
