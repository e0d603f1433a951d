"""The port every searcher implements, and the records it can be rebuilt from. `tests/contracts/searcher.py` tests it.

A searcher decides three things: which trial is next, when a trial stops, and when the search is over. It keeps nothing
on disk. Whoever runs it stores one record for each call that answered or was acted on, in order; another process
hands the same records to a new searcher and has the same one.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, TypeAdapter

from stoker.schema.model import Model


class Outcome(StrEnum):
    """How a trial ended, restarts and all."""

    COMPLETED = "completed"  # by itself
    FAILED = "failed"  # given up after its restarts
    INVALID_HP = "invalid_hp"  # user code refused the hyperparameters: another is tried in its place
    STOPPED = "stopped"  # because the searcher said so


class StopKind(StrEnum):
    PRUNED = "pruned"  # others do better
    FINISHED = "finished"  # it reached the end of the last rung
    REPLACED = "replaced"  # a copy of a better one takes its place in the population


class Suggestion(Model):
    """The next trial: its number from 1, its hyperparameters, its seed."""

    trial: int
    hparams: dict[str, Any]
    seed: int
    bracket: int = 0
    parent: int | None = None  # start from this trial's newest checkpoint
    memory: dict[str, Any] = {}  # what the sampler must know of it to go on; not for user code


class Stop(Model):
    """The trial should end now, and why, in a line for a person."""

    kind: StopKind
    message: str


class Asked(Model):
    type: Literal["asked"] = "asked"
    suggestion: Suggestion


class Reported(Model):
    type: Literal["reported"] = "reported"
    trial: int
    step: int
    values: dict[str, float]
    stop: Stop | None = None  # what was answered


class Ended(Model):
    type: Literal["ended"] = "ended"
    trial: int
    outcome: Outcome
    reported: tuple[str, ...] = ()  # names of all the metrics it ever reported


Record = Annotated[Asked | Reported | Ended, Field(discriminator="type")]


_RECORD: TypeAdapter[Record] = TypeAdapter(Record)


def dump_record(record: Record) -> str:
    """A record as JSON, as stores keep it."""
    return record.model_dump_json()


def load_record(text: str) -> Record:
    return _RECORD.validate_json(text)


class Prior(Model):
    """A trial of an earlier search: what was tried and what came of it, a value for each objective."""

    hparams: dict[str, Any]
    values: tuple[float, ...]


class Searcher(Protocol):
    """Decides; never waits, never reads a clock, does no I/O.

    1. Same spec and same records, in the same order: the same state, and the same answers from there on.
    2. `ask` answers None when there is nothing to start now, and then has changed nothing.
    3. At no time are more trials live (asked, not ended) than `max_concurrent_trials`, nor more made than `max_trials`
       without counting those that ended INVALID_HP.
    4. A trial is told to stop at most once. Until it has ended it stays live and in `stopping`.
    5. A value that is not finite is worse than any that is. It never ends the search.
    6. Every trial that was asked ends once; after that it says nothing more.
    """

    def ask(self) -> Suggestion | None:
        """The next trial to start, if there is one now. The caller stores Asked with it and starts it."""
        ...

    def wants(self, values: Mapping[str, float], *, group: str | None = None) -> bool:
        """Whether a report concerns the search. The caller hands over, and stores, only those that do."""
        ...

    def report(self, trial: int, *, step: int, values: Mapping[str, float]) -> Stop | None:
        """Metrics of a live trial. The caller stores Reported with the answer, and stops the trial if there is one."""
        ...

    def ended(self, trial: int, outcome: Outcome, *, reported: Sequence[str] = ()) -> None:
        """The trial is over for good. The caller stores Ended."""
        ...

    def replay(self, record: Record) -> None:
        """Take a stored record for done, as it was decided then."""
        ...

    @property
    def stopping(self) -> Mapping[int, Stop]:
        """Trials that were told to stop and have not ended: a new server gives the order again."""
        ...

    @property
    def finished(self) -> bool:
        """Nothing is live and nothing more will be asked."""
        ...

    def failure(self) -> str | None:
        """Why the search should end now as failed, in words; None while it is well."""
        ...

    def progress(self) -> float:
        """From 0 to 1."""
        ...
