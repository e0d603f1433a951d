"""Pools as pages show them: who holds what, what waits and why, and how much was in use over the last day."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool

from stoker.engines.base import ClusterNode
from stoker.schema.record import Held, Holder, PoolHistory, PoolNode, PoolStatus, Waiting
from stoker.schema.state import RunState
from stoker.server.live.wakeups import JOBS, Wakeups
from stoker.server.scheduling.decide import is_live
from stoker.server.scheduling.scheduler import Scheduler
from stoker.server.store.store import Store
from stoker.server.store.values import JobNow, RunNow
from stoker.server.views.pool_past import Use, recall

_DAY_S = 86_400.0
_EACH_S = 60.0
_LEAST_S = 5.0  # between two points, however much changes
_MOST = 10_000  # points of a pool
_MOST_RUNS = 50_000  # recalled


class Clusters(Protocol):
    """What is known of the machines of pools that have several."""

    def look_again(self) -> None:
        """Take up what was written of pools since."""
        ...

    def await_answer(self, pool: str) -> None:
        """Until it is known what this pool has."""
        ...

    def nodes_of(self, pool: str) -> Sequence[ClusterNode]: ...

    def places(self, pool: str, handle: str) -> tuple[Held, ...]:
        """What this run holds of which nodes."""
        ...


class NoClusters:
    """Every pool is one machine."""

    def look_again(self) -> None:
        pass

    def await_answer(self, pool: str) -> None:
        pass

    def nodes_of(self, pool: str) -> Sequence[ClusterNode]:
        return ()

    def places(self, pool: str, handle: str) -> tuple[Held, ...]:
        return ()


class PoolViews:
    """What pools are doing now, and a memory of the last day: noted since the server began, before that recalled."""

    def __init__(self, store: Store, scheduler: Scheduler, clusters: Clusters, now: Callable[[], float]) -> None:
        self._store, self._scheduler, self._clusters, self._now = store, scheduler, clusters, now
        self._past: dict[str, deque[Use]] = {}
        self._before: dict[str, list[Use]] | None = None  # what was before this server, once somebody has asked
        self._began = now()
        self._places: dict[str, tuple[Held, ...]] = {}  # of runs that have theirs: it stays
        self._lock = threading.Lock()

    def status(self) -> tuple[PoolStatus, ...]:
        self._clusters.look_again()
        jobs = self._store.unfinished()
        owners: dict[str, str] = {}
        reasons, unplaced = self._scheduler.reasons(), self._scheduler.unplaced()

        def owner_of(job: str) -> str:
            if job not in owners:
                owners[job] = self._store.summary(job).owner
            return owners[job]

        found = []
        for pool in self._scheduler.pool_status():
            mine = [job for job in jobs if job.pool == pool.name]
            held = self._held(pool.name, [trial.run for job in mine for trial in job.trials if is_live(trial.run)])
            who: dict[str, Any] = {
                "holders": _holders(mine, unplaced=unplaced.keys(), held=held, owner_of=owner_of),
                "waiting": _waiting(mine, unplaced=unplaced.keys(), reason_of=reasons.get),
            }
            if nodes := self._clusters.nodes_of(pool.name):
                who["nodes"] = tuple(_node(node) for node in nodes)
            found.append(pool.model_copy(update=who))
        return tuple(found)

    def note(self) -> None:
        """Remember how pools are used at this moment."""
        now = self._now()
        for pool in self._scheduler.pool_status():
            use = Use(now, pool.used, len(pool.running), len(pool.queued))
            with self._lock:
                past = self._past.setdefault(pool.name, deque(maxlen=_MOST))
                past.append(use)
                while past[0].time < now - _DAY_S:
                    past.popleft()

    def history(self, hours: float) -> tuple[PoolHistory, ...]:
        since = self._now() - hours * 3600
        with self._lock:
            past = {name: [use for use in uses if use.time >= since] for name, uses in self._past.items()}
        before = self._recalled()
        found = {name: [use for use in before.get(name, []) if use.time >= since] + uses for name, uses in past.items()}
        return tuple(_history(name, uses) for name, uses in found.items())

    def _recalled(self) -> dict[str, list[Use]]:
        """Read when it is first asked for: most servers never are."""
        if self._before is None:
            runs = self._store.pages.past_runs(since=self._began - _DAY_S, limit=_MOST_RUNS)
            minutes = int(_DAY_S / _EACH_S)
            self._before = recall(runs, [self._began - _EACH_S * ago for ago in range(minutes, 0, -1)])
        return self._before

    def _held(self, pool: str, runs: Sequence[RunNow]) -> dict[str, tuple[Held, ...]]:
        """By run, what it holds of which nodes; each is asked for until it is known, and then no more."""
        if not self._clusters.nodes_of(pool):
            return {}
        with self._lock:
            known = {run.id: self._places.get(run.id, ()) for run in runs}
        found = {
            run.id: known[run.id] or self._clusters.places(pool, run.handle) for run in runs if run.handle is not None
        }
        with self._lock:
            self._places = {run: held for run, held in (self._places | found).items() if held}
            while len(self._places) > _MOST:
                del self._places[next(iter(self._places))]
        return found

    async def watch(self, wakeups: Wakeups) -> None:
        """Take notes until cancelled, or until the server goes away."""
        with wakeups.listen(JOBS) as listener:
            while not listener.closed:
                listener.take()
                await run_in_threadpool(self.note)
                await asyncio.sleep(_LEAST_S)
                await listener.wait(_EACH_S - _LEAST_S)


def _node(node: ClusterNode) -> PoolNode:
    return PoolNode(**dict(node.has), id=node.id, host=node.host, address=node.address, free=node.free)


def _holders(
    jobs: Sequence[JobNow],
    *,
    unplaced: Collection[str],
    held: Mapping[str, tuple[Held, ...]],
    owner_of: Callable[[str], str],
) -> tuple[Holder, ...]:
    return tuple(
        Holder(
            job=job.id,
            run=trial.run.id,
            trial=trial.number,
            owner=owner_of(job.id),
            share=job.need,
            since=trial.run.created,
            nodes=held.get(trial.run.id, ()),
        )
        for job in jobs
        for trial in job.trials
        if is_live(trial.run) and trial.run.id not in unplaced
    )


def _waiting(
    jobs: Sequence[JobNow], *, unplaced: Collection[str], reason_of: Callable[[str], str | None]
) -> tuple[Waiting, ...]:
    """Jobs that wait for their turn, and those whose turn it is but whose cluster has no place."""
    queue = sorted(
        (-job.priority, trial.run.created, job.number, job)
        for job in jobs
        for trial in job.trials[:1]
        if any(each.run.state is RunState.QUEUED or each.run.id in unplaced for each in job.trials)
    )
    return tuple(
        Waiting(
            job=job.id,
            priority=job.priority,
            share=job.need,
            since=since,
            reason=reason_of(job.id) or "waits for its turn",
        )
        for _, since, _, job in queue
    )


def _history(name: str, uses: Sequence[Use]) -> PoolHistory:
    return PoolHistory(
        name=name,
        time=tuple(use.time for use in uses),
        cpus=tuple(use.used.cpus for use in uses),
        memory_gb=tuple(use.used.memory_gb for use in uses),
        gpus=tuple(use.used.gpus for use in uses),
        running=tuple(use.running for use in uses),
        queued=tuple(use.queued for use in uses),
    )
