"""The process table of this machine: which process is which, and ending all that a run has started."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from stoker.run_dir import RunDir

# Every process of a run has this in its environment, and so have its children, wherever they moved themselves.
RUN_DIR_VARIABLE = "STOKER_RUN_DIR"
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid and its start time (clock ticks since boot): a pid alone is given to another process some day."""

    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> "ProcessId | None":
        """None when there is no such process."""
        found = _stat(pid)
        return cls(pid, found.start) if found else None

    def is_alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        found = _stat(self.pid)
        return found is not None and found.start == self.start and found.state not in "ZX"

    def kill(self, signum: int = signal.SIGKILL) -> None:
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signum)


def signal_group(leader: ProcessId, signum: int) -> None:
    """Signal the process group of a session's leader, also when the leader itself has ended and others are left.

    A pid is not reused while a group of that number lives, so only a *new* leader can be met by mistake.
    """
    found = _stat(leader.pid)
    if found is not None and found.start != leader.start:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader.pid, signum)


def of_run(run_dir: RunDir) -> list[ProcessId]:
    """The living processes of this user that have the run's directory in their environment, but for this process."""
    wanted = f"{RUN_DIR_VARIABLE}={run_dir}".encode()
    found = []
    for pid in _pids():
        variables = _read(pid, "environ")  # nothing if it is gone meanwhile, or another user's
        if wanted in variables and wanted in variables.split(b"\0") and pid != os.getpid():
            process = ProcessId.of(pid)
            if process is not None and process.is_alive():
                found.append(process)
    return found


def with_words(words: Iterable[bytes]) -> list[ProcessId]:
    """The living processes that have all these words on their command line."""
    wanted = set(words)
    found = []
    for pid in _pids():
        has_all = wanted.issubset(_read(pid, "cmdline").split(b"\0"))
        process = ProcessId.of(pid) if has_all else None
        if process is not None and process.is_alive():
            found.append(process)
    return found


def in_groups(leaders: Iterable[ProcessId]) -> list[ProcessId]:
    """The living members of the process groups that these lead or have led."""
    # Where another process has the leader's pid by now, the group of that number is not ours.
    groups = {leader.pid for leader in leaders if (found := _stat(leader.pid)) is None or found.start == leader.start}
    groups = {group for group in groups if _has_members(group)}
    members: list[ProcessId] = []
    if not groups:
        return members
    for pid in _pids():
        stat = _stat(pid)
        if stat is not None and stat.group in groups and stat.state not in "ZX":
            members.append(ProcessId(pid, stat.start))
    return members


def descendants(pid: int) -> list[ProcessId]:
    """Children, and theirs, as far as they have not been adopted by another."""
    children: dict[int, list[ProcessId]] = {}
    for other in _pids():
        if (found := _stat(other)) is not None:
            children.setdefault(found.parent, []).append(ProcessId(other, found.start))
    result: list[ProcessId] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        result += below
        waiting += [process.pid for process in below]
    return result


def stats() -> Iterator[tuple[int, list[bytes]]]:
    """Every process's pid and the fields of its `stat` file from the state on: proc(5)'s third is at 0."""
    for pid in _pids():
        if fields := _read(pid, "stat").rpartition(b")")[2].split():
            yield pid, fields


def end_all(find: Callable[[], Iterable[ProcessId]], *, grace_s: float = 0.0) -> bool:
    """End every process that `find` finds, until it finds none: SIGTERM and the grace first, if there is any.

    Processes start others while they are being ended, so it looks again after each round. False when some would not
    go: a process in an uninterruptible wait cannot be killed by anyone.
    """
    found = [process for process in find() if process.is_alive()]
    if found and grace_s > 0:
        for process in found:
            process.kill(signal.SIGTERM)
        _wait_gone(found, grace_s)
        found = [process for process in find() if process.is_alive()]
    for _ in range(20):
        if not found:
            return True
        for process in found:
            process.kill(signal.SIGKILL)
        _wait_gone(found, 0.5)
        found = [process for process in find() if process.is_alive()]
    return not found


def _wait_gone(processes: list[ProcessId], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while any(process.is_alive() for process in processes) and time.monotonic() < deadline:
        time.sleep(0.005)


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    parent: int
    group: int
    start: int


def _has_members(group: int) -> bool:
    """Much cheaper than to look at every process, and mostly there are none."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _stat(pid: int) -> _Stat | None:
    try:
        # The name, in brackets, may hold anything, brackets and blanks too: count from the last bracket.
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        return _Stat(fields[0].decode(), parent=int(fields[1]), group=int(fields[2]), start=int(fields[19]))
    except (IndexError, ValueError):
        return None


def _read(pid: int, name: str) -> bytes:
    """A file of a process; empty if it cannot be read. Not by `open`: all processes are looked at in every run."""
    try:
        file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        found = data = os.read(file, _CHUNK_BYTES)
        while len(data) == _CHUNK_BYTES:
            data = os.read(file, _CHUNK_BYTES)
            found += data
        return found
    except OSError:
        return b""
    finally:
        os.close(file)


def _pids() -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def visible_gpus(environment: Mapping[str, str]) -> list[str] | None:
    """The ids of the GPUs that a process with this environment may use, without loading anything of NVIDIA's.

    None when neither CUDA's own variable nor the driver's list tells.
    """
    given = environment.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [word.strip() for word in given.split(",") if word.strip() not in ("", "-1", "NoDevFiles")]
    try:
        return [str(number) for number in range(len(os.listdir("/proc/driver/nvidia/gpus")))]
    except OSError:
        return None
