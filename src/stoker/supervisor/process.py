"""Start a run's replicas, notice how they end, and end them: SIGTERM, the grace, SIGKILL, always by this one path."""

import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stoker.atomic import replace_file
from stoker.errors import StokerError
from stoker.host import processes
from stoker.host.processes import ProcessId
from stoker.run_dir import RunDir
from stoker.schema.launch import Replica
from stoker.supervisor.variables import HOST

STREAMS = ("stdout", "stderr")
_LEFTOVERS_GRACE_S = 1.0  # for children that are still there when their replica has ended


@dataclass(frozen=True, slots=True)
class Ended:
    """How a replica ended."""

    replica: Replica
    returncode: int  # as subprocess gives it: negative for a signal
    was_told: bool  # after we had asked it to
    time: float  # when we noticed, in seconds since the epoch
    is_lost: bool = False  # not by its own doing: the zygote it was forked from has ended

    @property
    def signal(self) -> str | None:
        if self.returncode >= 0:
            return None
        try:
            return signal.Signals(-self.returncode).name
        except ValueError:
            return f"signal {-self.returncode}"

    @property
    def exit_code(self) -> int:
        """As a shell shows it: 128 and the signal's number, when one ended it."""
        return self.returncode if self.returncode >= 0 else 128 - self.returncode


class Process(Protocol):
    """A replica's process, however it was started."""

    identity: ProcessId
    is_lost: bool

    def fileno(self) -> int:
        """Readable when it has ended."""
        ...

    def poll(self) -> int | None:
        """Its return code, when it has ended; once it has, not to be asked again."""
        ...

    def close(self) -> None: ...


class _Spawned:
    """A fresh process, which is our child."""

    is_lost = False

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self._popen = popen
        identity = ProcessId.of(popen.pid)
        assert identity is not None, "our own child is in the process table until we wait for it"
        self.identity = identity
        self._pidfd = os.pidfd_open(popen.pid)

    def fileno(self) -> int:
        return self._pidfd

    def poll(self) -> int | None:
        return self._popen.poll()

    def close(self) -> None:
        os.close(self._pidfd)


@dataclass(frozen=True, slots=True)
class _Running:
    replica: Replica
    process: Process


