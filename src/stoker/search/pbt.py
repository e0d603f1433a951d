"""Population-based training: the worst are replaced, while they train, by changed copies of the best.

A copy is a new trial: other hyperparameters, started from the newest checkpoint of the trial it copies.
"""

import math
from dataclasses import dataclass

from stoker.schema.search import Pbt, SearchSpec
from stoker.search.asha import WORST
from stoker.search.base import Outcome, Stop, StopKind, Suggestion
from stoker.search.samplers import Proposal, TrialResult
from stoker.search.space import Dice, Layout, explore


@dataclass(slots=True)
class _Member:
    """A trial of the population: what it last reached, and when it is next compared."""

    suggestion: Suggestion
    score: float | None = None
    start: float = 0.0  # what the one it copies had reached by then
    next_look: float | None = None


class PbtSampler:
    """Proposes the first population at random, then a copy for each place that became vacant."""

    def __init__(self, spec: SearchSpec, max_trials: int) -> None:
        if not isinstance(spec.sampler, Pbt):
            raise TypeError(f"{spec.sampler.name} has no population")
        self._settings = spec.sampler
        self._seed = spec.seed
        self._layout = Layout(spec.space)
        self._left = max_trials  # trials that may still be made
        self._first = spec.sampler.population  # of them, those of the first population
        self._vacant: list[int | None] = []  # whom to copy into each vacant place; None draws at random
        self._members: dict[int, _Member] = {}
        self._all: dict[int, Suggestion] = {}
        self._times: dict[int, float] = {}  # what each trial, member or not, had reached

    def has_more(self) -> bool:
        return self._first > 0 or bool(self._vacant)

    def propose(self, trial: int) -> Proposal:
        dice = Dice(self._seed, trial)
        parent = None if self._first else self._vacant[0]
        if parent is None:
            return Proposal(self._layout.draw(dice))
        settings = self._settings
        old = self._all[parent].hparams
        return Proposal(
            explore(self._layout, old, dice, factors=settings.factors, resample=settings.resample), parent=parent
        )

    def started(self, suggestion: Suggestion) -> None:
        if self._first:
            self._first -= 1
        else:
            self._vacant.pop(0)
        self._left -= 1
        self._all[suggestion.trial] = suggestion
        self._members[suggestion.trial] = _Member(suggestion)
        if suggestion.parent is not None:
            self._members[suggestion.trial].start = self._times.get(suggestion.parent, 0.0)

    def reported(self, trial: int, time: float, value: float) -> Stop | None:
        member = self._members.get(trial)
        if member is None:
            return None
        member.score, self._times[trial] = value, time
        if member.next_look is None:
            # A copy whose clock goes on from its original's is compared an interval later; one from zero, at the first.
            member.next_look = (member.start if time >= member.start else 0.0) + self._settings.interval
        if time < member.next_look:
            return None
        interval = self._settings.interval
        member.next_look += interval * (math.floor((time - member.next_look) / interval) + 1)
        return self._replace_if_poor(trial, time)

    def ended(self, result: TrialResult) -> None:
        trial = result.trial
        if trial not in self._members or result.outcome is Outcome.COMPLETED:
            return  # its place was given away already; or it goes on being an example to the others
        del self._members[trial]
        if result.outcome is Outcome.INVALID_HP:
            self._left += 1
            self._vacant.append(self._all[trial].parent)
        elif self._may_make_another:
            self._vacant.append(self._one_of_the_best(trial, result.step))

    def _replace_if_poor(self, trial: int, time: float) -> Stop | None:
        population, rank = self._settings.population, self._ranked().index(trial)
        # Of a whole population it would be among the last, however those do that have not reported yet.
        if rank < population - self._cut or not self._may_make_another:
            return None
        better = self._one_of_the_best(trial, time)
        del self._members[trial]
        self._vacant.append(better)
        copied = "a new one" if better is None else f"a copy of trial {better}"
        return Stop(kind=StopKind.REPLACED, message=f"{rank + 1} of {population}: {copied} takes its place")

    @property
    def _cut(self) -> int:
        return max(int(self._settings.population * self._settings.quantile), 1)

    @property
    def _may_make_another(self) -> bool:
        return self._left - self._first - len(self._vacant) > 0

    def _ranked(self) -> list[int]:
        """Members that have reported, best first; among equals the older."""
        scored = [(member.score, trial) for trial, member in self._members.items() if member.score is not None]
        return [trial for _, trial in sorted(scored)]

    def _one_of_the_best(self, trial: int, time: float) -> int | None:
        best = [
            other for other in self._ranked()[: self._cut] if other != trial and self._members[other].score != WORST
        ]
        return best[int(Dice(self._seed, trial).unit(f"parent/{time:g}") * len(best))] if best else None
