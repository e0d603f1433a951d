"""`context.profiler`: what the machine is doing, reported while the trial runs."""

import logging
import os
import threading
import time
from typing import Any

from stoker.context import Context

logger = logging.getLogger("determined.core")


class ProfilerContext:
    """`on()` samples CPU and memory of the machine, on one rank of each; groups and names are Determined's."""

    def __init__(self, run: Context, distributed: Any) -> None:
        self._run, self._distributed = run, distributed
        self._stop: threading.Event | None = None

    def on(self, sampling_interval: int = 1, samples_per_report: int = 10) -> None:
        if sampling_interval < 0.1 or samples_per_report < 1:
            raise ValueError("profiler.on: sampling_interval is at least 0.1 s and samples_per_report at least 1.")
        if self._stop is not None:
            logger.warning("the profiler is on already")
            return
        if self._distributed.local_rank != 0:
            return
        self._stop = threading.Event()
        arguments = (self._stop, float(sampling_interval), samples_per_report)
        threading.Thread(target=self._sample, args=arguments, name="profiler", daemon=True).start()

    def off(self) -> None:
        if self._stop is not None:
            self._stop.set()
            self._stop = None

    def _sample(self, stop: threading.Event, interval_s: float, per_report: int) -> None:
        step, before = 0, _cpu_times()
        used: list[float] = []
        while not stop.wait(interval_s):
            now = _cpu_times()
            total = sum(now) - sum(before)
            used.append(100.0 * (1 - (now[3] + now[4] - before[3] - before[4]) / total) if total > 0 else 0.0)
            before = now
            if len(used) == per_report:
                step += 1
                self._run.report(step, "cpu", cpu_util_simple=sum(used) / len(used))
                self._run.report(step, "memory", memory_free=_free_memory_bytes() / 2**30)
                used.clear()


def _cpu_times() -> list[float]:
    try:
        with open("/proc/stat") as file:
            return [float(word) for word in file.readline().split()[1:9]]
    except OSError:  # no Linux: by our own process
        own = os.times()
        return [own.user, 0.0, own.system, time.monotonic() - own.user - own.system, 0.0, 0.0, 0.0, 0.0]


def _free_memory_bytes() -> float:
    return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
