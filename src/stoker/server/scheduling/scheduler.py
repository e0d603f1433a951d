"""Start, watch and end runs: each tick takes a snapshot, decides without I/O (decide.py), and acts.

The server may be killed between any two statements here. What it meant to do is then found in the store by the next
one: a run is STARTING before its engine hears of it, and the engine knows a run by its directory, so that a run whose
handle was not written down is found or, if it never started, started then.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from stoker.engines.base import Engine, Liveness
from stoker.errors import NotFoundError, StokerError
from stoker.host.home import Home
from stoker.schema.launch import Launch, Replica
from stoker.schema.pool import Pool
from stoker.schema.record import Job, JobSummary, PoolNode, PoolStatus
from stoker.schema.state import JobState, RunState
from stoker.server.live.wakeups import Wakeups
from stoker.server.scheduling.decide import (
    Abandon,
    Action,
    Collect,
    Continue,
    Find,
    Move,
    Snapshot,
    Start,
    StopOrder,
    Withdraw,
    decide,
    explain,
    is_live,
    used,
)
from stoker.server.scheduling.launch import build_launch, find_run
from stoker.server.scheduling.placement import replicas_for
from stoker.server.searches.search import Searches
from stoker.server.store.store import Store
from stoker.server.store.values import JobNow, RunNow

logger = logging.getLogger(__name__)

JobLine = TypeVar("JobLine", bound=JobSummary)

_LIVE_S = 2.0  # how often engines are asked whether their runs live
_QUEUED_S = 5.0  # how often waiting too long is noticed
_GONE_S = 0.25
_SHORT_TICK_S = 0.02
_DRAIN_S = 30.0  # how long a lost run's last words are waited for before its trial goes on without them


@dataclass(frozen=True, slots=True)
class _Drain:
    """The shipping of a collected run's last words."""

    engine: str
    handle: str | None
    since: float


