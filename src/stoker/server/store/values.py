"""The small values that the store takes and returns; database rows never leave it."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from stoker.schema.event import Exited, Phase
from stoker.schema.job import JobSpec, Share
from stoker.schema.record import JobSummary, MetricPoint
from stoker.schema.state import Intent, JobState, RunState, StopReason
from stoker.search.base import Record

SearchState = Literal["open", "done", "failed"]
Axis = Literal["step", "time"]


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job as it is submitted: the spec, and what the pool made of it."""

    spec: JobSpec
    owner: str
    pool: str
    need: Share  # of all its replicas together: a run starts whole or not at all


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which log lines to read. `level` is the lowest to show; `text` is found in any case; times are a block's."""

    replica: str | None = None
    level: str | None = None
    text: str | None = None
    regex: str | None = None
    since: float | None = None
    until: float | None = None
    trial: int | None = None  # its number


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of a batch. `moved` says that it told more than logs and metrics: the scheduler should look."""

    job: str
    acked: int
    stop: StopReason | None
    moved: bool


@dataclass(frozen=True, slots=True)
class MetricPage:
    """Reports, and the cursor to ask `after` next."""

    points: tuple[MetricPoint, ...]
    cursor: int


@dataclass(frozen=True, slots=True)
class RunNow:
    """A trial's newest run, as the scheduler sees it."""

    id: str
    state: RunState
    created: float
    stop: StopReason | None = None
    stop_time: float | None = None
    phase: Phase | None = None
    exit: Exited | None = None
    handle: str | None = None


@dataclass(frozen=True, slots=True)
class TrialNow:
    """A trial of an unfinished job: how often it failed and was lost, and its newest run."""

    id: int
    number: int
    failures: int
    losses: int
    run: RunNow
    is_invalid: bool = False  # user code refused its hyperparameters: to try them again is no use


@dataclass(frozen=True, slots=True)
class JobNow:
    """An unfinished job, in the few words that scheduling takes."""

    id: str
    number: int
    pool: str
    priority: int
    intent: Intent
    intent_by: str
    need: Share
    max_restarts: int
    exit_codes: tuple[int, ...] | None
    max_waiting_s: float | None
    grace_s: float
    trials: tuple[TrialNow, ...]  # those that are not over
    search: SearchState | None = None
    max_live: int | None = None  # trials at once, if that was changed
    is_killed: bool = False  # to be ended at once, without a grace

    @property
    def is_searching(self) -> bool:
        """More trials may come."""
        return self.search == "open"


@dataclass(frozen=True, slots=True)
class Report:
    """A metric as a searcher hears it; `number` is its place among all reports."""

    number: int
    trial: int
    group: str
    step: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class OverTrial:
    """A trial that is over and whose end the search has not heard of: its newest run, and whether it was refused."""

    number: int
    state: RunState
    stop: StopReason | None
    is_invalid: bool


@dataclass(frozen=True, slots=True)
class SearchNews:
    """What a searcher has not heard. All reports of the trials in `over` are in `reports`, or were heard before."""

    reports: tuple[Report, ...]
    over: tuple[OverTrial, ...]


@dataclass(frozen=True, slots=True)
class SearchPast:
    """All that a search has decided, in order, and the newest report it had heard by then."""

    records: tuple[Record, ...]
    cursor: int


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search knows of a trial."""

    number: int
    hparams: Mapping[str, Any]
    objectives: Mapping[str, float]
    outcome: str | None


@dataclass(frozen=True, slots=True)
class SearchResults:
    """Trials of which a search has something new, and the cursor to ask `after` next."""

    results: tuple[SearchResult, ...]
    cursor: int


@dataclass(frozen=True, slots=True)
class SearchEntry:
    """A record, with what it causes: `Asked` a trial, `Reported` an order if it stops one."""

    record: Record
    metric: int | None = None  # the report that it answers
    hparams: Mapping[str, Any] = field(default_factory=dict)  # all that the trial is to be given
    checkpoint: str | None = None  # where it starts, if it has no parent


@dataclass(frozen=True, slots=True)
class SearchBatch:
    """What a searcher decided at once."""

    entries: Sequence[SearchEntry] = ()
    values: Mapping[int, Mapping[str, float]] = field(default_factory=dict)  # trials' objectives, as they stand now
    progress: float | None = None
    state: SearchState = "open"
    failure: str | None = None


class Line(NamedTuple):
    """Whose metric it is."""

    trial: int  # its number
    group: str
    name: str
    replica: str


@dataclass(frozen=True, slots=True)
class SeriesFilter:
    """Which lines of which trials (by number), and what part of them. No names, no group: all."""

    trials: Sequence[int]
    group: str | None = None
    names: frozenset[str] = frozenset()
    x: Axis = "step"
    points: int = 1200
    start: float | None = None
    end: float | None = None
    newest_block: bool = False  # of each line only its last points in the range


@dataclass(frozen=True, slots=True)
class Points:
    """A line to draw; `total` counts what it was before points were left out."""

    line: Line
    xs: Sequence[float]
    ys: Sequence[float]
    total: int


@dataclass(frozen=True, slots=True)
class SeriesAnswer:
    """Lines, all (group, name) that their trials have, and the newest report they know of."""

    points: tuple[Points, ...]
    names: tuple[tuple[str, str], ...]
    cursor: int


@dataclass(slots=True)
class Fresh:
    """New points of a line, one for each report: its number, step, time and value."""

    numbers: list[int]
    steps: list[int]
    times: list[float]
    values: list[float]


@dataclass(frozen=True, slots=True)
class SeriesNews:
    """What was reported after a cursor. `is_whole` is False when there was more than one answer holds."""

    lines: Mapping[Line, Fresh]
    cursor: int
    is_whole: bool


class TrialRow(NamedTuple):
    """A trial as lists show it. A tuple, because ten thousand are made at once, and columns of them."""

    number: int
    state: JobState
    outcome: str | None
    objective: float | None
    progress: float | None
    started: float | None
    ended: float | None
    bracket: int
    parent: int | None
    stopped: str
    hparams: Mapping[str, Any]  # flat
    metrics: Mapping[str, float]
    is_settled: bool  # it will not change any more


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs, in which order. `after` is the place behind which the page begins: a sort key and a number."""

    words: tuple[str, ...] = ()
    states: frozenset[JobState] = frozenset()
    name: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    pool: str | None = None
    owner: str | None = None
    sort: str = "created"
    falling: bool = True
    after: tuple[Any, int] | None = None
    before: int | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs, and where the next page begins; None if this was the last."""

    jobs: tuple[JobSummary, ...]
    after: tuple[Any, int] | None


@dataclass(slots=True)
class BlockColumns:
    """A job's log blocks after a cursor, without their text: a column each, in the order of their numbers."""

    numbers: "array[int]"
    counts: "array[int]"
    runs: "array[int]"  # keys, to be named by `sources`
    replicas: list[str]


@dataclass(frozen=True, slots=True)
class Block:
    """The lines of one block, and where they come from."""

    number: int
    lines: list[str]
    levels: Mapping[int, str]
    time: float
    run: str
    trial: int
    attempt: int
    replica: str
    stream: str


class PastRun(NamedTuple):
    """When a run waited, ran and ended, and what it held of its pool meanwhile."""

    job: int
    pool: str
    cpus: float
    memory_gb: float
    gpus: float
    created: float
    started: float | None
    ended: float | None
