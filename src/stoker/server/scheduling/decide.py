"""What to do next, and why a job waits: pure functions of a snapshot and the time.

The rules of the queue. Jobs of higher priority come first, then older ones. A run starts with all its replicas or not
at all. A job that does not fit yet is passed by those behind it that do, so that a pool is never idle for the sake of
order; but once it has waited for PATIENCE_S, nothing behind it starts in that pool until it has its place.
On a cluster, a job takes its place from those of lower priority: they are told to stop, and go on later.
"""

import math
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from stoker.schema.event import Exited, Phase
from stoker.schema.job import NOTHING, Share
from stoker.schema.pool import Pool
from stoker.schema.state import Intent, RunState, StopReason
from stoker.server.store.values import JobNow, RunNow, TrialNow

PATIENCE_S = 600.0
SETTLE_S = 0.5  # an Exited event may still be on its way when its supervisor is seen gone
OVERDUE_S = 15.0  # a supervisor ends its replicas after the grace; this long after it is past hope
MAX_LOSSES = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that decisions are made of."""

    jobs: tuple[JobNow, ...]
    pools: Mapping[str, Pool]
    gone: Mapping[str, float]  # runs whose supervisor is not alive, and since when
    collected: Mapping[str, bool]  # runs that were collected, and whether their last words have arrived
    waiting: Mapping[str, str] = field(default_factory=dict)  # runs that their cluster has no place for yet, and why


@dataclass(frozen=True, slots=True)
class Start:
    """Give a queued run to its engine."""

    run: str


@dataclass(frozen=True, slots=True)
class Find:
    """A server died while it gave this run to the engine: find out whether the engine has it."""

    run: str


@dataclass(frozen=True, slots=True)
class Move:
    """Change a run's state by what is known of it; `restart` adds the trial's next run."""

    run: str
    state: RunState
    stop: StopReason | None = None
    message: str = ""
    restart: bool = False


@dataclass(frozen=True, slots=True)
class StopOrder:
    """Tell a run's supervisor to stop it."""

    run: str
    reason: StopReason


@dataclass(frozen=True, slots=True)
class Collect:
    """End all that is left of a run whose supervisor is gone or does not obey, and ship its last words."""

    run: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """A collected run's last words did not say how it ended: so it becomes `state`, and the engine is asked why."""

    run: str
    state: RunState
    message: str
    stop: StopReason | None = None
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take a run back that waits for a place on its cluster: nothing of it has started."""

    run: str
    state: RunState
    message: str = ""
    stop: StopReason | None = None


@dataclass(frozen=True, slots=True)
class Continue:
    """Add the next run of a trial that was paused."""

    trial: int


Action = Start | Find | Move | StopOrder | Collect | Abandon | Withdraw | Continue


def decide(snapshot: Snapshot, now: float) -> tuple[Action, ...]:
    """What is to be done, in order: first what ends or stops, then what starts."""
    tended = [_tend(job, trial, snapshot, now) for job in snapshot.jobs for trial in job.trials]
    places = list(_queue(snapshot, now))
    orders = [StopOrder(run, StopReason.PREEMPT) for place in places for run in place.takes]
    starts = [Start(place.trial.run.id) for place in places if place.starts]
    return (*(action for action in tended if action is not None), *orders, *starts)


def explain(snapshot: Snapshot, now: float) -> dict[str, str]:
    """For each job that waits for a place: why, in words."""
    queued = {place.job.id: _words(place, snapshot) for place in _queue(snapshot, now) if not place.starts}
    placed = {job.id: snapshot.waiting.get(trial.run.id, "") for job in snapshot.jobs for trial in job.trials}
    return {**_unheard(snapshot), **{job: why for job, why in placed.items() if why}, **queued}


def _unheard(snapshot: Snapshot) -> dict[str, str]:
    """Jobs that were given to a cluster, have said nothing yet, and whose cluster does not answer."""
    trouble = {pool.name: pool.trouble for pool in snapshot.pools.values() if pool.trouble}
    return {
        job.id: f"waits: {trouble[job.pool]}"
        for job in snapshot.jobs
        if job.pool in trouble
        and any(trial.run.state is RunState.STARTING and trial.run.phase is None for trial in job.trials)
    }


def used(jobs: Iterable[JobNow], pool: str, *, but: Collection[str] = ()) -> Share:
    """What live runs hold of a pool, or are to have of it; `but` these, which wait for a place there."""
    runs = [(job.need, trial.run) for job in jobs if job.pool == pool for trial in job.trials]
    return Share.total([need for need, run in runs if is_live(run) and run.id not in but])


def is_live(run: RunNow) -> bool:
    return run.state in (RunState.STARTING, RunState.RUNNING)


# --- one run


def _tend(job: JobNow, trial: TrialNow, snapshot: Snapshot, now: float) -> Action | None:
    run = trial.run
    if run.state is RunState.QUEUED:
        return _tend_queued(job, run, now)
    if is_live(run):
        return _tend_live(job, trial, snapshot, now)
    paused = run.state is RunState.STOPPED and run.stop is StopReason.PAUSE
    return Continue(trial.id) if paused and job.intent is Intent.RUN else None


def _tend_queued(job: JobNow, run: RunNow, now: float) -> Action | None:
    if job.intent is not Intent.RUN:
        return Move(run.id, RunState.STOPPED, stop=_REASONS[job.intent])
    if run.stop is not None:
        return Move(run.id, RunState.STOPPED, stop=run.stop)
    if job.max_waiting_s is not None and now - run.created > job.max_waiting_s and not _waits_for_its_own(job):
        message = f"It waited for pool {job.pool!r} for longer than max_waiting_s = {job.max_waiting_s:g} allows."
        return Move(run.id, RunState.FAILED, message=message)
    return None


def _waits_for_its_own(job: JobNow) -> bool:
    """A search's next trial may wait for those that run: the job itself has its place."""
    return job.is_searching and any(is_live(trial.run) for trial in job.trials)


