"""The agent of a node: the one actor there, which starts the supervisors of runs, knows how they ended, and ends them.

Sent to the cluster by value and standard library only, because a node's Python need not have stoker: the agent brings
stoker's source along, unpacks it into the node's home, and gives it to supervisors by PYTHONPATH.
"""

import asyncio
import contextlib
import io
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.host.processes import ProcessId
    from stoker.run_dir import RunDir

_LOOK_S = 1.0
_RANKS_S = 0.2
MOST_CALLS = 10_000  # at once: each run that is watched is one
_MOST_KNOWN = 1000
WRITTEN = "# Written by stoker's server: of its own config.toml.\n"
_START = 'setsid "$@" </dev/null >>"$0" 2>&1 & echo $!'


@dataclass(frozen=True)
class Site:
    """Where things are on a node, as the pool's owner said: the same words for all nodes."""

    home: str  # "~" is the node's own
    python: str  # of supervisors; "" is the one Ray's workers have
    source: str  # names the version of stoker's source

    @property
    def home_folder(self) -> Path:
        return Path(self.home).expanduser().absolute()

    @property
    def source_folder(self) -> Path:
        return self.home_folder / "stoker" / self.source


class Agent:
    """Stays where it is while runs come and go: a new actor for each would cost a Python that imports Ray."""

    def __init__(self, site: Site, archive: bytes, *, idle_s: float) -> None:
        """`archive` is stoker's source."""
        self._site, self._idle_s = site, idle_s
        _unpack(archive, site.source_folder)
        sys.path.insert(0, str(site.source_folder))
        self._cradle = _Cradle(site)
        self._nodes: dict[tuple[str, int], Node] = {}
        self._threads = ThreadPoolExecutor(max_workers=MOST_CALLS)
        self._calls = 0
        self._asked = time.monotonic()
        threading.Thread(target=_end_with_raylet, args=(os.getppid(),), name="raylet", daemon=True).start()
        threading.Thread(target=self._end_when_idle, name="idle", daemon=True).start()

    async def do(self, run: str, node: int, call: str, *arguments: Any) -> Any:
        """Have a node of a run do something: `call` is a method of Node."""
        self._calls += 1
        try:
            method = getattr(self._node(run, node), call)
            return await asyncio.get_running_loop().run_in_executor(self._threads, method, *arguments)
        finally:
            self._calls -= 1
            self._asked = time.monotonic()

    async def tell_server(self, server: dict[str, Any]) -> None:
        """Where the server is now: supervisors look there again whenever it does not answer."""
        _tell_server(self._site.home_folder, server)

    def _node(self, run: str, node: int) -> "Node":
        if (run, node) not in self._nodes:
            # Those that have ended are remembered for a while: a late call must not start them again.
            for known in [key for key, found in self._nodes.items() if not found.is_alive][:-_MOST_KNOWN]:
                del self._nodes[known]
            self._nodes[run, node] = Node(run, node, self._site, self._cradle)
        return self._nodes[run, node]

    def _end_when_idle(self) -> None:
        while self._calls or time.monotonic() - self._asked < self._idle_s or self._has_runs():
            time.sleep(_LOOK_S)
        os._exit(0)

    def _has_runs(self) -> bool:
        return any(node.is_alive for node in list(self._nodes.values()))


class Node:
    """One node of one run. Every method may be called again, by a bridge that knows nothing of the last one."""

    def __init__(self, run: str, node: int, site: Site, cradle: "_Cradle") -> None:
        from stoker.host.home import Home  # noqa: PLC0415 -- of the source that the agent brought

        self._node, self._cradle = node, cradle
        self._home = site.home_folder
        job, trial, attempt = run.rsplit(".", 2)
        self._of_run = Home(self._home).run_dir(job, int(trial), int(attempt))
        self._run_dir = self._of_run.node(node)
        self._ports: dict[str, int] = {}
        self._held: list[socket.socket] = []  # so that nobody else is given these ports
        self._supervisor: ProcessId | None = None
        self._lifeline: int | None = None
        self._is_over = False
        # Starting, ending and letting go must not cross: a descriptor that two close is another run's the second time.
        self._lock = threading.RLock()

    @property
    def is_alive(self) -> bool:
        return self._supervisor is not None and self._supervisor.is_alive()

    def look(self, replicas: list[str]) -> dict[str, int]:
        """Free ports for these replicas, held until it starts."""
        for name in replicas:
            if name not in self._ports and self._supervisor is None:
                listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(("", 0))
                self._held.append(listener)
                self._ports[name] = listener.getsockname()[1]
        return self._ports

    def start(self, launch: str, server: dict[str, Any], files: dict[str, str], variables: dict[str, str]) -> None:
        """Write the run directory and start the supervisor, unless that was done or it is to be over already."""
        with self._lock:
            if self._supervisor is not None or self._is_over:
                return
            _tell_server(self._home, server)
            self._run_dir.path.mkdir(parents=True, exist_ok=True)
            if self._node:  # one folder for all ranks, where nodes share their file system
                self._of_run.checkpoints.mkdir(exist_ok=True)
                if not self._run_dir.checkpoints.exists():
                    self._run_dir.checkpoints.symlink_to(self._of_run.checkpoints)
            for name, text in files.items():
                _provide(self._home / name, text)
            self._run_dir.write_launch(launch)
            self._let_go()
            self._supervisor = self._spawn(variables)

    def watch(self) -> dict[str, Any]:
        """Blocks until the supervisor has ended; whether it had come to the end of its run, and its last words."""
        from stoker.engines import traces  # noqa: PLC0415 -- of the source that the agent brought

        if self._supervisor is not None:
            _wait(self._supervisor)
        self._let_go()
        return {"in_order": traces.has_ended(self._run_dir), "log": traces.last_words(self._run_dir)}

    def watch_ranks(self) -> None:
        """Blocks until nobody on this node works any more: all has ended there, or only parameter servers are left."""
        while self.is_alive and not self._run_dir.serving.exists():
            time.sleep(_RANKS_S)

    def stop(self) -> None:
        """Ask the supervisor to end its run."""
        if self._supervisor is not None:
            self._supervisor.kill(signal.SIGTERM)

    def end(self) -> bool:
        """End the supervisor and all that it started, at once; False if something cannot be ended."""
        with self._lock:
            self._is_over = True
        from stoker.engines import traces  # noqa: PLC0415 -- as above

        ended = traces.end_run(self._run_dir, traces.living(self._run_dir))
        self._let_go()
        return ended

    def drain(self, server: dict[str, Any]) -> None:
        """Blocks until what a killed supervisor left in this directory has been sent."""
        if self._run_dir.spool.exists():
            self.end()  # a node that was thought lost may be there after all
            _tell_server(self._home, server)
            _wait(self._spawn({}, "--drain"))
            self._let_go()

    def _let_go(self) -> None:
        with self._lock:
            while self._held:
                self._held.pop().close()
            if not self.is_alive and self._lifeline is not None:
                lifeline, self._lifeline = self._lifeline, None
                os.close(lifeline)

    def _spawn(self, variables: dict[str, str], *flags: str) -> "ProcessId":
        reader, self._lifeline = os.pipe()
        try:
            words = ["--node", str(self._node), *flags]
            return self._cradle.start(self._run_dir, words, variables=variables, lifeline=None if flags else reader)
        finally:
            os.close(reader)


