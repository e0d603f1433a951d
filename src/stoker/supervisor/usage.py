"""What a run uses of its machine: CPU, memory and GPUs, as metrics of the group `system`, from /proc and nvidia-smi.

Costs at most a thousandth of a core: where there are many processes to look at, it looks less often.
"""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stoker.host import processes
from stoker.host.processes import ProcessId
from stoker.supervisor.spool import Entry, Spool

_SPARSE = 360  # looks, about, in the time a run has had so far: a month of it is to be drawn, too, and kept
_MOST_S = 60.0
_COST = 1000  # times the CPU time of a look is the least time until the next
_END_S = 1.0
_TICKS, _PAGE_BYTES = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_MIB = 1 << 20


@dataclass(slots=True)
class _Sum:
    """Of all processes of a replica. The times of ended children are in their parents'."""

    ticks: int = 0
    memory_bytes: int = 0
    processes: int = 0


class Usage:
    """Looks at the processes of a run's replicas on this node, and at the GPUs that each has."""

    def __init__(
        self, leaders: Mapping[str, ProcessId], *, gpus: Mapping[str, str], since: float, period_s: float
    ) -> None:
        """`gpus` as CUDA_VISIBLE_DEVICES has them; `since` on the monotonic clock, when the replicas were started."""
        self._leaders, self._since, self._period_s = leaders, since, period_s
        self._looked = since
        self._ticks: dict[str, int] = {}
        self._gpus = _Gpus(gpus, period_s=period_s)

    def look(self, spool: Spool) -> float:
        """Write down what is used now, the CPU since the last look; when to look again, on the monotonic clock."""
        cpu_before, now = time.thread_time(), time.monotonic()
        of_gpus = self._gpus.read()
        entries = []
        for name, used in sums(self._leaders).items():
            cores = (used.ticks - self._ticks.get(name, 0)) / _TICKS / (now - self._looked)
            self._ticks[name] = used.ticks
            values = {
                "cpu": round(max(cores, 0.0), 3),  # less than before if a process left its session and was not seen
                "memory": used.memory_bytes,
                "processes": used.processes,
                **of_gpus.get(name, {}),
            }
            where = {"replica": name, "group": "system", "step": int(now - self._since)}
            entries.append(Entry({"time": time.time(), "type": "metric", **where, "values": values}))
        self._looked = now
        if entries:
            spool.append(entries)
        gap_s = min(max((now - self._since) / _SPARSE, self._period_s), _MOST_S)
        return now + max(gap_s, (time.thread_time() - cpu_before) * _COST)

    def close(self) -> None:
        self._gpus.close()


def sums(leaders: Mapping[str, ProcessId]) -> dict[str, _Sum]:
    """By replica: its session's processes, and those that come from them. Replicas that have ended are left out."""
    owners = {leader.pid: name for name, leader in leaders.items()}
    found: dict[str, _Sum] = {}
    others: dict[int, tuple[int, list[bytes]]] = {}
    members: dict[int, str] = {}
    for pid, fields in processes.stats():
        session = int(fields[3])
        if session in owners:
            members[pid] = owners[session]
            _add(found.setdefault(owners[session], _Sum()), fields)
        else:
            others[pid] = (int(fields[1]), fields)
    for pid, (_, fields) in others.items():
        if (owner := _owner(pid, members, others)) is not None:
            _add(found[owner], fields)
    return found


def _owner(pid: int, members: Mapping[int, str], others: Mapping[int, tuple[int, list[bytes]]]) -> str | None:
    """Whose child, or child's child, it is, though in a session of its own."""
    seen = set()  # pids are reused while we look: what was read may be a circle
    while pid in others and pid not in seen:
        seen.add(pid)
        pid = others[pid][0]
    return members.get(pid)


def _add(used: _Sum, fields: list[bytes]) -> None:
    used.ticks += int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])
    if fields[0] not in (b"Z", b"X"):
        used.memory_bytes += int(fields[21]) * _PAGE_BYTES
        used.processes += 1


@dataclass(slots=True)
class _Seen:
    """Of one GPU since the last look."""

    uses: list[float] = field(default_factory=list)
    memory_bytes: list[float] = field(default_factory=list)


class _Gpus:
    """Hears from one nvidia-smi that goes on: a look costs it 0.5 ms of CPU on an H200, to start another 23 ms.

    A process, not NVIDIA's library in ours: a driver that hangs must not hang a supervisor. It ends when we do,
    because nobody reads what it writes then.
    """

    def __init__(self, gpus: Mapping[str, str], *, period_s: float) -> None:
        self._owners = {device: name for name, devices in gpus.items() for device in devices.split(",")}
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        program = shutil.which("nvidia-smi") if self._owners else None
        if program is not None:
            self._start(program, period_s)

    def _start(self, program: str, period_s: float) -> None:
        query = "--query-gpu=index,uuid,utilization.gpu,memory.used"
        words = [program, query, "--format=csv,noheader,nounits", f"--loop={max(int(period_s), 1)}"]
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [*words, f"--id={','.join(self._owners)}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            assert self._process.stdout is not None
            os.set_blocking(self._process.stdout.fileno(), False)

    def read(self) -> dict[str, dict[str, float]]:
        """By replica: the mean use of each of its GPUs since the last look, as a share, and its memory at most."""
        found: dict[str, dict[str, float]] = {}
        for (owner, index), seen in self._seen(self._lines()).items():
            values = found.setdefault(owner, {})
            if seen.uses:
                values[f"gpu{index}_use"] = round(sum(seen.uses) / len(seen.uses) / 100, 4)
            if seen.memory_bytes:
                values[f"gpu{index}_memory"] = max(seen.memory_bytes)
        return found

    def _seen(self, lines: Iterable[bytes]) -> dict[tuple[str, str], _Seen]:
        found: dict[tuple[str, str], _Seen] = {}
        for line in lines:
            words = [word.strip() for word in line.decode("utf-8", "replace").split(",")]
            owner = self._owner(*words[:2]) if len(words) == 4 else None
            if owner is None:
                continue  # what is wrong with the driver, in words
            seen = found.setdefault((owner, words[0]), _Seen())
            with contextlib.suppress(ValueError):  # "[N/A]": not every GPU tells everything
                seen.uses.append(float(words[2]))
            with contextlib.suppress(ValueError):
                seen.memory_bytes.append(float(words[3]) * _MIB)
        return found

    def _owner(self, index: str, uuid: str) -> str | None:
        by_id = (name for device, name in self._owners.items() if device == index or uuid.startswith(device))
        return next(by_id, None)

    def _lines(self) -> list[bytes]:
        if self._process is None or self._process.stdout is None:
            return []
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._process.stdout.fileno(), 1 << 16):
                self._rest += data
            self.close()  # it has ended
        *lines, self._rest = self._rest.split(b"\n")
        return lines

    def close(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdout is not None
        process.stdout.close()
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
