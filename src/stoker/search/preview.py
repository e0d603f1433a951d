"""What a search would do, before it does: how many trials, to which lengths."""

from dataclasses import dataclass

from stoker.schema.search import Asha, AsyncHalving, SearchSpec
from stoker.search.asha import BracketPlan, plan_brackets, preview_bracket
from stoker.search.searcher import planned_trials


@dataclass(frozen=True, slots=True)
class Preview:
    """`ends` says how many trials are expected to end at each time; without rungs each runs to its own end."""

    trials: int
    at_once: int  # as far as the search limits it; 0 does not
    ends: dict[int, int]
    brackets: tuple[BracketPlan, ...] = ()
    time_metric: str | None = None

    @property
    def total_time(self) -> int | None:
        """The sum of all trials' lengths, in units of the time metric, where it is known."""
        return sum(time * trials for time, trials in self.ends.items()) if self.ends else None

    @property
    def full_time(self) -> int | None:
        """What the same number of trials would take with none stopped early."""
        return max(self.ends) * sum(self.ends.values()) if self.ends else None


def preview_search(spec: SearchSpec) -> Preview:
    """The plan of a search; nothing is sampled."""
    trials = planned_trials(spec)
    at_once = spec.max_concurrent_trials
    if not isinstance(spec.stopping, Asha | AsyncHalving):
        return Preview(trials, min(at_once, trials), {}, time_metric=spec.time_metric)
    brackets = plan_brackets(spec, trials)
    ends: dict[int, int] = {}
    for bracket in brackets:
        for time, count in preview_bracket(bracket, spec.stopping.divisor).items():
            ends[time] = ends.get(time, 0) + count
    return Preview(trials, min(at_once, trials), dict(sorted(ends.items())), brackets, spec.time_metric)
