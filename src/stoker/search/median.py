"""The median stopping rule, AI Platform's early stopping: a trial that does worse than most did by then ends."""

import bisect
from collections import OrderedDict
from dataclasses import dataclass, field

from stoker.schema.search import Median
from stoker.search.asha import WORST
from stoker.search.base import Outcome, Stop, StopKind

REMEMBERED_TIMES = 256  # trials report at the same few times; for others the averages are worked out again


@dataclass(slots=True)
class Curve:
    """What a trial reported, by time, with running sums."""

    times: list[float] = field(default_factory=list)
    sums: list[float] = field(default_factory=list)
    bests: list[float] = field(default_factory=list)

    def add(self, time: float, value: float) -> None:
        # A restarted trial goes back to its checkpoint and reports again from there.
        kept = bisect.bisect_left(self.times, time)
        del self.times[kept:], self.sums[kept:], self.bests[kept:]
        self.times.append(time)
        self.sums.append(value + (self.sums[-1] if self.sums else 0.0))
        self.bests.append(min(value, self.bests[-1]) if self.bests else value)

    def average(self, time: float) -> float | None:
        """Over all reports up to this time."""
        count = bisect.bisect_right(self.times, time)
        return self.sums[count - 1] / count if count else None


@dataclass(slots=True)
class _Averages:
    """The averages of completed trials at one time, kept sorted as more complete."""

    seen: int = 0
    values: list[float] = field(default_factory=list)


class MedianRule:
    """A trial's best so far against the median, over completed trials, of the average up to the same time."""

    def __init__(self, rule: Median) -> None:
        self._rule = rule
        self._curves: dict[int, Curve] = {}
        self._completed: list[Curve] = []
        self._averages: OrderedDict[float, _Averages] = OrderedDict()

    def place(self) -> int | None:
        return 0

    def started(self, trial: int, place: int) -> None:
        self._curves[trial] = Curve()

    def reported(self, trial: int, time: float, value: float) -> Stop | None:
        curve = self._curves[trial]
        if value != WORST:
            curve.add(time, value)
        if len(self._completed) < self._rule.min_trials or time < self._rule.min_time:
            return None
        averages = self._averages_at(time)
        if not averages:
            return None
        median = _median(averages)
        if curve.bests and curve.bests[-1] <= median:
            return None
        return Stop(
            kind=StopKind.PRUNED,
            message=f"at {time:g} its best was worse than the median of {len(averages)} completed trials",
        )

    def ended(self, trial: int, outcome: Outcome) -> None:
        curve = self._curves.pop(trial)
        if outcome is Outcome.COMPLETED and curve.times:
            self._completed.append(curve)

    def progress(self) -> float | None:
        return None

    def _averages_at(self, time: float) -> list[float]:
        found = self._averages.setdefault(time, _Averages())
        self._averages.move_to_end(time)
        if len(self._averages) > REMEMBERED_TIMES:
            self._averages.popitem(last=False)
        new = [curve.average(time) for curve in self._completed[found.seen :]]
        found.seen = len(self._completed)
        for average in new:
            if average is not None:
                bisect.insort(found.values, average)
        return found.values


def _median(ordered: list[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