def _tend_live(job: JobNow, trial: TrialNow, snapshot: Snapshot, now: float) -> Action | None:
    run = trial.run
    if run.exit is not None:
        return _ended(job, trial, run, run.exit)
    if run.handle is None:
        return Find(run.id)
    if run.id in snapshot.collected:
        return _abandon(job, trial) if snapshot.collected[run.id] else None
    if _is_past_hope(job, run, snapshot.gone.get(run.id), now):
        return Collect(run.id)
    if run.id in snapshot.gone:
        return None
    if run.id in snapshot.waiting:
        return _tend_waiting(job, run, snapshot.waiting[run.id], now)
    if job.intent is not Intent.RUN and run.stop is None:
        return StopOrder(run.id, _REASONS[job.intent])
    if run.state is RunState.STARTING and run.phase is Phase.USER_CODE:
        return Move(run.id, RunState.RUNNING)
    return None


def _tend_waiting(job: JobNow, run: RunNow, why: str, now: float) -> Action | None:
    if job.intent is not Intent.RUN:
        return Withdraw(run.id, RunState.STOPPED, stop=_REASONS[job.intent])
    late = _tend_queued(job, run, now)
    if not isinstance(late, Move):
        return None
    message = f"{late.message} At last it {why}." if late.message and why else late.message
    return Withdraw(run.id, late.state, message=message, stop=late.stop)


def _is_past_hope(job: JobNow, run: RunNow, gone_since: float | None, now: float) -> bool:
    if job.is_killed or (gone_since is not None and now - gone_since >= SETTLE_S):
        return True
    return run.stop_time is not None and now - run.stop_time > job.grace_s + OVERDUE_S


_REASONS = {Intent.STOP: StopReason.CANCEL, Intent.PAUSE: StopReason.PAUSE}


def _ended(job: JobNow, trial: TrialNow, run: RunNow, end: Exited) -> Move:
    if end.stop is not None:
        again = job.intent is Intent.RUN and end.stop in (StopReason.PAUSE, StopReason.PREEMPT)
        return Move(run.id, RunState.STOPPED, stop=end.stop, message=end.message, restart=again)
    if end.code == 0:
        return Move(run.id, RunState.SUCCEEDED)
    return Move(run.id, RunState.FAILED, message=_failure(end), restart=_may_restart(job, trial, end))


