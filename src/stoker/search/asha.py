"""Asynchronous successive halving, the stopping variant, with Determined's brackets, rungs and decisions.

A bracket is a number of rungs, so many trials, and so many of them at once. Rungs lie at max_time / divisor^k. When a
trial reaches a rung it is ranked, once, among those that came before it; the best 1/divisor go on, the rest stop.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from stoker.schema.search import Asha, AsyncHalving, SearchSpec
from stoker.search.base import Outcome, Stop, StopKind

WORST = math.inf


@dataclass(frozen=True, slots=True)
class BracketPlan:
    """What one bracket will do: rungs at these times, so many trials in all, so many at once."""

    rungs: tuple[int, ...]
    trials: int
    concurrency: int


def plan_brackets(spec: SearchSpec, max_trials: int) -> tuple[BracketPlan, ...]:
    """The brackets of a search, the one with most rungs first."""
    rule = spec.stopping
    if isinstance(rule, AsyncHalving):
        rungs = rung_times(rule.num_rungs, rule.divisor, rule.max_time)
        most = spec.max_concurrent_trials or int(rule.divisor ** (rule.num_rungs - 1))
        return (BracketPlan(rungs, max_trials, max(min(most, max_trials), 1)),)
    if not isinstance(rule, Asha):
        raise TypeError(f"{rule.name} has no brackets")
    counts = bracket_rung_counts(rule, max_trials)
    trials = bracket_trials(max_trials, rule.divisor, counts)
    at_once = bracket_concurrency(spec.max_concurrent_trials, rule.divisor, trials)
    return tuple(
        BracketPlan(rung_times(count, rule.divisor, rule.max_time), of_them, limit)
        for count, of_them, limit in zip(counts, trials, at_once, strict=True)
    )


def bracket_rung_counts(rule: Asha, max_trials: int) -> list[int]:
    """How many rungs each bracket has, most first."""
    if rule.bracket_rungs:
        return sorted(rule.bracket_rungs, reverse=True)
    # The ratio of logarithms is what Determined truncates; at exact powers its rounding decides, so it is kept as is.
    most = min(rule.max_rungs, *(int(math.log(n) / math.log(rule.divisor)) + 1 for n in (rule.max_time, max_trials)))
    fewest = {"aggressive": most, "standard": (most - 1) // 2 + 1, "conservative": 1}[rule.mode]
    return list(range(most, fewest - 1, -1))


def bracket_trials(max_trials: int, divisor: float, rung_counts: Sequence[int]) -> list[int]:
    """Trials for each bracket, by weight divisor^(rungs-1)/rungs; what rounding leaves goes to the first."""
    weights = [divisor ** (rungs - 1) / rungs for rungs in rung_counts]
    trials = [max(int(weight / sum(weights) * max_trials), 1) for weight in weights]
    trials[0] += max(max_trials - sum(trials), 0)
    return trials


def bracket_concurrency(max_concurrent: int, divisor: float, trials: Sequence[int]) -> list[int]:
    """Trials at once for each bracket; 0 means as many as a bracket needs to be well filled."""
    if max_concurrent == 0:
        return [max(trials[-1], int(divisor))] * len(trials)
    base, left = divmod(max(max_concurrent, len(trials)), len(trials))
    return [base + (number < left) for number in range(len(trials))]


def rung_times(count: int, divisor: float, max_time: int) -> tuple[int, ...]:
    """When a bracket with this many rungs looks; the last is max_time."""
    return tuple(max(int(max_time / divisor ** (count - 1 - number)), 1) for number in range(count))


def preview_bracket(plan: BracketPlan, divisor: float) -> dict[int, int]:
    """How many trials are expected to end at which rung."""
    ending: dict[int, int] = {}
    arriving = plan.trials
    for number, time in enumerate(plan.rungs):
        going_on = max(int(arriving / divisor), 1)
        last = number == len(plan.rungs) - 1
        ending[time] = ending.get(time, 0) + (arriving if last else arriving - going_on)
        arriving = going_on
    return ending


@dataclass(slots=True)
class Rung:
    """The values of those that reached it, best (least) first."""

    values: list[float] = field(default_factory=list)
    by_trial: dict[int, float] = field(default_factory=dict)

    def insert(self, trial: int, value: float) -> int:
        """Its rank, from 0. Of equals the newcomer is first."""
        rank = bisect.bisect_left(self.values, value)
        self.values.insert(rank, value)
        self.by_trial[trial] = value
        return rank

    def remove(self, trial: int) -> None:
        if trial in self.by_trial:
            self.values.pop(bisect.bisect_left(self.values, self.by_trial.pop(trial)))


class Bracket:
    """One bracket at work: who is in it, which rung each is at."""

    def __init__(self, plan: BracketPlan, divisor: float) -> None:
        self.plan = plan
        self.rungs = [Rung() for _ in plan.rungs]
        self._divisor = divisor
        self._at: dict[int, int] = {}  # the rung each trial has still to reach
        self._live: set[int] = set()
        self._settled: set[int] = set()  # decided for good: told to stop
        self._ended = 0
        self._invalid = 0

    @property
    def has_room(self) -> bool:
        return len(self._live) < self.plan.concurrency and len(self._at) - self._invalid < self.plan.trials

    def started(self, trial: int) -> None:
        self._at[trial] = 0
        self._live.add(trial)

    def reported(self, trial: int, time: float, value: float) -> Stop | None:
        """Rank the trial at every rung it has reached with this report; WORST always stops."""
        if trial in self._settled:
            return None
        while time >= self.plan.rungs[self._at[trial]]:
            number = self._at[trial]
            stop = self._rank(trial, number, value)
            if stop is not None:
                self._settled.add(trial)
                return stop
            self._at[trial] = number + 1
        return None

    def _rank(self, trial: int, number: int, value: float) -> Stop | None:
        rung, time = self.rungs[number], self.plan.rungs[number]
        rank = rung.insert(trial, value)
        if value == WORST:
            return Stop(kind=StopKind.PRUNED, message=f"at {time} its value was not a finite number")
        if number == len(self.rungs) - 1:
            return Stop(kind=StopKind.FINISHED, message=f"reached {time}, the last rung")
        keep = max(int(len(rung.values) / self._divisor), 1)
        if rank >= keep:
            place = f"{rank + 1} of {len(rung.values)}"
            return Stop(kind=StopKind.PRUNED, message=f"{place} at rung {time}, where the best {keep} go on")
        return None

    def ended(self, trial: int, outcome: Outcome) -> None:
        self._live.discard(trial)
        self._ended += 1
        if outcome is Outcome.INVALID_HP:
            self._invalid += 1
            for rung in self.rungs:
                rung.remove(trial)
        elif outcome is Outcome.FAILED and trial not in self._settled:
            self.rungs[self._at[trial]].insert(trial, WORST)

    def progress(self) -> float:
        """As Determined counts: those past the first rung, as if there were a fifth more; then those that ended."""
        reached = len(self.rungs[0].values)
        progress = reached / (1.2 * self.plan.trials)
        if reached >= self.plan.trials:
            progress = max(progress, (self._ended - self._invalid) / self.plan.trials)
        return min(progress, 1.0)


class AshaRule:
    """adaptive_asha and async_halving: several brackets, or one."""

    def __init__(self, spec: SearchSpec, max_trials: int) -> None:
        if not isinstance(spec.stopping, Asha | AsyncHalving):
            raise TypeError(f"{spec.stopping.name} is not a halving rule")
        self.brackets = [Bracket(plan, spec.stopping.divisor) for plan in plan_brackets(spec, max_trials)]
        self._of: dict[int, Bracket] = {}

    def place(self) -> int | None:
        for number, bracket in enumerate(self.brackets):
            if bracket.has_room:
                return number
        return None

    def started(self, trial: int, place: int) -> None:
        self._of[trial] = self.brackets[place]
        self._of[trial].started(trial)

    def reported(self, trial: int, time: float, value: float) -> Stop | None:
        return self._of[trial].reported(trial, time, value)

    def ended(self, trial: int, outcome: Outcome) -> None:
        self._of[trial].ended(trial, outcome)

    def progress(self) -> float | None:
        total = sum(bracket.plan.trials for bracket in self.brackets)
        return sum(bracket.progress() * bracket.plan.trials for bracket in self.brackets) / total