class Scheduler:
    """One thread that tends all runs; everybody else only wakes it."""

    def __init__(
        self,
        store: Store,
        *,
        engines: Mapping[str, Engine],
        pools: Mapping[str, Pool],
        home: Home,
        wakeups: Wakeups,
        now: Callable[[], float] = time.time,
        background: Executor | None = None,
    ) -> None:
        """`background` is where searches think that may take long; a thread, if not given."""
        self._store = store
        self._engines = engines
        self._pools = pools
        self._home = home
        self._wakeups = wakeups
        self._now = now
        self._gone: dict[str, float] = {}
        self._drains: dict[str, _Drain] = {}
        self._leaving: dict[str, str] = {}  # handles of ended runs, and their engines
        self._last = Snapshot(jobs=(), pools=pools, gone={}, collected={})
        self._handles: dict[str, str] = {}  # of the runs in it
        self._engine_names: dict[str, str] = {}  # of the jobs in it
        self._sizes: dict[str, tuple[Pool, tuple[Replica, ...]]] = {}  # of its jobs, on their pools as they were
        self._reasons: tuple[Snapshot, Mapping[str, str]] = (self._last, {})
        self._unplaced: frozenset[str] = frozenset()  # handles of runs that wait for a place on their cluster
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._searches = Searches(store, pools=pools, wakeups=wakeups, wake=self.wake, now=now, background=background)
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    @property
    def pools(self) -> Mapping[str, Pool]:
        return self._pools

    def start(self) -> None:
        self._woken.set()
        self._thread.start()

    def wake(self) -> None:
        """Something has changed: look soon."""
        self._woken.set()

    def stop(self) -> None:
        """Return once the tick in progress is over. Runs go on."""
        self._stopping.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()
        self._searches.close()

    def tick(self) -> int:
        """Snapshot, decide, act; then what searches make of it. How many actions went well."""
        done = self._tend()
        if any(job.is_searching for job in self._last.jobs) and not self._stopping.is_set():
            if decided := self._searches.step():
                done += decided + self._tend()
        return done

    def _tend(self) -> int:
        now = self._now()
        snapshot = self._snapshot(now)
        actions = decide(snapshot, now)
        self._last = snapshot
        self._engine_names = {job.id: self._engine_of(job) for job in snapshot.jobs}
        runs = (trial.run for job in snapshot.jobs for trial in job.trials)
        self._handles = {run.id: run.handle for run in runs if run.handle is not None}
        if len(self._sizes) > 2 * len(snapshot.jobs):
            self._sizes.clear()
        return sum(self._act(action) for action in actions if not self._stopping.is_set())

    def reasons(self) -> Mapping[str, str]:
        """Why each waiting job waits, as of the last tick."""
        snapshot = self._last
        if self._reasons[0] is not snapshot:
            self._reasons = (snapshot, explain(snapshot, self._now()))
        return self._reasons[1]

    def with_reason(self, job: JobLine) -> JobLine:
        """The job with why it waits, if it does; the store knows the reasons for all other states."""
        waits = self.reasons().get(job.id)
        if job.state is JobState.QUEUED:
            return job.model_copy(update={"reason": waits or "waits for its turn"})
        if job.state is JobState.PREPARING and waits:  # its cluster has no place for it yet
            return job.model_copy(update={"reason": waits})
        return job

    def unplaced(self) -> Mapping[str, str]:
        """The runs that their cluster has no place for yet, and what each waits for, as of the last tick."""
        return self._last.waiting

    def pool_status(self) -> tuple[PoolStatus, ...]:
        """Each pool: what it has, what of it is in use, who runs and who waits."""
        jobs = self._store.unfinished()
        return tuple(
            _pool_status(pool, [job for job in jobs if job.pool == pool.name], unplaced=self._last.waiting.keys())
            for pool in self._pools.values()
        )

    def _run(self) -> None:
        wait_s: float | None = 0.0
        while not self._stopping.is_set():
            self._woken.wait(wait_s)
            self._woken.clear()
            if self._stopping.is_set():
                return
            began = time.thread_time()
            wait_s = self._tick_and_plan()
            self._stopping.wait(rest_after(time.thread_time() - began))

    def _tick_and_plan(self) -> float | None:
        """One tick, and how long until the next if nothing wakes us."""
        try:
            if self.tick():
                return 0.0  # what was done may call for more: a run that has just begun may already have to stop
        except Exception:  # noqa: BLE001 - the loop must survive anything, or no job would ever start or end again
            logger.exception("tick failed")
            return _LIVE_S
        runs = [trial.run for job in self._last.jobs for trial in job.trials]
        if self._gone or self._drains:
            return _GONE_S
        if self._leaving or any(is_live(run) for run in runs):
            return _LIVE_S
        return _QUEUED_S if any(run.state is RunState.QUEUED for run in runs) else None

    def _snapshot(self, now: float) -> Snapshot:
        jobs = self._store.unfinished()
        watched = {
            trial.run.id: (engine, trial.run.handle)
            for job, engine in [(job, self._engine_of(job)) for job in jobs]
            for trial in job.trials
            if is_live(trial.run) and trial.run.handle is not None and trial.run.exit is None
        }
        self._drains = {run: drain for run, drain in self._drains.items() if run in watched}
        alive, self._unplaced = self._look(
            [*watched.values(), *((engine, handle) for handle, engine in self._leaving.items())]
        )
        self._gone = {run: self._gone.get(run, now) for run, (_, handle) in watched.items() if handle not in alive}
        # A supervisor that has said its last is a child of ours until it is asked after once more.
        self._leaving = {handle: engine for handle, engine in self._leaving.items() if handle in alive}
        collected = {run: self._is_drained(drain, now) for run, drain in self._drains.items()}
        return Snapshot(
            jobs=jobs,
            pools=dict(self._pools),
            gone=self._gone,
            collected=collected,
            waiting=self._waiting(watched),
        )

    def _waiting(self, watched: Mapping[str, tuple[str, str]]) -> dict[str, str]:
        """Which of these runs have no place on their cluster yet, and what they wait for."""
        return {
            run: self._diagnose(engine, handle) for run, (engine, handle) in watched.items() if handle in self._unplaced
        }

    def _diagnose(self, engine: str, handle: str) -> str:
        try:
            return self._engines[engine].diagnose(handle)
        except StokerError as error:
            return f"waits: {error}"

    def _poll(self, handles: Iterable[tuple[str, str]]) -> set[str]:
        """Which of these, with their engines, are alive."""
        return self._look(handles)[0]

    def _look(self, handles: Iterable[tuple[str, str]]) -> tuple[set[str], frozenset[str]]:
        """Which of these are alive, and which of those wait for a place."""
        of_engine: dict[str, list[str]] = {}
        for engine, handle in handles:
            of_engine.setdefault(engine, []).append(handle)
        found = {
            handle: live for engine, asked in of_engine.items() for handle, live in self._ask(engine, asked).items()
        }
        alive = {handle for handle, liveness in found.items() if liveness is not Liveness.GONE}
        return alive, frozenset(handle for handle in alive if found[handle] is Liveness.WAITING)

    def _ask(self, engine: str, handles: list[str]) -> Mapping[str, Liveness]:
        try:
            return self._engines[engine].poll(handles)
        except StokerError as error:
            # A cluster that does not answer is not one that has lost its runs: they are as they were.
            logger.warning("%s", error)
            return dict.fromkeys(handles, Liveness.ALIVE)

    def _is_drained(self, drain: _Drain, now: float) -> bool:
        if drain.handle is None or now - drain.since > _DRAIN_S:
            return True
        return drain.handle not in self._poll([(drain.engine, drain.handle)])

    def _engine_of(self, job: JobNow | Job) -> str:
        pool = self._pools.get(job.pool)
        # A pool may have left config.toml while runs of its jobs go on; they are still the local engine's.
        return pool.engine_name if pool is not None else "local"

    def _engine_name(self, run: str) -> str:
        """The engine of a run in the last snapshot."""
        return self._engine_names[_job_name(run)]

    def _act(self, action: Action) -> bool:
        """False if it failed: it is decided upon again at the next tick, and that need not hurry."""
        try:
            self._do(action)
        except StokerError as error:
            logger.warning("%s: %s", action, error)
            return False
        except Exception:  # noqa: BLE001 - one run's trouble must not keep the others from being tended
            logger.exception("%s failed", action)
            return False
        return True

    def _do(self, action: Action) -> None:
        match action:
            case Start(run):
                self._start_run(run)
            case Find(run):
                self._find_run(run)
            case Move():
                self._move(action)
            case StopOrder(run, reason):
                self._store.order_stop(run, reason, now=self._now())
                logger.info("run %s told to stop: %s", run, reason)
                self._wakeups.run_ordered(run)
                self._wakeups.job_changed(_job_name(run))
            case Collect(run):
                self._collect(run)
            case Abandon():
                self._abandon(action)
            case Withdraw():
                self._engines[self._engine_name(action.run)].cancel(self._handle(action.run))
                self._move(Move(action.run, action.state, stop=action.stop, message=action.message))
            case Continue(trial):
                added = self._store.add_run(trial, now=self._now())
                self._wakeups.job_changed(_job_name(added.id))

    def _start_run(self, run: str) -> None:
        directory = self._home.run_dir(*_path_of(run))
        self._store.place_run(run, directory=str(directory))
        self._move(Move(run, RunState.STARTING))
        self._submit(run)

    def _submit(self, run: str) -> None:
        job = self._store.job_of(run)
        try:
            launch = self._launch(job, run)
            if launch.num_nodes > 1:
                self._store.place_run(run, num_nodes=launch.num_nodes)
            handle = self._engines[self._engine_of(job)].submit(launch)
        except StokerError as error:
            self._move(Move(run, RunState.FAILED, message=str(error)))
        except Exception as error:  # noqa: BLE001 - it would fail again at every tick; this way it ends, in words
            logger.exception("run %s could not be submitted", run)
            self._move(Move(run, RunState.FAILED, message=f"The engine failed: {error!r}. See server.log."))
        else:
            self._store.place_run(run, handle=handle)

    def _find_run(self, run: str) -> None:
        job = self._store.job_of(run)
        engine = self._engines[self._engine_of(job)]
        try:
            handle = engine.find(self._launch(job, run))
        except StokerError as error:
            self._move(Move(run, RunState.FAILED, message=str(error)))
            return
        if handle is None:
            # It never started; or its supervisor is in its first moments, and its lock sends the second one away.
            logger.info("run %s was about to start when the last server went: starting it", run)
            self._submit(run)
        else:
            self._store.place_run(run, handle=handle)

    def _launch(self, job: Job, run: str) -> Launch:
        pool = self._pools.get(job.pool)
        if pool is None:
            raise NotFoundError(f"Pool {job.pool!r} is not in config.toml any more.")
        known = self._sizes.get(job.id)
        if known is None or known[0] is not pool:
            # Which of ten thousand nodes could hold it takes milliseconds to say, and is the same for all its trials.
            known = self._sizes[job.id] = (pool, replicas_for(job.spec.resources, pool))
        return build_launch(job, *find_run(job, run), known[1])

    def _collect(self, run: str) -> None:
        name = self._engine_name(run)
        engine, handle = self._engines[name], self._handle(run)
        engine.cancel(handle)  # raises if anything is left alive: then the next tick tries again
        drainer = engine.drain(handle)
        self._drains[run] = _Drain(name, drainer, self._now())
        logger.info("run %s collected", run)

    def _abandon(self, action: Abandon) -> None:
        if self._store.run(action.run).exit is not None:
            return  # it said how it ended after all; the next tick goes by that
        message = action.message
        if action.state is RunState.LOST:
            engine = self._engines[self._engine_name(action.run)]
            message = f"{message} {engine.diagnose(self._handle(action.run))}".strip()
        self._move(Move(action.run, action.state, stop=action.stop, message=message, restart=action.restart))

    def _handle(self, run: str) -> str:
        handle = self._handles.get(run)
        assert handle is not None, "only runs that were seen gone or overdue are collected"
        return handle

    def _move(self, move: Move) -> None:
        self._store.move_run(
            move.run, move.state, now=self._now(), stop=move.stop, message=move.message, restart=move.restart
        )
        logger.info("run %s is %s%s", move.run, move.state, f": {move.message}" if move.message else "")
        self._wakeups.run_changed(move.run)
        if move.state.is_final:
            self._wakeups.run_ordered(move.run)
            self._see_off(move.run)

    def _see_off(self, run: str) -> None:
        drain, engine = self._drains.get(run), self._engine_name(run)
        for handle in (self._handles.get(run), drain.handle if drain else None):
            # A cluster's supervisors are no children of ours, and one that is gone would be asked for ever.
            if handle is not None and engine == "local":
                self._leaving[handle] = engine


