"""A make-believe cluster for searchers: trials report, fail and end in an order that is a function of the past alone.

Because of that a simulation can be taken up after any record, as a server is after a crash.
"""

import hashlib
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stoker.schema.search import SearchSpec
from stoker.search.base import Asked, Ended, Outcome, Record, Reported, Suggestion, dump_record, load_record
from stoker.search.searcher import TrialSearcher, build_searcher


def curve(suggestion: Suggestion, step: int) -> float:
    """A loss that falls with time towards the squared distance from a point inside the unit cube."""
    numbers = [v for v in flat(suggestion.hparams) if isinstance(v, int | float) and not isinstance(v, bool)]
    return sum((float(number) - 0.3) ** 2 for number in numbers) + 1.0 / step


def flat(values: dict[str, Any]) -> list[Any]:
    return [x for v in values.values() for x in (flat(v) if isinstance(v, dict) else [v])]


@dataclass(frozen=True)
class World:
    """How trials behave. Chances are per trial, decided by its number."""

    length: int = 32
    every: int = 4
    metric: Callable[[Suggestion, int], float] = curve
    failing: float = 0.0
    invalid: float = 0.0
    diverging: float = 0.0
    well_until: int = 8  # when those that fail or refuse do so
    silent: bool = False

    def fate(self, suggestion: Suggestion) -> str:
        chance = _chance(f"fate/{suggestion.trial}")
        for name in ("failing", "invalid", "diverging"):
            share = getattr(self, name)
            if chance < share:
                return name
            chance -= share
        return "well"

    def values(self, suggestion: Suggestion, step: int) -> dict[str, float]:
        if self.silent:
            return {"other": 1.0}
        value = self.metric(suggestion, step)
        if self.fate(suggestion) == "diverging" and step >= self.length / 4:
            value = math.nan
        return {"loss": value, "cost": float(suggestion.trial % 7), "epochs": step / self.every}


class Simulation:
    """Runs a search to its end, or some steps of it; `records` is what a server would have stored."""

    def __init__(self, spec: SearchSpec, world: World, records: Sequence[Record] = ()) -> None:
        # Through JSON, as from a database.
        stored = [load_record(dump_record(record)) for record in records]
        self.world = world
        self.searcher: TrialSearcher = build_searcher(spec, records=stored)
        self.records: list[Record] = []
        self.steps: dict[int, int] = {}
        self.suggestions: dict[int, Suggestion] = {}
        self.most_live = 0
        for record in stored:
            self._keep(record)

    def run(self) -> list[Record]:
        while self.step():
            pass
        return self.records

    def step(self) -> bool:
        if self.searcher.failure() is None and (suggestion := self.searcher.ask()) is not None:
            self._keep(Asked(suggestion=suggestion))
            return True
        live = sorted(self.searcher.live)
        if not live:
            return False
        self._advance(live[random.Random(len(self.records)).randrange(len(live))])
        return True

    def _advance(self, trial: int) -> None:
        suggestion, fate = self.suggestions[trial], self.world.fate(self.suggestions[trial])
        step = self.steps[trial] + self.world.every
        if trial in self.searcher.stopping:
            self._end(trial, Outcome.STOPPED)
        elif fate in ("failing", "invalid") and step > self.world.well_until:
            self._end(trial, Outcome.FAILED if fate == "failing" else Outcome.INVALID_HP)
        elif step > self.world.length:
            self._end(trial, Outcome.COMPLETED)
        else:
            values = self.world.values(suggestion, step)
            self.steps[trial] = step
            if self.searcher.wants(values):
                stop = self.searcher.report(trial, step=step, values=values)
                self._keep(Reported(trial=trial, step=step, values=values, stop=stop))
            else:
                self._end(trial, Outcome.COMPLETED)

    def _end(self, trial: int, outcome: Outcome) -> None:
        reported = tuple(self.world.values(self.suggestions[trial], 1))
        self.searcher.ended(trial, outcome, reported=reported)
        self._keep(Ended(trial=trial, outcome=outcome, reported=reported))

    def _keep(self, record: Record) -> None:
        self.records.append(record)
        if isinstance(record, Asked):
            self.steps[record.suggestion.trial] = 0
            self.suggestions[record.suggestion.trial] = record.suggestion
        elif isinstance(record, Reported):
            self.steps[record.trial] = record.step
        self.most_live = max(self.most_live, len(self.searcher.live))


def _chance(word: str) -> float:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big") / 2**64
