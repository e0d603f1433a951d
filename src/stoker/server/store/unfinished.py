"""The unfinished jobs as the scheduler sees them, kept in memory: a look reads what has changed, and no more.

The store is the only writer of its database. Each of its methods that changes a run, a trial or what is wanted of a job
notes that here once it has committed, and those rows are read again at the next look.
"""

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Engine, Select, and_, bindparam, select

from stoker.schema.event import EventBatch, Exited, InvalidHp, Phase, PhaseStarted
from stoker.schema.job import Share
from stoker.schema.state import Intent, RunState, StopReason
from stoker.search.base import Asked, Reported
from stoker.server.store.tables import jobs, runs, trials
from stoker.server.store.values import JobNow, RunNow, SearchBatch, TrialNow

_MANY_JOBS = 50  # with more of them changed, one query for all is cheaper than one for each
_AT_ONCE = 500  # trials in one query

_JOB_COLUMNS = (
    jobs.c.number,
    jobs.c.id,
    jobs.c.pool,
    jobs.c.priority,
    jobs.c.intent,
    jobs.c.intent_by,
    jobs.c.cpus,
    jobs.c.memory_gb,
    jobs.c.gpus,
    jobs.c.max_restarts,
    jobs.c.exit_codes,
    jobs.c.max_waiting_s,
    jobs.c.grace_s,
    jobs.c.search,
    jobs.c.max_live,
    jobs.c.killed,
)
_TRIAL_COLUMNS = (trials.c.id, trials.c.number, trials.c.failures, trials.c.losses, trials.c.invalid)
_RUN_COLUMNS = (
    runs.c.id,
    runs.c.state,
    runs.c.created,
    runs.c.stop,
    runs.c.stop_time,
    runs.c.phase,
    runs.c.exit,
    runs.c.handle,
)
_TRIAL = len(_JOB_COLUMNS)  # where a trial's columns begin


def _unfinished(*which: Any) -> Select[Any]:
    """Unfinished jobs, each with those of its open trials, or with none: a job is there in any case."""
    open_trials = and_(trials.c.job == jobs.c.number, ~trials.c.over, *which)
    return (
        select(*_JOB_COLUMNS, *_TRIAL_COLUMNS, *_RUN_COLUMNS)
        .outerjoin(trials, open_trials)
        .outerjoin(runs, (runs.c.trial == trials.c.id) & (runs.c.attempt == trials.c.attempts))
        .where(jobs.c.unfinished)
        .order_by(jobs.c.number, trials.c.number)
    )


_ALL = _unfinished()
_OF_JOB = _ALL.where(jobs.c.id == bindparam("job"))
_OF_TRIALS = _unfinished(trials.c.number.in_(bindparam("numbers", expanding=True))).where(jobs.c.id == bindparam("job"))


