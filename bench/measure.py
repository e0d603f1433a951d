"""How everything here is measured: contenders interleaved, medians, and one JSON file of results."""

import contextlib
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def interleaved(contenders: Mapping[str, Callable[[], float]], *, repetitions: int) -> dict[str, list[float]]:
    """Each contender once per round, so that a noisy minute hurts all of them alike. A contender returns seconds."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repetitions):
        for name, measure in contenders.items():
            samples[name].append(measure())
    return samples


def medians(samples: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in samples.items()}


def cpu_s(pids: Iterable[int]) -> float:
    """Processor time of these processes so far, threads that have ended included; what is gone counts nothing."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def write_results(name: str, figures: Mapping[str, object]) -> Path:
    """One file a benchmark; says where and when, because the numbers mean little without."""
    RESULTS.mkdir(exist_ok=True)
    where = {"cores": os.cpu_count(), "python": platform.python_version(), "load_1m": round(os.getloadavg()[0], 1)}
    path = RESULTS / f"{name}.json"
    found = {"measured": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "machine": where, **figures}
    path.write_text(json.dumps(found, indent=2) + "\n")
    return path
