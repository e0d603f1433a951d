"""What the server answers: jobs, trials and runs as they stand, and what they said."""

from typing import Any, Literal

from stoker.schema.event import Exited, Phase
from stoker.schema.job import JobSpec, Share
from stoker.schema.launch import Launch
from stoker.schema.model import Model
from stoker.schema.search import Objective
from stoker.schema.state import Intent, JobState, RunState, StopReason


class Run(Model):
    """One attempt at a trial."""

    id: str
    attempt: int
    state: RunState
    stop: StopReason | None = None  # the order it was given
    phase: Phase | None = None
    created: float  # all times are seconds since the epoch
    started: float | None = None  # user code began
    ended: float | None = None
    exit: Exited | None = None
    message: str = ""  # why it failed or was lost, in one line
    directory: str = ""


class Trial(Model):
    """One set of hyperparameters and the runs made of it, oldest first."""

    id: int
    number: int
    hparams: dict[str, Any]
    state: JobState
    progress: float | None = None
    metrics: dict[str, float] = {}  # the newest value of each
    latest_checkpoint: str | None = None
    runs: tuple[Run, ...] = ()
    # Of a trial of a search:
    objective: float | None = None  # the best value of the searched metric so far; None without a finite one
    objectives: dict[str, float] = {}  # with several objectives, the newest of each
    outcome: Literal["completed", "failed", "invalid_hp", "stopped"] | None = None  # once it is over for good
    stopped: str = ""  # why the search stopped it or did not count it, in words
    bracket: int = 0
    parent: int | None = None  # number of the trial whose checkpoint it started from
    seed: int | None = None


class SearchSummary(Model):
    """What a search has come to so far."""

    metric: str | None = None  # what trials are ranked by
    maximize: bool = False
    trials: int  # asked for, those that run among them
    outcomes: dict[str, int] = {}  # of those that are over: completed, stopped, failed, invalid_hp
    best: float | None = None  # the metric's best value
    best_trial: int | None = None  # the number of the trial that has it
    max_slots: int | None = None  # of all running trials together, if it was changed


class JobSummary(Model):
    """A line of `jobs list`."""

    id: str
    number: int
    owner: str
    kind: str
    state: JobState
    reason: str = ""  # why it waits, or why it failed, in words
    pool: str
    priority: int
    labels: dict[str, str]
    progress: float | None = None
    created: float
    started: float | None = None
    ended: float | None = None
    search: SearchSummary | None = None  # of a job with a search
    metrics: dict[str, float] = {}  # of a job without one: the newest value of each, at most 8


class Job(JobSummary):
    """A job, whole; of a search with very many trials the newest hundred (`GET /jobs/{job}/trials` has all)."""

    intent: Intent
    spec: JobSpec
    trials: tuple[Trial, ...]
    notes: tuple[str, ...] = ()  # in the answer to its submission: what is not literally as it was asked for


class JobTrial(Trial):
    """A trial, with the name of its job."""

    job: str


class TrialList(Model):
    """Trials of a job, in the order asked for; `total` counts those left out too."""

    trials: tuple[Trial, ...]
    total: int


class SearchStatus(Model):
    """How a search stands, and what it found."""

    job: str
    state: JobState
    sampler: str
    stopping: str
    objectives: tuple[Objective, ...]  # the first is what trials are ranked and pruned by; none: nothing is compared
    max_trials: int  # planned at most, without those refused as invalid
    progress: float  # from 0 to 1
    finished: bool  # nothing more will be tried
    failure: str = ""  # why the search as a whole failed
    states: dict[str, int]  # number of trials by JobState
    outcomes: dict[str, int]  # number of ended trials by outcome: completed, stopped, failed, invalid_hp
    best: tuple[Trial, ...]  # best first, by the first objective, without runs
    front: tuple[int, ...] = ()  # with several objectives: numbers of the trials that no other beats in all of them
    curve: tuple[tuple[int, float], ...] = ()  # trial number, and the best value up to it
    importance: dict[str, float] = {}  # each hyperparameter's share, most first; empty with too few trials

    @property
    def metric(self) -> str | None:
        return self.objectives[0].metric if self.objectives else None


class JobList(Model):
    jobs: tuple[JobSummary, ...]
    cursor: str | None = None  # ask for this page next; None if there is no more
    counts: dict[str, int] | None = None  # jobs in each state, whatever the page, if they were asked for


class LogBlock(Model):
    """Consecutive lines of one stream of one replica; `cursor` orders blocks over the whole job."""

    cursor: int
    run: str
    trial: int
    attempt: int
    node: int
    replica: str
    stream: Literal["stdout", "stderr"]
    time: float
    line: int
    text: str
    levels: dict[int, str] = {}


class LogPage(Model):
    blocks: tuple[LogBlock, ...]
    cursor: int  # ask for `after` this one next


class MetricPoint(Model):
    run: str
    trial: int
    time: float
    replica: str
    group: str
    step: int
    values: dict[str, float]


class CheckpointRecord(Model):
    run: str
    trial: int
    time: float
    step: int
    path: str
    size_bytes: int
    metadata: dict[str, Any] = {}
    metrics: dict[str, float] = {}  # what was newest at its step, when one trial's checkpoints are asked for


class Held(Model):
    """What a run holds of one node of a cluster."""

    node: str  # its id
    share: Share


class Holder(Model):
    """A run that has its place in a pool."""

    job: str
    run: str
    trial: int
    owner: str
    share: Share
    since: float
    nodes: tuple[Held, ...] = ()  # of a cluster, once it is known where


class Waiting(Model):
    """A job that waits for a place in a pool."""

    job: str
    priority: int
    share: Share
    since: float
    reason: str


class PoolHistory(Model):
    """What of a pool was in use, over time; lists of one length."""

    name: str
    time: tuple[float, ...]
    cpus: tuple[float, ...]
    memory_gb: tuple[float, ...]
    gpus: tuple[float, ...]
    running: tuple[int, ...]
    queued: tuple[int, ...]


class PoolNode(Share):
    """A node of a cluster: what it has, and what of it is free by the cluster's own word, as of some seconds ago."""

    id: str = ""
    host: str = ""
    address: str = ""
    free: Share | None = None


class PoolStatus(Model):
    """A pool, what of it is in use, and who waits."""

    name: str
    engine: str
    capacity: Share
    used: Share
    slots: int
    tiers: tuple[str, ...]
    running: tuple[str, ...]
    queued: tuple[str, ...]
    nodes: tuple[PoolNode, ...] = ()  # of a cluster
    trouble: str = ""  # why nothing can be started there now
    holders: tuple[Holder, ...] = ()
    waiting: tuple[Waiting, ...] = ()


class Health(Model):
    name: Literal["stoker"] = "stoker"
    version: str
    pid: int
    url: str
    home: str


class DryRun(Model):
    """What would be started, first run of the first trial."""

    launch: Launch
    pool: str
    notes: tuple[str, ...] = ()
