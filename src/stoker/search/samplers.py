"""Where the next point comes from when nothing is learned from the last: one, a grid, or chance."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from stoker.schema.search import SearchSpec
from stoker.search.base import Outcome, Stop, Suggestion
from stoker.search.space import Dice, GridPoints, Layout


@dataclass(frozen=True, slots=True)
class Proposal:
    """A point, the trial whose checkpoint to start from, if any, and what to keep with the suggestion."""

    hparams: dict[str, Any]
    parent: int | None = None
    memory: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """A trial as far as it is known: a value for each objective, None where there is none that is finite."""

    trial: int
    hparams: Mapping[str, Any]
    values: tuple[float | None, ...]
    step: int
    outcome: Outcome | None  # None while it is live
    stop: Stop | None = None


class Sampler(Protocol):
    """Proposes points. Values it is told are signed so that less is better."""

    def has_more(self) -> bool:
        """Whether there is a point to propose now."""
        ...

    def propose(self, trial: int) -> Proposal:
        """The next point, for the trial of this number. Only called after `has_more`, and before `started`."""
        ...

    def started(self, suggestion: Suggestion) -> None:
        """The trial exists: just proposed, or, in an earlier life, recorded."""
        ...

    def reported(self, trial: int, time: float, value: float) -> Stop | None: ...

    def ended(self, result: TrialResult) -> None: ...


class RandomSampler:
    """Independent draws; trial n's depends on the seed and n alone."""

    def __init__(self, spec: SearchSpec) -> None:
        self._seed = spec.seed
        self._layout = Layout(spec.space)

    def has_more(self) -> bool:
        return True

    def propose(self, trial: int) -> Proposal:
        return Proposal(self._layout.draw(Dice(self._seed, trial)))

    def started(self, suggestion: Suggestion) -> None:
        pass

    def reported(self, trial: int, time: float, value: float) -> Stop | None:
        return None

    def ended(self, result: TrialResult) -> None:
        pass


class GridSampler:
    """Every combination once; one that was refused as invalid is not tried again."""

    def __init__(self, spec: SearchSpec) -> None:
        self.points = GridPoints(spec.space)
        self._next = 0

    def has_more(self) -> bool:
        return self._next < len(self.points)

    def propose(self, trial: int) -> Proposal:
        return Proposal(self.points[self._next])

    def started(self, suggestion: Suggestion) -> None:
        self._next += 1

    def reported(self, trial: int, time: float, value: float) -> Stop | None:
        return None

    def ended(self, result: TrialResult) -> None:
        pass
