"""Pools as pages show them: who holds what, what waits and why, and how much was in use over the last day."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

from stoker.schema.job import Share
from stoker.schema.record import Holder, PoolHistory, PoolStatus, Waiting
from stoker.schema.state import RunState
from stoker.server.decide import is_live
from stoker.server.live import JOBS, Live
from stoker.server.scheduler import Scheduler
from stoker.server.store.base import JobNow, Store

_DAY_S = 86_400.0
_EACH_S = 60.0
_LEAST_S = 5.0  # between two points, however much changes
_MOST = 10_000  # points of a pool


class _Use(NamedTuple):
    time: float
    used: Share
    running: int
    queued: int


class PoolViews:
    """What pools are doing now, and a memory of it that begins with the server."""

    def __init__(self, store: Store, scheduler: Scheduler, now: Callable[[], float]) -> None:
        self._store, self._scheduler, self._now = store, scheduler, now
        self._past: dict[str, deque[_Use]] = {}
        self._lock = threading.Lock()

    def status(self) -> tuple[PoolStatus, ...]:
        jobs = self._store.unfinished()
        owners: dict[str, str] = {}
        reasons = self._scheduler.reasons()

        def owner_of(job: str) -> str:
            if job not in owners:
                owners[job] = self._store.summary(job).owner
            return owners[job]

        return tuple(
            pool.model_copy(update=_who([job for job in jobs if job.pool == pool.name], reasons.get, owner_of))
            for pool in self._scheduler.pool_status()
        )

    def note(self) -> None:
        """Remember how pools are used at this moment."""
        now = self._now()
        for pool in self._scheduler.pool_status():
            use = _Use(now, pool.used, len(pool.running), len(pool.queued))
            with self._lock:
                past = self._past.setdefault(pool.name, deque(maxlen=_MOST))
                past.append(use)
                while past[0].time < now - _DAY_S:
                    past.popleft()

    def history(self, hours: float) -> tuple[PoolHistory, ...]:
        since = self._now() - hours * 3600
        with self._lock:
            past = {name: [use for use in uses if use.time >= since] for name, uses in self._past.items()}
        return tuple(_history(name, uses) for name, uses in past.items())

    async def watch(self, live: Live) -> None:
        """Take notes until cancelled, or until the server goes away."""
        with live.listen(JOBS) as listener:
            while not listener.closed:
                listener.take()
                await run_in_threadpool(self.note)
                await asyncio.sleep(_LEAST_S)
                await listener.wait(_EACH_S - _LEAST_S)


def _who(
    jobs: Sequence[JobNow], reason_of: Callable[[str], str | None], owner_of: Callable[[str], str]
) -> dict[str, tuple[Holder | Waiting, ...]]:
    holders = tuple(
        Holder(
            job=job.id,
            run=trial.run.id,
            trial=trial.number,
            owner=owner_of(job.id),
            share=job.need,
            since=trial.run.created,
        )
        for job in jobs
        for trial in job.trials
        if is_live(trial.run)
    )
    queue = sorted(
        (-job.priority, trial.run.created, job.number, job)
        for job in jobs
        for trial in job.trials[:1]
        if any(each.run.state is RunState.QUEUED for each in job.trials)
    )
    waiting = tuple(
        Waiting(
            job=job.id,
            priority=job.priority,
            share=job.need,
            since=since,
            reason=reason_of(job.id) or "waits for its turn",
        )
        for _, since, _, job in queue
    )
    return {"holders": holders, "waiting": waiting}


def _history(name: str, uses: Sequence[_Use]) -> PoolHistory:
    return PoolHistory(
        name=name,
        time=tuple(use.time for use in uses),
        cpus=tuple(use.used.cpus for use in uses),
        memory_gb=tuple(use.used.memory_gb for use in uses),
        gpus=tuple(use.used.gpus for use in uses),
        running=tuple(use.running for use in uses),
        queued=tuple(use.queued for use in uses),
    )
