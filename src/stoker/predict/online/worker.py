"""`python -m stoker.predict.online.worker`: one process that loads the model and answers, on a socket it was given.

Its settings are the first line of its standard input, commands the lines after it. When that ends (its parent is gone)
or on SIGTERM it takes no more, answers what it has, and leaves.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from stoker.errors import StokerError
from stoker.predict.online.app import App, Served
from stoker.predict.online.batching import Batcher
from stoker.predict.online.http import HttpServer, Request
from stoker.predict.online.metrics import Metrics
from stoker.predict.online.settings import ModelLocation, Report, WorkerCommand, WorkerSettings

if TYPE_CHECKING:
    from stoker.predict.base import Predictor

logger = logging.getLogger("stoker.serve")

_TICK_S = 0.1
_DRAIN_S = 30.0
# A call that outlasts its request's time by so much will not return, and nothing else can be predicted meanwhile.
_STUCK_FACTOR, _STUCK_S = 2.0, 10.0
STUCK = 70  # exit code


def main() -> int:
    settings = WorkerSettings.model_validate_json(sys.stdin.buffer.readline())
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # a terminal's Ctrl-C reaches all of us; the parent decides
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    reports = Reports(settings.reports)
    try:
        predictor = load(settings.located, trust_pickle=settings.trust_pickle)
    except StokerError as error:
        reports.send(Report(error=str(error), exit_code=error.exit_code))
        return 1
    uvloop.run(Worker.serve(settings, predictor, reports))
    reports.close()
    # Not through the interpreter's end: a model's threads may be in the midst of something, and nobody waits for it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def load(located: ModelLocation, *, trust_pickle: bool) -> "Predictor":
    """The model, or a StokerError in one line, whatever its code does."""
    from stoker.predict.loading import MadeOn  # noqa: PLC0415  what it cannot import is a report, too
    from stoker.predict.loading import load as load_model  # noqa: PLC0415

    made_on = MadeOn(located.runtime_version, located.python_version)
    try:
        return load_model(
            located.folder,
            trust_pickle=trust_pickle,
            prediction_class=located.prediction_class,
            made_on=made_on,
        )
    except StokerError:
        raise
    except Exception as error:
        logger.exception("loading %s failed", located.folder)
        raise StokerError(f"{located.folder} cannot be loaded: {type(error).__name__}: {error}") from error


class Reports:
    """The way back to the parent."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # what a model starts must not hold it open
        self._file = os.fdopen(descriptor, "wb", buffering=0)

    def send(self, report: Report) -> None:
        try:
            self._file.write(report.model_dump_json().encode() + b"\n")
        except OSError:  # the parent is gone; standard input says so as well
            logger.warning("nobody hears: %s", report)

    def close(self) -> None:
        self._file.close()


class Worker:
    """The event loop's side: who answers, what is looked at from time to time, and when to leave."""

    def __init__(self, settings: WorkerSettings, predictor: "Predictor", reports: Reports) -> None:
        self._settings = settings
        self._reports = reports
        self._loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        self._metrics = Metrics(Path(settings.metrics), settings.slot)
        self._app = App(self._served(settings.located, predictor), metrics=self._metrics, token=settings.token)
        self._idle_s = 0.0  # how long silent connections are left open when we leave
        self._server = HttpServer(
            self._app.answer,
            refuse=self._app.refuse,
            fail=self._app.fail,
            observe=self._observe,
            max_body_bytes=settings.limits.max_body_bytes,
            timeout_s=settings.limits.timeout_s,
        )

    @classmethod
    async def serve(cls, settings: WorkerSettings, predictor: "Predictor", reports: Reports) -> None:
        """Until told to leave."""
        await cls(settings, predictor, reports)._serve()

    async def _serve(self) -> None:
        self._loop.add_signal_handler(signal.SIGTERM, self._hurry)
        # What is loaded stays: the collector need not look through it again and again, which some request would pay.
        gc.collect()
        gc.freeze()
        await self._server.open(socket.socket(fileno=self._settings.listener))
        ticking = asyncio.ensure_future(self._tick())
        threading.Thread(target=self._read_commands, name="commands", daemon=True).start()
        self._reports.send(Report(serving=True))
        await self._leave.wait()
        await self._server.close(grace_s=self._settings.limits.timeout_s + 1, idle_s=self._idle_s)
        ticking.cancel()

    async def _tick(self) -> None:
        limits = self._settings.limits
        while True:
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            self._server.tick(now)
            batcher = self._app.served.batcher
            batcher.tick(now)
            self._metrics.set_queue(batcher.depth)
            if batcher.stuck_s(now) > limits.timeout_s * _STUCK_FACTOR + _STUCK_S:
                logger.error("a call of the model does not return; this worker gives way to a new one")
                os._exit(STUCK)

    def _hurry(self) -> None:
        self._server.is_hurried = True
        self._leave.set()

    def _read_commands(self) -> None:
        """A thread, since reading waits."""
        for line in sys.stdin.buffer:
            if WorkerCommand.model_validate_json(line).drain:
                self._idle_s = _DRAIN_S
                break
        self._loop.call_soon_threadsafe(self._leave.set)

    def _served(self, located: ModelLocation, predictor: "Predictor") -> Served:
        batcher = Batcher(predictor, limits=self._settings.limits, observe=self._metrics.count_batch)
        return Served(located.name, located.version, predictor, batcher)

    def _observe(self, request: Request, status: int, took_s: float) -> None:
        self._metrics.count_request(request.route, status, took_s)


if __name__ == "__main__":
    sys.exit(main())
