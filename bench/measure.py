"""How everything here is measured: contenders interleaved, medians, and one JSON file of results."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
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


def write_results(name: str, figures: Mapping[str, object]) -> Path:
    """One file a benchmark; says where and when, because the numbers mean little without."""
    RESULTS.mkdir(exist_ok=True)
    where = {"cores": os.cpu_count(), "python": platform.python_version(), "load_1m": round(os.getloadavg()[0], 1)}
    path = RESULTS / f"{name}.json"
    found = {"measured": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "machine": where, **figures}
    path.write_text(json.dumps(found, indent=2) + "\n")
    return path
