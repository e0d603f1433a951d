"""The process that listens: starts workers, restarts those that die, and leads all of them to a new version together.

It imports no model's library and answers no request; the socket is its own, so a connection made while a worker is
being replaced waits instead of failing.
"""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from stoker.errors import StokerError, UsageError
from stoker.predict.online.meters import Meters
from stoker.predict.online.settings import Limits, Located, Order, Report, WorkerSettings

logger = logging.getLogger("stoker.serve")

Find = Callable[[], Located]

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_PATIENCE_S = 30.0  # the longest wait before a worker that dies again and again is started again


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one. UsageError when it cannot be had."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        raise UsageError(f"{host} port {port} cannot be had: {error.strerror}. Choose another with --port.") from error
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Fleet:
    """The workers of one server, from `run` until a signal."""

    def __init__(
        self,
        find: Find,
        listener: socket.socket,
        *,
        workers: int = 1,
        limits: Limits | None = None,
        trust_pickle: bool = False,
        token: str | None = None,
        watch_s: float | None = None,
    ) -> None:
        self._find = find
        self._listener = listener
        self._count = workers
        self._limits = limits or Limits()
        self._trust_pickle = trust_pickle
        self._token = token
        self._watch_s = watch_s  # None: look for another version only on SIGUSR1
        self._workers: dict[int, _Worker] = {}
        self._refused: Located | None = None

    def run(self, when_ready: Callable[[Located], None]) -> None:
        """Serve until SIGTERM or SIGINT. Raises the StokerError that kept the first workers from serving."""
        with tempfile.TemporaryDirectory(prefix="stoker-serve-") as folder:
            self._meters = Path(folder) / "meters"
            Meters.make(self._meters, slots=self._count)
            asyncio.run(self._run(when_ready))

    async def _run(self, when_ready: Callable[[Located], None]) -> None:
        self._stop = asyncio.Event()
        self._look = asyncio.Event()
        self._changing = asyncio.Lock()  # a worker starts, or all move to another version: never both
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._stop.set)  # the terminal is gone
        loop.add_signal_handler(signal.SIGUSR1, self._look.set)
        self._located = await asyncio.to_thread(self._find)
        keepers: list[asyncio.Task[None]] = []
        try:
            first = [await self._start(slot) for slot in range(self._count)]
            if await self._all_serve(first):
                when_ready(self._located)
                keepers = [asyncio.create_task(self._keep(slot)) for slot in range(self._count)]
                keepers.append(asyncio.create_task(self._watch()))
                await self._stop.wait()
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
            await asyncio.gather(*(worker.end(self._limits.timeout_s + 5) for worker in self._workers.values()))

    async def _all_serve(self, workers: "list[_Worker]") -> bool:
        """False when told to stop meanwhile."""
        stopping = asyncio.create_task(self._stop.wait())
        for worker in workers:
            hearing = asyncio.create_task(worker.hear())
            await asyncio.wait({hearing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                hearing.cancel()
                return False
            report = hearing.result()
            if not report.serving:
                error = StokerError(report.error or "A worker ended before it served.")
                error.exit_code = report.exit_code
                raise error
        stopping.cancel()
        return True

    async def _start(self, slot: int) -> "_Worker":
        worker = await _Worker.start(
            WorkerSettings(
                located=self._located,
                limits=self._limits,
                trust_pickle=self._trust_pickle,
                token=self._token,
                listener=self._listener.fileno(),
                reports=0,
                meters=str(self._meters),
                slot=slot,
            ),
            # A thread of the model's for each core but one: a small model that waits for threads which have no core
            # is ten times as slow, and somebody must speak with the clients.
            threads=max(1, (os.cpu_count() or 1) // self._count - 1),
        )
        self._workers[slot] = worker
        return worker

    async def _keep(self, slot: int) -> None:
        """Whenever this slot's worker ends, another one takes its place."""
        wait_s = 0.0
        while True:
            worker = self._workers[slot]
            code = await worker.process.wait()
            Meters.end(self._meters, slot)
            logger.error("worker %d (pid %d) ended: %s; starting another", slot, worker.process.pid, _in_words(code))
            await asyncio.sleep(wait_s)
            wait_s = min(_PATIENCE_S, max(1.0, wait_s * 2))
            async with self._changing:
                report = await (await self._start(slot)).hear()
            if report.serving:
                wait_s = 0.0
                logger.error("worker %d serves again", slot)
            elif report.error:
                logger.error("worker %d: %s", slot, report.error)

    async def _watch(self) -> None:
        """Look for another version, from time to time or when told."""
        is_silent = False
        while True:
            try:
                await asyncio.wait_for(self._look.wait(), self._watch_s)
            except TimeoutError:
                pass
            was_told = self._look.is_set()
            self._look.clear()
            try:
                found = await asyncio.to_thread(self._find)
            except StokerError as error:
                if not is_silent:
                    logger.error("cannot look for another version: %s", error)
                is_silent = True
                continue
            is_silent = False
            if was_told or found not in (self._located, self._refused):
                async with self._changing:
                    await self._move_to(found)

    async def _move_to(self, found: Located) -> None:
        """All workers load it, then all switch; or none does, and what served goes on serving."""
        workers = list(self._workers.values())
        name = f"version {found.version}" if found.version else found.folder
        for worker in workers:
            worker.tell(Order(load=found))
        answers = await asyncio.gather(*(worker.hear() for worker in workers))
        errors = [answer.error or "a worker ended" for answer in answers if answer.loaded != found.folder]
        for worker in workers:
            worker.tell(Order(drop=True) if errors else Order(switch=True))
        if errors:
            self._refused = found
            logger.error("%s is not taken, the old one goes on: %s", name, errors[0])
            return
        self._located, self._refused = found, None
        await asyncio.gather(*(worker.hear() for worker in workers))
        logger.warning("now serving %s", name)


class _Worker:
    """One process, seen from here."""

    def __init__(self, process: asyncio.subprocess.Process, reports: asyncio.StreamReader) -> None:
        self.process = process
        self._reports = reports

    @classmethod
    async def start(cls, settings: WorkerSettings, *, threads: int) -> "_Worker":
        reading, writing = os.pipe()
        environment = {**{name: str(threads) for name in _THREADS}, **os.environ}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # a json.py in the folder where somebody says `stoker serve` is not ours
            "-m",
            "stoker.predict.online.worker",
            stdin=subprocess.PIPE,
            stdout=2,  # what a model prints is talk
            pass_fds=(settings.listener, writing),
            env=environment,
        )
        os.close(writing)
        reports = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reports)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(reading, "rb", buffering=0))
        worker = cls(process, reports)
        worker._write(settings.with_(reports=writing).model_dump_json())
        return worker

    async def hear(self) -> Report:
        """The next report; one with an error when the worker has ended without a word."""
        line = await self._reports.readline()
        if not line:
            return Report(error=f"a worker ended: {_in_words(await self.process.wait())}")
        return Report.model_validate_json(line)

    def tell(self, order: Order) -> None:
        self._write(order.model_dump_json())

    async def end(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL for one that does not heed it."""
        if self.process.returncode is None:
            self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), grace_s)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()

    def _write(self, line: str) -> None:
        assert self.process.stdin is not None
        if not self.process.stdin.is_closing():
            self.process.stdin.write(line.encode() + b"\n")


def _in_words(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
