"""The port every store implements, and the small values it answers with; rows never leave a store.

`tests/contracts/store.py` is the contract as tests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from stoker.schema.event import EventBatch, Exited, Phase
from stoker.schema.job import JobSpec, Labels, Share
from stoker.schema.record import (
    CheckpointRecord,
    Job,
    JobSummary,
    JobTrial,
    LogPage,
    MetricPoint,
    Run,
    Trial,
    TrialList,
)
from stoker.schema.state import Intent, JobState, RunState, StopReason
from stoker.search.base import Prior, Record
from stoker.server.store.model_store import ModelStore
from stoker.server.store.page_store import PageStore

SearchState = Literal["open", "done", "failed"]


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job as it is submitted: the spec, and what the pool made of it."""

    spec: JobSpec
    owner: str
    pool: str
    need: Share  # of all its replicas together: a run starts whole or not at all


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list. `name` is a prefix, or a pattern when it has * or ?; `before` is a job's number."""

    states: frozenset[JobState] = frozenset()
    name: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    pool: str | None = None
    before: int | None = None
    limit: int = 100


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


class Store(Protocol):
    """Jobs, trials and runs, and all that runs have said.

    1. Every method is one transaction: it happens whole or not at all, and is durable when it returns.
    2. Methods may be called from any thread. None calls out: no engine, no network, no callback inside a transaction.
    3. A run's state changes in `move_run` alone, along `schema.state.check_move`; states of trials and jobs are folds.
    4. A trial always has a run, and a job without a search its trial, from the moment it is stored. The run after a
       restart is added in the same transaction that ends the one before, so a job never looks finished in between.
    5. Events are numbered per run and node from 1. Each is taken once and in order, however often it is sent; what
       comes after a gap is not taken, and `acked` says so.
    6. A job's log blocks become visible in the order of their cursors, so who has read up to one has missed none.
    7. What does not exist is NotFoundError; what the state does not allow is ConflictError; nothing changes then.
    """

    @property
    def models(self) -> ModelStore:
        """The registry's part."""
        ...

    @property
    def pages(self) -> PageStore:
        """What is looked at in columns, windows and lines."""
        ...

    def add_job(self, new: NewJob, *, now: float) -> tuple[Job, bool]:
        """Store a job with its first trial and run; True if it is new.

        The same spec under the same name is the same job; another spec under that name is ConflictError.
        """
        ...

    def job(self, job: str) -> Job:
        """The job, whole; of many trials the newest hundred."""
        ...

    def job_of(self, run: str) -> Job:
        """The job that this run belongs to, with the run's own trial alone, whose state is then the job's."""
        ...

    def trials(
        self, job: str, *, sort: str = "number", after: int = 0, limit: int = 100, only: int | None = None
    ) -> TrialList:
        """Trials by `number` (those after one), `newest` first, or `best` objective first; or `only` this one."""
        ...

    def trial(self, trial: int) -> JobTrial:
        """The trial of this id."""
        ...

    def trials_numbered(self, job: str, numbers: Sequence[int]) -> tuple[Trial, ...]:
        """These of a job's trials, in this order, without their runs."""
        ...

    def trial_states(self, job: str) -> dict[JobState, int]:
        """How many of its trials are in each state, counted by the database."""
        ...

    def summary(self, job: str) -> JobSummary:
        """The job's line; light enough to ask often."""
        ...

    def jobs(self, which: JobFilter) -> tuple[JobSummary, ...]:
        """Newest first."""
        ...

    def change_job(
        self, job: str, *, labels: Labels | None = None, priority: int | None = None, max_slots: int | None = None
    ) -> Job:
        """Replace what is given. `max_slots` is of all running trials of a search; ConflictError without a search."""
        ...

    def set_intent(self, job: str, intent: Intent, *, by: str, now: float, kill: bool = False) -> Job:
        """What the user wants now. Idempotent. A finished job can only be stopped, which changes nothing.

        With `kill`, its runs are to be ended at once.
        """
        ...

    def unfinished(self) -> tuple[JobNow, ...]:
        """All unfinished jobs, oldest first: what the scheduler decides upon."""
        ...

    def has_work(self) -> bool:
        """Whether any run is queued or live. Paused jobs are no work."""
        ...

    def run(self, run: str) -> Run: ...

    def move_run(
        self,
        run: str,
        state: RunState,
        *,
        now: float,
        stop: StopReason | None = None,
        message: str = "",
        restart: bool = False,
    ) -> Run:
        """The one door to a run's state. `restart` adds the trial's next run; only with a final state."""
        ...

    def place_run(
        self, run: str, *, directory: str | None = None, handle: str | None = None, num_nodes: int | None = None
    ) -> None:
        """Where the run is: its directory and on how many nodes before it is submitted, the engine's handle after."""
        ...

    def order_stop(self, run: str, reason: StopReason, *, now: float) -> None:
        """Tell a run to stop. The first reason stays, and so does its time."""
        ...

    def stop_order(self, run: str) -> StopReason | None:
        """The order a supervisor must obey: its run's, or `cancel` when the run is over already."""
        ...

    def add_run(self, trial: int, *, now: float) -> Run:
        """The next run of a trial whose last one is over."""
        ...

    def append_events(self, run: str, batch: EventBatch, *, now: float) -> Appended:
        """Take what is new of a batch: logs, metrics, checkpoints, progress, phase and exit."""
        ...

    def log_page(self, job: str, which: LogFilter, *, after: int = 0, limit: int = 10_000) -> LogPage:
        """Blocks after a cursor, until they hold `limit` lines; of a block, the lines that match.

        An empty page means that there is no more for now. With a filter, a block's `line` is the number of its first
        matching line. Memory is bounded by the page, not by the log.
        """
        ...

    def log_tail(self, job: str, which: LogFilter, *, lines: int) -> LogPage:
        """The last lines that match."""
        ...

    def metric_page(self, job: str, *, after: int = 0, limit: int = 1000) -> MetricPage:
        """What was reported after a cursor, in the order it came; an empty page means no more for now."""
        ...

    def search_past(self, job: str) -> SearchPast:
        """All records of a job's search."""
        ...

    def search_news(self, job: str, *, after: int) -> SearchNews:
        """What its searcher has not heard, by the number of the last report it has."""
        ...

    def search_results(self, job: str, *, after: int) -> SearchResults:
        """What its search has heard of trials since a cursor; all trials, from 0."""
        ...

    def record_search(self, job: str, batch: SearchBatch, *, now: float) -> None:
        """Keep what a searcher decided, and do it: new trials with their first runs, orders, ends. All or nothing."""
        ...

    def search_prior(self, job: str, metrics: Sequence[str]) -> tuple[Prior, ...]:
        """What came of a finished job's trials, for a search that begins by knowing them."""
        ...

    def checkpoint_of(self, trial: int) -> str | None:
        """The newest checkpoint of the trial of this id."""
        ...

    def checkpoints(self, job: str) -> tuple[CheckpointRecord, ...]: ...

    def is_ours(self) -> bool:
        """False once another server has taken the database: this one has to end."""
        ...

    def close(self) -> None: ...
