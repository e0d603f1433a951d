"""The port of what pages look at: lines of metrics, trials in columns, log lines by number, lists of jobs."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from stoker.schema.record import CheckpointRecord, JobSummary
from stoker.schema.state import JobState

Axis = Literal["step", "time"]


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


class PageStore(Protocol):
    """Reads alone, each one moment of the store; an unknown job is NotFoundError."""

    def series(self, job: str, which: SeriesFilter) -> SeriesAnswer: ...

    def series_news(
        self, job: str, *, after: int, trials: Sequence[int] | None = None, limit: int = 5000
    ) -> SeriesNews: ...

    def last_report(self, job: str) -> int:
        """The number of the newest report of any of its trials."""
        ...

    def last_decision(self, job: str) -> int:
        """The number of the newest record of its search: the cursor of `Store.search_results`."""
        ...

    def trial_rows(self, job: str, numbers: Sequence[int] | None = None) -> list[TrialRow]:
        """These trials, or all, by number."""
        ...

    def trial_rows_but(self, job: str, known: set[int]) -> list[TrialRow]:
        """All trials but these, by number."""
        ...

    def last_steps(self, job: str, numbers: Sequence[int]) -> dict[int, int]:
        """How far these trials have come: the highest step that each has reported."""
        ...

    def best_trials(self, job: str, count: int) -> list[int]:
        """Numbers of the best trials, or of the newest where nothing is ranked."""
        ...

    def past_runs(self, *, since: float, limit: int) -> list[PastRun]:
        """The newest runs of jobs that have not ended, or not before this."""
        ...

    def find_jobs(self, which: JobQuery) -> JobPage: ...

    def job_counts(self, which: JobQuery) -> dict[JobState, int]:
        """How many jobs that match, whatever their state and the page, are in each state."""
        ...

    def log_columns(self, job: str, *, after: int) -> BlockColumns: ...

    def log_runs(self, job: str, trial: int) -> frozenset[int]:
        """Keys of the runs of a trial."""
        ...

    def log_levels(self, job: str, *, after: int, limit: int) -> list[tuple[int, Mapping[int, str]]]:
        """Blocks after a cursor that have lines of another level than INFO: number, and those lines by offset."""
        ...

    def log_blocks(self, numbers: Sequence[int]) -> list[Block]: ...

    def find_lines(self, pattern: str, lines: Sequence[str]) -> list[int]:
        """Which lines a regular expression is found in; UsageError if that takes too long."""
        ...

    def checkpoints(self, job: str, trial: int | None) -> tuple[CheckpointRecord, ...]:
        """With the metrics that were newest at their steps."""
        ...
