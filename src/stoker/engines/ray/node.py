"""The actor on one node of a run: it starts the node's supervisor, knows how that ended, and can end all of it.

Sent to the cluster by value and standard library only, because a node's Python need not have stoker: the actor brings
stoker's source along, unpacks it into the node's home, and gives it to the supervisor by PYTHONPATH.
"""

import io
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LOG_BYTES = 2000
_LAST_EVENT_BYTES = 200_000  # a long traceback is in it
_LOOK_S = 1.0
_RANKS_S = 0.2
_START = 'setsid "$@" </dev/null >>"$0" 2>&1 & echo $!'


@dataclass(frozen=True)
class Site:
    """Where things are on a node, as the pool's owner said: the same words for all nodes."""

    home: str  # "~" is the node's own
    python: str  # of supervisors; "" is the one Ray's workers have
    source: str  # names the version of stoker's source


class Node:
    """One node of one run. Every method may be called again, by a bridge that knows nothing of the last one."""

    def __init__(self, run: str, path: tuple[str, int, int], node: int, site: Site) -> None:
        self._run, self._node, self._site = run, node, site
        self._home = Path(site.home).expanduser().absolute()
        job, trial, attempt = path
        self._run_dir = self._home / "runs" / job / str(trial) / str(attempt)
        if node:
            self._run_dir = self._run_dir / "nodes" / str(node)
        self._ports: dict[str, int] = {}
        self._held: list[socket.socket] = []  # so that nobody else is given these ports
        self._pid: int | None = None
        self._lifeline: int | None = None
        threading.Thread(target=_end_with_raylet, args=(os.getppid(),), name="raylet", daemon=True).start()

    def look(self, replicas: list[str]) -> dict[str, Any]:
        """Whether stoker's source is here, and free ports for the node's replicas, held until it starts."""
        for name in replicas:
            if name not in self._ports and self._pid is None:
                listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(("", 0))
                self._held.append(listener)
                self._ports[name] = listener.getsockname()[1]
        has_source = (self._source / "stoker").exists()
        return {"has_source": has_source, "ports": self._ports, "run_dir": str(self._run_dir)}

    def bring(self, archive: bytes) -> None:
        """Unpack stoker's source, whole or not at all; two of us may do so at once."""
        partial = self._source.with_name(f".{self._source.name}.{os.getpid()}")
        partial.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(partial, filter="data")
        try:
            partial.rename(self._source)
        except OSError:  # another was first
            shutil.rmtree(partial)
            if not (self._source / "stoker").exists():
                raise

    def start(self, launch: str, server: dict[str, Any], runtimes: str) -> int:
        """Write the run directory and start the supervisor; its pid."""
        if self._pid is not None:
            return self._pid
        self.tell_server(server)
        self._run_dir.mkdir(parents=True, exist_ok=True)
        if self._node:  # one folder for all ranks, where nodes share their file system
            checkpoints = self._run_dir.parent.parent / "checkpoints"
            checkpoints.mkdir(exist_ok=True)
            if not (self._run_dir / "checkpoints").exists():
                (self._run_dir / "checkpoints").symlink_to(checkpoints)
        if runtimes and not (self._home / "runtimes.json").exists():
            _write_private(self._home / "runtimes.json", runtimes)
        _write_private(self._run_dir / "run.json", launch)
        while self._held:
            self._held.pop().close()
        self._pid = self._spawn()
        return self._pid

    def watch(self) -> dict[str, Any]:
        """Blocks until the supervisor has ended; whether it had come to the end of its run, and its last words."""
        if self._pid is not None:
            _wait_for_end(self._pid)
        return {"in_order": self._has_ended(), "log": _end_of(self._run_dir / "supervisor.log", _LOG_BYTES).strip()}

    def watch_ranks(self) -> None:
        """Blocks until nobody on this node works any more: all has ended there, or only parameter servers are left."""
        while self._pid is not None and _is_there(self._pid) and not (self._run_dir / "serving").exists():
            time.sleep(_RANKS_S)

    def stop(self) -> None:
        """Ask the supervisor to end its run."""
        if self._pid is not None:
            try:
                os.kill(self._pid, 15)
            except ProcessLookupError:
                pass

    def end(self) -> bool:
        """End the supervisor and all that it started, at once; False if something cannot be ended."""
        sys.path.insert(0, str(self._source))
        from stoker import processes  # noqa: PLC0415 -- the source has just been brought here

        mine = processes.with_words([b"stoker.supervisor", os.fsencode(self._run_dir)])
        started = [process for supervisor in mine for process in processes.descendants(supervisor.pid)]
        processes.end_all(lambda: mine)
        leaders = [processes.ProcessId(one["pid"], one["start"]) for one in self._noted()] + started
        return processes.end_all(lambda: [*started, *processes.in_groups(leaders), *processes.of_run(self._run_dir)])

    def drain(self, server: dict[str, Any]) -> None:
        """Blocks until what a killed supervisor left in this directory has been sent."""
        if (self._run_dir / "spool.jsonl").exists():
            self.end()  # a node that was thought lost may be there after all
            self.tell_server(server)
            self._pid = self._spawn("--drain")
            _wait_for_end(self._pid)

    def tell_server(self, server: dict[str, Any]) -> None:
        """Where the server is now: supervisors look there again whenever it does not answer."""
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._home / "server.json"
        if server and not (path.exists() and path.read_text() == json.dumps(server)):
            _write_private(path, json.dumps(server))

    @property
    def _source(self) -> Path:
        return self._home / "stoker" / self._site.source

    def _spawn(self, *flags: str) -> int:
        # Not our child but init's: Ray kills a worker's children with it, and then nobody would end the replicas. The
        # pipe tells the supervisor when we are gone.
        reader, self._lifeline = os.pipe()
        words = [self._site.python or sys.executable, "-P", "-m", "stoker.supervisor", str(self._run_dir)]
        words += ["--node", str(self._node), *(flags or ("--lifeline", str(reader)))]
        # Ray's token and addresses are not for user code.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "STOKER_"))}
        environment |= {"STOKER_HOME": str(self._home), "PYTHONPATH": str(self._source)}
        done = subprocess.run(
            ["sh", "-c", _START, str(self._run_dir / "supervisor.log"), *words],
            env=environment,
            cwd=self._home,
            pass_fds=() if flags else (reader,),
            stdout=subprocess.PIPE,
            check=True,
        )
        os.close(reader)
        return int(done.stdout)

    def _noted(self) -> list[dict[str, int]]:
        try:
            return list(json.loads((self._run_dir / "processes.json").read_text())["replicas"].values())
        except (OSError, ValueError, KeyError):
            return []

    def _has_ended(self) -> bool:
        last = _end_of(self._run_dir / "spool.jsonl", _LAST_EVENT_BYTES).rpartition('{"seq":')[2]
        return '"type":"exited"' in last


def _end_with_raylet(raylet: int) -> None:
    """Ray lets a worker that is busy live on when its raylet has ended in order; but nobody could reach us then."""
    while os.getppid() == raylet:
        time.sleep(_LOOK_S)
    os._exit(1)  # the supervisor hears of it by its lifeline, and ends the run


def _wait_for_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    poller.poll()
    os.close(descriptor)
    while _is_there(pid):  # whoever adopted it has not looked yet
        time.sleep(0.01)


def _is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def _end_of(path: Path, size_bytes: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size_bytes))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _write_private(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    partial.replace(path)
