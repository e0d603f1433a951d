"""Runs on this machine: one detached supervisor process each."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.engines import traces
from stoker.engines.base import Liveness
from stoker.engines.gpus import start_on_gpus
from stoker.engines.nursery import Nursery, Unanswered
from stoker.errors import StokerError
from stoker.host import processes
from stoker.host.home import Home
from stoker.host.processes import ProcessId
from stoker.host.spawn import spawn_detached
from stoker.run_dir import RunDir
from stoker.schema.job import Share
from stoker.schema.launch import Launch

_CGROUP = Path("/sys/fs/cgroup")
# Those of a run that the server itself may have been started from (user code that submits a job).
_OF_AN_OUTER_RUN = (processes.RUN_DIR_VARIABLE, "STOKER_REPLICA")


@dataclass(frozen=True, slots=True)
class _Handle:
    """A run's directory and its supervisor."""

    run_dir: RunDir
    supervisor: ProcessId

    @classmethod
    def parse(cls, text: str) -> "_Handle | None":
        """None when it is none of ours."""
        try:
            found = json.loads(text)
            return cls(RunDir(found["run_dir"]), ProcessId(int(found["pid"]), int(found["start"])))
        except (ValueError, KeyError, TypeError):
            return None

    def __str__(self) -> str:
        values = {"run_dir": str(self.run_dir), "pid": self.supervisor.pid, "start": self.supervisor.start}
        return json.dumps(values)


class LocalEngine:
    """See `Engine` for the contract. Supervisors are detached: they outlive the server that started them."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._nursery = Nursery()
        self._has_started = False

    def submit(self, launch: Launch) -> str:
        run_dir = self._run_dir(launch)
        try:
            launch.write(run_dir)
            supervisor = start_on_gpus(
                self._home,
                need=sum(replica.gpus for replica in launch.replicas),
                visible=_visible_gpus(),
                start=lambda devices: self._start_supervisor(run_dir, devices=devices),
            )
        except OSError as error:
            raise StokerError(f"Cannot start run {launch.run} in {run_dir}: {error.strerror or error}.") from error
        return str(_Handle(run_dir, supervisor))

    def find(self, launch: Launch) -> str | None:
        """The handle of a run that was submitted by a server which was killed before it noted it; None if it was not.

        A supervisor that has just been started is found by its command line, an ended one by what it left.
        """
        run_dir = self._run_dir(launch)
        found = traces.living(run_dir) or traces.noted(run_dir, "supervisor")
        return str(_Handle(run_dir, found[0])) if found else None

    def poll(self, handles: Sequence[str]) -> Mapping[str, Liveness]:
        found = {}
        for text in handles:
            handle = _Handle.parse(text)
            alive = handle is not None and handle.supervisor.is_alive()
            if handle is not None and not alive:
                _reap(handle.supervisor)
            found[text] = Liveness.ALIVE if alive else Liveness.GONE
        return found

    def cancel(self, handle: str) -> None:
        found = _Handle.parse(handle)
        if found is None:
            return
        ended = traces.end_run(found.run_dir, [found.supervisor])
        _reap(found.supervisor)
        if not ended:
            raise StokerError(f"Some processes of the run in {found.run_dir} cannot be ended: they wait in the kernel.")

    def diagnose(self, handle: str) -> str:
        found = _Handle.parse(handle)
        if found is None:
            return ""
        said = traces.last_words(found.run_dir)
        if found.supervisor.is_alive() or traces.has_ended(found.run_dir):
            return said
        if said:
            return f"The last words of its supervisor (pid {found.supervisor.pid}):\n{said}"
        return f"Its supervisor (pid {found.supervisor.pid}) was killed without a word{_memory_hint()}."

    def drain(self, handle: str) -> str | None:
        """Start, in the background, a process that ships what a killed supervisor left in its run directory.

        The handle it gives is alive until that is done; None when there is nothing to ship.
        """
        found = _Handle.parse(handle)
        if found is None or not found.run_dir.spool.exists():
            return None
        return str(_Handle(found.run_dir, self._start_supervisor(found.run_dir, "--drain")))

    def _run_dir(self, launch: Launch) -> RunDir:
        return self._home.run_dir(launch.job, launch.trial, launch.attempt)

    def _start_supervisor(self, run_dir: RunDir, *flags: str, devices: str | None = None) -> ProcessId:
        words = [sys.executable, "-P", "-m", "stoker.supervisor", str(run_dir), *flags]
        environment = {name: value for name, value in os.environ.items() if name not in _OF_AN_OUTER_RUN}
        environment["STOKER_HOME"] = str(self._home.root)
        if self._has_started:  # a server that was started for one job need not load twice what its supervisor loads
            self._nursery.start(environment)
        self._has_started = True
        if devices is not None:
            environment["CUDA_VISIBLE_DEVICES"] = devices
        try:
            started = self._nursery.fork(words, log=run_dir.supervisor_log, environment=environment)
        except Unanswered:
            started = next(iter(traces.living(run_dir)), None)
        return _spawn(words, log=run_dir.supervisor_log, environment=environment) if started is None else started


def _spawn(words: list[str], *, log: Path, environment: Mapping[str, str]) -> ProcessId:
    identity = ProcessId.of(spawn_detached(words, environment=environment, log=log, log_mode=0o666))
    assert identity is not None, "our own child is in the process table until we wait for it"
    return identity


def local_capacity() -> Share:
    """What this machine, or the container we are in, has."""
    return Share(cpus=_cpus(), memory_gb=_memory_gb(), gpus=float(len(_visible_gpus())))


def _reap(process: ProcessId) -> None:
    """If it is our child and has ended, let it leave the process table."""
    if ProcessId.of(process.pid) != process:
        return  # gone, and its pid may be another child's by now
    try:
        os.waitpid(process.pid, os.WNOHANG)
    except ChildProcessError:
        pass  # another server's


def _memory_hint() -> str:
    """The kernel kills for lack of memory without telling the victim's family."""
    for line in _lines(_CGROUP / "memory.events"):
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.strip() not in ("", "0"):
            return " (out of memory? The kernel has killed for that here before)"
    return " (out of memory?)"


def _cpus() -> float:
    cpus = float(len(os.sched_getaffinity(0)))
    quota, _, period = next(iter(_lines(_CGROUP / "cpu.max")), "max").partition(" ")
    if quota == "max":
        quota = next(iter(_lines(_CGROUP / "cpu" / "cpu.cfs_quota_us")), "-1")
        period = next(iter(_lines(_CGROUP / "cpu" / "cpu.cfs_period_us")), "100000")
    if quota.isdigit() and int(period or 0) > 0:
        cpus = min(cpus, max(1.0, math.floor(int(quota) / int(period))))
    return cpus


def _memory_gb() -> float:
    size_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in (_CGROUP / "memory.max", _CGROUP / "memory" / "memory.limit_in_bytes"):
        limit = next(iter(_lines(path)), "max").strip()
        if limit.isdigit():
            size_bytes = min(size_bytes, int(limit))
    return round(size_bytes / 1e9, 1)


def _visible_gpus() -> list[str]:
    """By CUDA's own variable, the driver's list, or its tool: torch would take seconds to say the same."""
    known = processes.visible_gpus(os.environ)
    tool = shutil.which("nvidia-smi")
    if known is not None or tool is None:
        return known or []
    try:
        listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(number) for number in range(sum(line.startswith("GPU ") for line in listed.splitlines()))]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