class Replicas:
    """The processes of one node of a run, each the leader of its own session."""

    def __init__(self, run_dir: RunDir, *, poller: "select.poll") -> None:
        """`poller` wakes up as soon as one of them ends."""
        self._run_dir = run_dir
        self._poller = poller
        self._leaders: dict[str, ProcessId] = {}
        self._running: dict[str, _Running] = {}
        self._told: set[str] = set()
        self._kill_at: float | None = None
        self.write_processes()

    def start(self, replica: Replica, *, command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> None:
        with ExitStack() as stack:
            out, err = (stack.enter_context(open(self.output(replica, stream), "ab")) for stream in STREAMS)
            try:
                popen = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            except OSError as error:  # its file name is the program's, or the folder's that it should run in
                raise StokerError(f"Cannot start {replica.name}: {error.strerror}: {error.filename}.") from error
            except ValueError as error:  # a name or word that no process can be given, as one with a null byte
                raise StokerError(f"Cannot start {replica.name}: {error}.") from error
        self.adopt(replica, _Spawned(popen))

    def adopt(self, replica: Replica, process: Process) -> None:
        """Look after a process that leads a session of its own."""
        self._leaders[replica.name] = process.identity
        self._running[replica.name] = _Running(replica, process)
        self._poller.register(process, select.POLLIN)

    def output(self, replica: Replica, stream: str) -> Path:
        return self._run_dir.output(replica.name, stream)

    def write_processes(self) -> None:
        """Note who is who, so that all of it can be ended for sure by another if we are killed."""
        supervisor = ProcessId.of(os.getpid())
        assert supervisor is not None
        found = {"supervisor": _plain(supervisor), "replicas": {n: _plain(p) for n, p in self._leaders.items()}}
        replace_file(self._run_dir.processes, json.dumps(found))

    @property
    def running(self) -> list[Replica]:
        return [running.replica for running in self._running.values()]

    @property
    def leaders(self) -> Mapping[str, ProcessId]:
        """The first process of each replica that was started, by its name."""
        return self._leaders

    @property
    def is_winding_down(self) -> bool:
        """Whether those that still run have been told to stop."""
        return self._told.issuperset(self._running)

    def reap(self) -> list[Ended]:
        """Those that have ended since the last time."""
        found = []
        for name, running in list(self._running.items()):
            process = running.process
            returncode = process.poll()
            if returncode is not None:
                told, lost = name in self._told, process.is_lost
                found.append(Ended(running.replica, returncode, was_told=told, time=time.time(), is_lost=lost))
                self._poller.unregister(process)
                process.close()
                del self._running[name]
        return found

    def stop(self, names: Sequence[str], *, grace_s: float) -> None:
        """SIGTERM to those not told yet; `kill_overdue` does the rest when the grace is over."""
        for name in names:
            if name in self._running and name not in self._told:
                self._told.add(name)
                processes.signal_group(self._running[name].process.identity, signal.SIGTERM)
        if self._kill_at is None:
            self._kill_at = time.monotonic() + grace_s

    def kill_overdue(self, *, now: bool = False) -> bool:
        """SIGKILL to those that were told to stop and did not within the grace; whether there were any."""
        if not now and (self._kill_at is None or time.monotonic() < self._kill_at):
            return False
        late = [name for name in self._running if now or name in self._told]
        self._told.update(late)
        for name in late:
            processes.signal_group(self._running[name].process.identity, signal.SIGKILL)
        self._kill_at = time.monotonic() + 1.0  # a process that does not die at once is told so again
        return bool(late)

    def end_leftovers(self) -> bool:
        """End what the replicas left behind: their groups, and children that moved to sessions of their own."""

        def find() -> list[ProcessId]:
            return [*processes.in_groups(self._leaders.values()), *processes.of_run(self._run_dir)]

        return processes.end_all(find, grace_s=_LEFTOVERS_GRACE_S)


def find_ports(names: Sequence[str], *, start_port: int | None) -> dict[str, int]:
    """A port for each: from `start_port` on, or free ones."""
    if start_port is not None:
        return {name: start_port + place for place, name in enumerate(names)}
    found: dict[str, int] = {}
    with ExitStack() as stack:  # all are held until all are found, so that no two are the same
        for name in names:
            listener = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, 0))
            found[name] = listener.getsockname()[1]
    return found


class StopRequest:
    """The order to stop, from wherever it comes: a signal, the server, the clock. Wakes a poller; takes no lock."""

    def __init__(self) -> None:
        self._reasons: list[str] = []
        self.at_once = False
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    @property
    def reason(self) -> str | None:
        """The first that was given; it stays, whatever comes at the same moment."""
        return self._reasons[0] if self._reasons else None

    def ask(self, reason: str) -> None:
        if not self._reasons:
            self._reasons.append(reason)  # a second one beside it does not change the first, as an assignment would
        self.wake()

    def ask_at_once(self) -> None:
        self.at_once = True
        self.wake()

    def wake(self) -> None:
        try:
            os.write(self._writer, b".")
        except BlockingIOError:
            pass  # enough wake-ups are waiting to be read

    def watch(self, poller: "select.poll") -> None:
        poller.register(self._reader, select.POLLIN)

    def heard(self) -> None:
        """Forget the wake-ups so far."""
        try:
            os.read(self._reader, 4096)
        except BlockingIOError:
            pass

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


def on_signals(handlers: Mapping[int, Callable[[], None]]) -> Callable[[], None]:
    """Call these when the signals come; returns what puts the old handlers back.

    A signal that is ignored stays so: nohup and a shell's & mean it.
    """

    def handle(signum: int, frame: object) -> None:
        handlers[signum]()

    heeded = [number for number in handlers if signal.getsignal(number) is not signal.SIG_IGN]
    old = {number: signal.signal(number, handle) for number in heeded}

    def restore() -> None:
        for number, handler in old.items():
            signal.signal(number, handler)

    return restore


def _plain(process: ProcessId) -> dict[str, int]:
    return {"pid": process.pid, "start": process.start}