class Unfinished:
    """The unfinished jobs, oldest first. From any thread."""

    def __init__(self) -> None:
        self._turn = threading.Lock()  # of those who look
        self._noting = threading.Lock()
        self._changed: dict[str, set[int] | None] = {}  # jobs, and the numbers of their trials; None is all of a job
        self._jobs: dict[str, JobNow] = {}
        self._trials: dict[str, dict[int, TrialNow]] = {}
        self._is_known = False

    @contextmanager
    def changing(self, job: str, trials: Iterable[int] | None = None) -> Iterator[None]:
        """Around a transaction that changes these trials, or all of a job; it is noted when that is over."""
        try:
            yield
        finally:
            self._note(job, trials)

    @contextmanager
    def changing_run(self, run: str) -> Iterator[None]:
        """The same for the trial of a run, whose name is JOB.TRIAL.ATTEMPT; what is not such a name is no run's."""
        job, _, rest = run.partition(".")
        number = rest.partition(".")[0]
        try:
            yield
        finally:
            if number.isdecimal():
                self._note(job, (int(number),))

    def look(self, engine: Engine) -> tuple[JobNow, ...]:
        with self._turn:
            changed = self._take()
            if changed or not self._is_known:
                try:
                    with engine.begin() as connection:
                        self._read(connection, changed)
                except BaseException:
                    self._is_known = False  # what was to be read is forgotten: read all the next time
                    raise
            return tuple(self._jobs.values())

    def _note(self, job: str, trials: Iterable[int] | None) -> None:
        with self._noting:
            known = self._changed.setdefault(job, set())
            if trials is None or known is None:
                self._changed[job] = None
            else:
                known.update(trials)

    def _take(self) -> dict[str, set[int] | None]:
        with self._noting:
            changed, self._changed = self._changed, {}
        return changed

    def _read(self, connection: Connection, changed: dict[str, set[int] | None]) -> None:
        if not self._is_known or len(changed) > _MANY_JOBS:
            self._jobs, self._trials = {}, {}
            self._keep(connection.execute(_ALL))
            self._is_known = True
            return
        for job, numbers in changed.items():
            if numbers is None or job not in self._jobs:
                self._forget(job)
                self._keep(connection.execute(_OF_JOB, {"job": job}))
            elif numbers:
                self._read_trials(connection, job, sorted(numbers))
        self._jobs = dict(sorted(self._jobs.items(), key=lambda item: item[1].number))

    def _read_trials(self, connection: Connection, job: str, numbers: list[int]) -> None:
        for number in numbers:
            self._trials[job].pop(number, None)
        for first in range(0, len(numbers), _AT_ONCE):
            part = numbers[first : first + _AT_ONCE]
            rows = connection.execute(_OF_TRIALS, {"job": job, "numbers": part}).fetchall()
            if not rows:
                self._forget(job)  # it has ended
                return
            self._keep(rows)

    def _forget(self, job: str) -> None:
        self._jobs.pop(job, None)
        self._trials.pop(job, None)

    def _keep(self, rows: Iterable[Sequence[Any]]) -> None:
        for _, of_job in groupby(rows, key=itemgetter(0)):
            found = list(of_job)
            job = _job_now(found[0])
            known = self._trials.setdefault(job.id, {})
            known.update((row[_TRIAL + 1], _trial_now(row[_TRIAL:])) for row in found if row[_TRIAL] is not None)
            in_order = tuple([known[number] for number in sorted(known)])
            self._jobs[job.id] = replace(job, trials=in_order)


def trials_changed(batch: SearchBatch) -> set[int] | None:
    """Which trials a search's decisions change for the scheduler; None if the job itself."""
    if batch.state != "open":
        return None
    records = [entry.record for entry in batch.entries]
    made = {record.suggestion.trial for record in records if isinstance(record, Asked)}
    return made | {record.trial for record in records if isinstance(record, Reported) and record.stop is not None}


def is_of_use(batch: EventBatch) -> bool:
    """Whether it changes what the scheduler sees: most batches are logs and metrics."""
    return any(isinstance(event, PhaseStarted | Exited | InvalidHp) for event in batch.events)


def has_work(connection: Connection) -> bool:
    """Whether any run is queued or live. A search between two trials has none, and is work unless it is paused."""
    over = [state.value for state in RunState if state.is_final]
    busy = runs.c.state.not_in(over) | (runs.c.id.is_(None) & (jobs.c.intent == Intent.RUN.value))
    query = _ALL.with_only_columns(jobs.c.id).where(busy).order_by(None).limit(1)
    return connection.execute(query).first() is not None


# Rows are taken apart by position: with a thousand jobs waiting, names would cost half of the scheduler's time.
def _job_now(row: Sequence[Any]) -> JobNow:
    number, id, pool, priority, intent, by, cpus, memory_gb, gpus, restarts, codes, waiting_s, grace_s, *more = row
    search, max_live, killed = more[:3]
    return JobNow(
        id=id,
        number=number,
        pool=pool,
        priority=priority,
        intent=Intent.STOP if search == "failed" else Intent(intent),
        intent_by=by,
        need=Share(cpus=cpus, memory_gb=memory_gb, gpus=gpus),
        max_restarts=restarts,
        exit_codes=None if codes is None else tuple(json.loads(codes)),
        max_waiting_s=waiting_s,
        grace_s=grace_s,
        trials=(),
        search=search,
        max_live=max_live,
        is_killed=killed,
    )


def _trial_now(row: Sequence[Any]) -> TrialNow:
    trial, number, failures, losses, invalid, id, state, created, stop, stop_time, phase, exit_text, handle = row
    run = RunNow(
        id=id,
        state=RunState(state),
        created=created,
        stop=None if stop is None else StopReason(stop),
        stop_time=stop_time,
        phase=None if phase is None else Phase(phase),
        exit=None if exit_text is None else Exited.model_validate_json(exit_text),
        handle=handle,
    )
    is_invalid = invalid is not None
    return TrialNow(id=trial, number=number, failures=failures, losses=losses, run=run, is_invalid=is_invalid)
