"""The process that listens: starts workers, restarts those that die, and replaces all of them for a new version.

It imports no model's library and answers no request; the socket is its own, so a connection made while a worker is
being replaced waits instead of failing. A new version is loaded by new workers beside the old ones: one that cannot be
loaded, or takes the process down with it, harms nobody, and no code or memory of the old one is left when it goes.
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
from stoker.predict.online.metrics import Metrics
from stoker.predict.online.settings import Limits, ModelLocation, Report, WorkerCommand, WorkerSettings

logger = logging.getLogger("stoker.serve")

Find = Callable[[], ModelLocation]

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_GENERATIONS = 4  # of workers that may have counters at a time: those that serve, and those that are leaving
_MEMORY = "/dev/shm"
_LEAVE_S = 60.0
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


class WorkerPool:
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
        self._leaving: set[asyncio.Task[None]] = set()
        self._generation = 0
        self._refused: ModelLocation | None = None

    def run(self, when_ready: Callable[[ModelLocation], None]) -> None:
        """Serve until SIGTERM or SIGINT. Raises the StokerError that kept the first workers from serving."""
        # In memory: a page of a file on a disk keeps its writer waiting while the kernel writes it out.
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="stoker-serve-", dir=memory) as folder:
            self._metrics_file = Path(folder) / "metrics"
            Metrics.make(self._metrics_file, slots=self._count * _GENERATIONS)
            asyncio.run(self._run(when_ready))

    async def _run(self, when_ready: Callable[[ModelLocation], None]) -> None:
        self._stop = asyncio.Event()
        self._look = asyncio.Event()
        self._changing = asyncio.Lock()  # a worker starts, or all move to another version: never both
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # the last: the terminal is gone
            if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` and scripts' `&` mean that
                loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGUSR1, self._look.set)
        self._located = await asyncio.to_thread(self._find)
        keepers: list[asyncio.Task[None]] = []
        try:
            self._workers = {slot: await self._start(slot, self._located, 0) for slot in range(self._count)}
            if await self._all_serve():
                when_ready(self._located)
                keepers = [asyncio.create_task(self._keep(slot)) for slot in range(self._count)]
                keepers.append(asyncio.create_task(self._watch()))
                await self._stop.wait()
        finally:
            for keeper in [*keepers, *self._leaving]:
                keeper.cancel()
            await asyncio.gather(*keepers, *self._leaving, return_exceptions=True)
            await asyncio.gather(*(worker.end(self._limits.timeout_s + 5) for worker in self._workers.values()))

    async def _all_serve(self) -> bool:
        """False when told to stop meanwhile."""
        stopping = asyncio.create_task(self._stop.wait())
        for worker in self._workers.values():
            hearing = asyncio.create_task(worker.next_report())
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

    async def _start(self, slot: int, located: ModelLocation, generation: int) -> "_Worker":
        settings = WorkerSettings(
            located=located,
            limits=self._limits,
            trust_pickle=self._trust_pickle,
            token=self._token,
            listener=self._listener.fileno(),
            metrics=str(self._metrics_file),
            slot=generation % _GENERATIONS * self._count + slot,
        )
        # A thread of the model's for each core but one: a small model that waits for threads which have no core is ten
        # times as slow, and somebody must speak with the clients.
        return await _Worker.start(settings, threads=max(1, (os.cpu_count() or 1) // self._count - 1))

    async def _keep(self, slot: int) -> None:
        """Whenever this slot's worker ends, another one takes its place."""
        wait_s = 0.0
        while True:
            worker = self._workers[slot]
            code = await worker.process.wait()
            if self._workers[slot] is not worker:
                continue  # it left for a new version
            worker.forget(self._metrics_file)
            logger.error("worker %d (pid %d) ended: %s; starting another", slot, worker.process.pid, _in_words(code))
            await asyncio.sleep(wait_s)
            wait_s = min(_PATIENCE_S, max(1.0, wait_s * 2))
            async with self._changing:
                if self._workers[slot] is not worker:
                    continue
                self._workers[slot] = await self._start(slot, self._located, worker.slot // self._count)
                report = await self._workers[slot].next_report()
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

    async def _move_to(self, found: ModelLocation) -> None:
        """New workers load it beside the old ones; when all serve, the old ones leave. Or else the new ones do."""
        name = f"version {found.version}" if found.version else found.folder
        self._generation = self._free_generation()
        new = {slot: await self._start(slot, found, self._generation) for slot in range(self._count)}
        answers = await asyncio.gather(*(worker.next_report() for worker in new.values()))
        errors = [answer.error or "a worker ended" for answer in answers if not answer.serving]
        old, grace_s = self._workers, self._limits.timeout_s + _LEAVE_S
        if errors:
            self._refused = found
            logger.error("%s is not taken, the old one goes on: %s", name, errors[0])
            old = new
        else:
            self._located, self._refused, self._workers = found, None, new
            logger.warning("now serving %s", name)
        for worker in old.values():
            worker.send(WorkerCommand(drain=True))
            self._leaving.add(asyncio.create_task(worker.leave(grace_s, self._metrics_file)))

    def _free_generation(self) -> int:
        """The next whose counters are nobody's who serves: those may be from long before the last that were refused."""
        used = {worker.slot // self._count for worker in self._workers.values()}
        following = range(self._generation + 1, self._generation + 1 + _GENERATIONS)
        return next((each for each in following if each % _GENERATIONS not in used), self._generation + 1)


class _Worker:
    """One process, seen from here."""

    def __init__(self, process: asyncio.subprocess.Process, reports: asyncio.StreamReader, slot: int) -> None:
        self.process = process
        self.slot = slot
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
        worker = cls(process, reports, settings.slot)
        worker._write(settings.with_(reports=writing).model_dump_json())
        return worker

    async def next_report(self) -> Report:
        """The next report; one with an error when the worker has ended without a word."""
        line = await self._reports.readline()
        if not line:
            return Report(error=f"a worker ended: {_in_words(await self.process.wait())}")
        return Report.model_validate_json(line)

    def send(self, command: WorkerCommand) -> None:
        self._write(command.model_dump_json())

    async def leave(self, grace_s: float, metrics_file: Path) -> None:
        """It was told to; see that it does, and at once if we do."""
        try:
            await asyncio.wait_for(self.process.wait(), grace_s)
        except TimeoutError:
            await self.end(1.0)
        except asyncio.CancelledError:
            await self.end(grace_s)
        self.forget(metrics_file)

    def forget(self, metrics_file: Path) -> None:
        """Its counts stay, but it is no longer there."""
        Metrics.end(metrics_file, self.slot)

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
