"""How full pools were before this server: from when the runs that the store remembers waited, ran and ended."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stoker.schema.job import Share
from stoker.server.store.values import PastRun


class Use(NamedTuple):
    """What of a pool was in use at a moment, by how many jobs, and how many waited."""

    time: float
    used: Share
    running: int
    queued: int


def recall(runs: Iterable[PastRun], times: Sequence[float]) -> dict[str, list[Use]]:
    """By pool, its use at each of these times, which rise; nothing of the time before its first run."""
    changes: dict[str, list[tuple[float, PastRun, int, int]]] = {}
    for run in runs:
        mine = changes.setdefault(run.pool, [])
        waited_until = run.ended if run.started is None else run.started
        mine.append((run.created, run, 1, 0))
        if waited_until is not None:
            mine.append((waited_until, run, -1, 0))
        if run.started is not None:
            mine.append((run.started, run, 0, 1))
            if run.ended is not None:
                mine.append((run.ended, run, 0, -1))
    return {pool: list(_sweep(mine, times)) for pool, mine in changes.items()}


def _sweep(changes: list[tuple[float, PastRun, int, int]], times: Sequence[float]) -> Iterable[Use]:
    changes.sort(key=lambda change: change[0])
    cpus = memory_gb = gpus = 0.0
    running: Counter[int] = Counter()  # by job
    queued: Counter[int] = Counter()
    at = 0
    for time in times:
        while at < len(changes) and changes[at][0] <= time:
            _, run, waits, runs = changes[at]
            cpus, memory_gb, gpus = cpus + runs * run.cpus, memory_gb + runs * run.memory_gb, gpus + runs * run.gpus
            running[run.job] += runs
            queued[run.job] += waits
            at += 1
        if at:
            used = Share(cpus=_clean(cpus), memory_gb=_clean(memory_gb), gpus=_clean(gpus))
            yield Use(time, used, len(+running), len(+queued))


def _clean(amount: float) -> float:
    """Parts of a GPU add up inexactly, and take away to a little less than nothing."""
    return max(round(amount, 6), 0.0)