class _Cradle:
    """Starts supervisors: forks of a nursery from the second on, fresh processes while there is none.

    They are not our children but init's or the nursery's: Ray kills a worker's children with it, and then nobody would
    end the replicas. The lifeline, a pipe, tells a supervisor when we are gone.
    """

    def __init__(self, site: Site) -> None:
        from stoker.engines.nursery import Nursery  # noqa: PLC0415 -- as above

        self._home = site.home_folder
        python = site.python or sys.executable
        self._python = shutil.which(python) or python
        self._source = str(site.source_folder)
        self._nursery = Nursery(self._python)
        self._lock = threading.Lock()
        self._has_started = False

    def start(
        self, run_dir: "RunDir", flags: list[str], *, variables: dict[str, str], lifeline: int | None
    ) -> "ProcessId":
        from stoker.engines import traces  # noqa: PLC0415 -- as above
        from stoker.engines.nursery import Unanswered  # noqa: PLC0415

        words = [self._python, "-P", "-m", "stoker.supervisor", str(run_dir), *flags]
        # Ray's token and addresses are not for user code.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "STOKER_"))}
        environment |= {**variables, "STOKER_HOME": str(self._home), "PYTHONPATH": self._source}
        log = run_dir.supervisor_log
        with self._lock:
            if self._has_started:
                with contextlib.suppress(OSError):  # there is no such Python: the log will say so
                    self._nursery.start(environment)
            self._has_started = True
            try:
                found = self._nursery.fork(words, log=log, environment=environment, lifeline=lifeline)
            except Unanswered:
                found = next(iter(traces.living(run_dir)), None)
        return found or self._spawn(words, environment, log=log, lifeline=lifeline)

    def _spawn(self, words: list[str], environment: dict[str, str], *, log: Path, lifeline: int | None) -> "ProcessId":
        from stoker.host.processes import ProcessId  # noqa: PLC0415 -- as above

        given = () if lifeline is None else (lifeline,)
        done = subprocess.run(
            ["sh", "-c", _START, str(log), *words, *(["--lifeline", str(lifeline)] if given else [])],
            env=environment,
            cwd=self._home,
            pass_fds=given,
            stdout=subprocess.PIPE,
            check=True,
        )
        pid = int(done.stdout)
        return ProcessId.of(pid) or ProcessId(pid, 0)  # it may have ended already


def visible_gpus() -> dict[str, str]:
    """The variables by which Ray tells a worker which GPUs are its own."""
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR")
    return {name: os.environ[name] for name in names if name in os.environ}


def _tell_server(home: Path, server: dict[str, Any]) -> None:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = home / "server.json"
    if server and not (path.exists() and path.read_text() == json.dumps(server)):
        _replace(path, json.dumps(server))


def _provide(path: Path, text: str) -> None:
    """A file of the server's home, for those who look for it here; what the node's owner has put there stays."""
    known = path.read_text() if path.exists() else WRITTEN
    if text and known != text and known.startswith(WRITTEN):
        _replace(path, text)


def _end_with_raylet(raylet: int) -> None:
    """Ray lets a worker that is busy live on when its raylet has ended in order; but nobody could reach us then."""
    while os.getppid() == raylet:
        time.sleep(_LOOK_S)
    os._exit(1)  # the supervisor hears of it by its lifeline, and ends the run


def _wait(process: "ProcessId") -> None:
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    if process.is_alive():
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll()
    os.close(descriptor)
    while process.is_alive():  # its first thread has ended, others have not quite
        time.sleep(0.01)


def _unpack(archive: bytes, to: Path) -> None:
    """Whole or not at all; agents of other nodes may do so at once, where they share their file system."""
    if (to / "stoker").exists():
        return
    partial = to.with_name(f".{to.name}.{os.getpid()}.{time.time_ns()}")
    partial.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(partial, filter="data")
    try:
        partial.rename(to)
    except OSError:  # another was first
        shutil.rmtree(partial)
        if not (to / "stoker").exists():
            raise


def _replace(path: Path, text: str) -> None:
    from stoker.atomic import replace_file  # noqa: PLC0415 -- of the source that the agent brought

    replace_file(path, text, mode=0o600)