def rest_after(took_s: float) -> float:
    """How long to rest after a tick that took so much processor time.

    While a thousand jobs are being submitted, looking at all of them after each would starve the routes. But short
    ticks may follow each other: a short trial should not wait longer for its successor than it ran.
    """
    return min(0.25, 4 * max(0.0, took_s - _SHORT_TICK_S))


def _job_name(run: str) -> str:
    return _path_of(run)[0]


def _path_of(run: str) -> tuple[str, int, int]:
    """A run's name is its place: JOB.TRIAL.ATTEMPT."""
    job, trial, attempt = run.rsplit(".", 2)
    return job, int(trial), int(attempt)


def _pool_status(pool: Pool, jobs: list[JobNow], *, unplaced: Collection[str]) -> PoolStatus:
    """What waits for a place on its cluster is in use nowhere."""

    def is_placed(run: RunNow) -> bool:
        return is_live(run) and run.id not in unplaced

    def is_queued(run: RunNow) -> bool:
        return run.state is RunState.QUEUED or (is_live(run) and run.id in unplaced)

    return PoolStatus(
        name=pool.name,
        engine=pool.engine,
        capacity=pool.capacity,
        used=used(jobs, pool.name, but=unplaced),
        slots=pool.slots,
        tiers=tuple(sorted(pool.tiers)),
        nodes=tuple(PoolNode(**dict(node)) for node in pool.nodes),
        trouble=pool.trouble,
        running=tuple(job.id for job in jobs if any(is_placed(trial.run) for trial in job.trials)),
        queued=tuple(job.id for job in jobs if any(is_queued(trial.run) for trial in job.trials)),
    )