def _may_restart(job: JobNow, trial: TrialNow, end: Exited) -> bool:
    """What fails before user code begins would fail again: it is not tried again."""
    if job.intent is Intent.STOP or end.phase is not Phase.USER_CODE or trial.failures >= job.max_restarts:
        return False
    if trial.is_invalid or trial.run.stop is StopReason.PRUNE:
        return False
    return job.exit_codes is None or not _codes(end).isdisjoint(job.exit_codes)


def _codes(end: Exited) -> set[int]:
    """What a shell, Python and the kernel call the same end."""
    codes = set() if end.code is None else {end.code}
    if end.signal is not None and end.signal in signal.Signals.__members__:
        number = signal.Signals[end.signal].value
        codes |= {-number, 128 + number}
    return codes


def _failure(end: Exited) -> str:
    if end.message:
        return end.message
    who = end.replica or "It"
    if end.signal:
        return f"{who} was ended by {end.signal}."
    return f"{who} could not be started." if end.code is None else f"{who} exited with code {end.code}."


def _abandon(job: JobNow, trial: TrialNow) -> Abandon:
    run = trial.run
    stop = run.stop or _REASONS.get(job.intent)
    if stop is not None:
        again = job.intent is Intent.RUN and stop in (StopReason.PAUSE, StopReason.PREEMPT)
        message = "It was killed." if job.is_killed else "It did not end by itself and was ended."
        return Abandon(run.id, RunState.STOPPED, message, stop=stop, restart=again)
    again = trial.losses < MAX_LOSSES
    return Abandon(run.id, RunState.LOST, "Its supervisor vanished.", restart=again)


# --- the queue


@dataclass(frozen=True, slots=True)
class _Place:
    """A queued run's turn: what was free when it came, and who was before it."""

    job: JobNow
    trial: TrialNow
    starts: bool
    free: Share
    more_urgent: int  # waiting jobs of higher priority in its pool
    older: int  # waiting jobs of its own priority in its pool that came first
    held_by: str | None  # a job behind which nothing starts any more
    takes: tuple[str, ...] = ()  # the runs that are to make room for it


def _queue(snapshot: Snapshot, now: float) -> Iterator[_Place]:
    waiting = [
        (job, trial)
        for job in snapshot.jobs
        for trial in job.trials
        if trial.run.state is RunState.QUEUED and _tend_queued(job, trial.run, now) is None
    ]
    waiting.sort(key=lambda place: (-place[0].priority, place[0].number, place[1].number))
    lines = {
        name: _Line(
            NOTHING if pool.trouble else pool.limit, used(snapshot.jobs, name), turns=_turns(pool, snapshot.jobs)
        )
        for name, pool in snapshot.pools.items()
    }
    going = {job.id: sum(is_live(trial.run) for trial in job.trials) for job, _ in waiting if job.max_live is not None}
    for job, trial in waiting:
        if job.max_live is not None and going[job.id] >= job.max_live:
            continue  # it waits for its own trials
        line = lines.setdefault(job.pool, _Line(NOTHING, NOTHING))
        place = line.take(job, trial, now)
        if place.starts and job.id in going:
            going[job.id] += 1
        room = None if place.starts or place.held_by is not None else _room(place, snapshot)
        if room is not None:
            line.hold(job.id)  # or what is freed would go to those behind it, such as those who make room
            place = replace(place, takes=room)
        yield place


def _room(place: _Place, snapshot: Snapshot) -> tuple[str, ...] | None:
    """The runs that have to stop for it, beside those that do so already; None where that is not to be, or no use.

    On clusters alone: a single machine's jobs are one person's. The least urgent go first, then the newest.
    """
    pool = snapshot.pools.get(place.job.pool)
    if pool is None or pool.engine == "local" or pool.trouble or pool.is_unsized:
        return None
    lower = sorted(
        (job for job in snapshot.jobs if job.pool == pool.name and job.priority < place.job.priority),
        key=lambda job: (job.priority, -job.number),
    )
    live = [(job.need, trial.run) for job in lower for trial in job.trials if is_live(trial.run)]
    room = [place.free, *(need for need, run in live if run.stop is StopReason.PREEMPT)]
    taken: list[str] = []
    for need, run in live:
        if place.job.need.fits(Share.total(room)):
            break
        if run.stop is None and run.handle is not None and run.id not in snapshot.waiting:
            room.append(need)
            taken.append(run.id)
    return tuple(taken) if place.job.need.fits(Share.total(room)) else None


def _turns(pool: Pool, jobs: Iterable[JobNow]) -> float:
    """How many runs may be given to its engine: while nobody knows what its nodes will hold, one for each of them.

    Otherwise a search of a thousand trials would wait at a cluster that comes up, all of it and in the cluster's order.
    """
    if not pool.is_unsized or pool.max_nodes is None:
        return math.inf
    return pool.max_nodes - sum(is_live(trial.run) for job in jobs if job.pool == pool.name for trial in job.trials)


class _Line:
    """One pool's queue, walked from its head."""

    def __init__(self, capacity: Share, taken: Share, *, turns: float = math.inf) -> None:
        self._capacity, self._turns = capacity, turns
        self._free = capacity - taken
        self._waiting: dict[int, int] = {}  # priority to how many wait
        self._held_by: str | None = None

    def hold(self, job: str) -> None:
        """Nothing behind this one starts."""
        self._held_by = self._held_by or job

    def take(self, job: JobNow, trial: TrialNow, now: float) -> _Place:
        starts = self._held_by is None and self._turns > 0 and job.need.fits(self._free)
        place = _Place(
            job=job,
            trial=trial,
            starts=starts,
            free=self._free,
            more_urgent=sum(count for priority, count in self._waiting.items() if priority > job.priority),
            older=self._waiting.get(job.priority, 0),
            held_by=self._held_by,
        )
        if starts:
            self._turns -= 1
            self._free -= job.need
            return place
        self._waiting[job.priority] = place.older + 1
        # One that can never fit (the pool was made smaller) must not hold up the others for ever.
        if self._held_by is None and now - trial.run.created > PATIENCE_S and job.need.fits(self._capacity):
            self._held_by = job.id
        return place


# --- in words


def _words(place: _Place, snapshot: Snapshot) -> str:
    job = place.job
    pool = snapshot.pools.get(job.pool)
    if pool is None:
        return f"waits for pool {job.pool!r}, which is not in config.toml any more"
    if pool.trouble:
        return f"waits: {pool.trouble}"
    if not job.need.fits(pool.limit):
        return f"needs {job.need.in_words}; pool {job.pool!r} has {pool.capacity.in_words} now and can never hold it"
    if place.held_by is not None:
        why = "is to have the next place" if pool.engine != "local" else "has waited long for a place"
        return f"waits behind job {place.held_by!r}, which {why} in pool {job.pool!r}"
    if pool.is_unsized and job.need.fits(place.free):
        return f"waits for the first node of pool {job.pool!r}: what its nodes hold is not known yet{_behind(place)}"
    if place.takes:
        return f"takes the place of {_count(len(place.takes), 'run')} of lower priority in pool {job.pool!r}"
    return f"waits for {_shortage(job.need, place.free, job.pool)}{_behind(place)}"


def _shortage(need: Share, free: Share, pool: str) -> str:
    """`2 CPUs of pool 'local': 1 is free`"""
    short: list[tuple[str, float]] = []
    if need.cpus > free.cpus:
        short.append((_count(need.cpus, "CPU"), free.cpus))
    if need.gpus > free.gpus:
        short.append((_count(need.gpus, "GPU"), free.gpus))
    if need.memory_gb > free.memory_gb:
        short.append((f"{need.memory_gb:g} GB of memory", free.memory_gb))
    if len(short) == 1:
        what, left = short[0]
        return f"{what} of pool {pool!r}: {_free(left)}"
    asked = " and ".join(what for what, _ in short)
    return f"{asked} of pool {pool!r}: {' and '.join(f'{left:g}' for _, left in short)} are free"


def _behind(place: _Place) -> str:
    parts = []
    if place.more_urgent:
        parts.append(f"{_count(place.more_urgent, 'job')} of higher priority")
    if place.older:
        parts.append(f"{_count(place.older, 'older job')}")
    return f"; behind {' and '.join(parts)}" if parts else ""


def _count(number: float, noun: str) -> str:
    return f"{number:g} {noun}{'' if number == 1 else 's'}"


def _free(left: float) -> str:
    return "none is free" if left == 0 else f"{left:g} {'is' if left == 1 else 'are'} free"
