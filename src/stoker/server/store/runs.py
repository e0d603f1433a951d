"""Read and write runs: their states, their orders, and what the scheduler needs to see of them."""

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, CursorResult, Row, Select, bindparam, insert, select, update

from stoker.errors import ConflictError, NotFoundError
from stoker.schema.event import Exited, Phase
from stoker.schema.job import Share
from stoker.schema.record import Run
from stoker.schema.state import Intent, JobState, RunState, StopReason, check_move, fold_trial
from stoker.server.store.base import JobNow, RunNow, TrialNow
from stoker.server.store.events import find_run
from stoker.server.store.tables import jobs, runs, trials


def record(row: Row[Any]) -> Run:
    return Run(
        id=row.id,
        attempt=row.attempt,
        state=RunState(row.state),
        stop=StopReason(row.stop) if row.stop else None,
        phase=Phase(row.phase) if row.phase else None,
        created=row.created,
        started=row.started,
        ended=row.ended,
        exit=_exit(row.exit),
        message=row.message,
        directory=row.directory,
    )


def insert_trial(
    connection: Connection, *, job: tuple[int, str], number: int, hparams: Mapping[str, Any], now: float, **more: Any
) -> None:
    """A trial with its first run; `job` is the job's number and name, `more` columns of the trial's."""
    values = {
        **more,
        "job": job[0],
        "number": number,
        "hparams": json.dumps(hparams),
        "attempts": 1,
        "failures": 0,
        "losses": 0,
        "metrics": "{}",
    }
    trial = inserted_key(connection.execute(_INSERT_TRIAL, values))
    _insert_run(connection, name=f"{job[1]}.{number}.1", trial=trial, attempt=1, now=now)


def move(
    connection: Connection,
    run: str,
    state: RunState,
    *,
    now: float,
    stop: StopReason | None,
    message: str,
    restart: bool,
) -> None:
    row = find_run(connection, run)
    check_move(RunState(row.state), state)
    if restart and not state.is_final:
        raise ConflictError(f"A run that is {state} is not over: nothing to start again.")
    changes: dict[str, Any] = {"state": state.value}
    if stop is not None:
        changes["stop"] = stop.value
    if message:
        changes["message"] = message
    if state.is_final:
        changes["ended"] = now
    connection.execute(update(runs).where(runs.c.number == row.number).values(changes))
    if state.is_final:
        _end(connection, row, state, now=now, restart=restart)


def order_stop(connection: Connection, run: str, reason: StopReason, *, now: float) -> None:
    row = find_run(connection, run)
    if RunState(row.state).is_final:
        raise ConflictError(f"Run {run!r} is over ({row.state}); there is nothing to stop.")
    if row.stop is None:
        order = update(runs).where(runs.c.number == row.number).values(stop=reason.value, stop_time=now)
        connection.execute(order)


def add_next(connection: Connection, trial: int, *, now: float) -> str:
    """The trial's next run, from the row of its last."""
    last = connection.execute(
        select(runs.c.state, runs.c.attempt, trials.c.number, trials.c.job, jobs.c.id.label("job_id"))
        .join(trials, (trials.c.id == runs.c.trial) & (trials.c.attempts == runs.c.attempt))
        .join(jobs, jobs.c.number == trials.c.job)
        .where(trials.c.id == trial)
    ).one_or_none()
    if last is None:
        raise NotFoundError(f"No trial {trial} on this server.")
    if not RunState(last.state).is_final:
        raise ConflictError(f"Trial {trial} has a run that is {last.state}; the next one has to wait for its end.")
    attempt = last.attempt + 1
    name = f"{last.job_id}.{last.number}.{attempt}"
    _insert_run(connection, name=name, trial=trial, attempt=attempt, now=now)
    connection.execute(update(trials).where(trials.c.id == trial).values(attempts=attempt, over=False))
    settle(connection, last.job, now=now)
    return name


def settle(connection: Connection, job: int, *, now: float) -> None:
    """Keep a job's `unfinished` and `ended`, and its trials' `over`, true to its runs and intent."""
    row = connection.execute(_JOB_INTENT, {"job": job}).one()
    intent = wanted(row)
    states = {found.id: fold(found, intent) for found in connection.execute(OPEN_TRIALS, {"job": job})}
    over = [trial for trial, state in states.items() if state.is_final]
    if over:
        connection.execute(update(trials).where(trials.c.id.in_(over)).values(over=True))
    # A search with no trial at the moment is not over: it may be about to ask for the next.
    ended = len(over) == len(states) and (row.search != "open" or intent is Intent.STOP)
    connection.execute(
        update(jobs).where(jobs.c.number == job).values(unfinished=not ended, ended=now if ended else None)
    )


def wanted(job: Row[Any]) -> Intent:
    """What is wanted of a job's runs: what the user wants, but for a search that failed, whose runs have to stop."""
    return Intent.STOP if job.search == "failed" else Intent(job.intent)


def fold(run: Row[Any], intent: Intent) -> JobState:
    """The state of a trial by its newest run."""
    return fold_trial([(RunState(run.state), StopReason(run.stop) if run.stop else None)], intent)


def unfinished(connection: Connection) -> tuple[JobNow, ...]:
    rows = connection.execute(_UNFINISHED)
    return tuple(_job_now(list(of_job)) for _, of_job in groupby(rows, key=itemgetter(0)))


def has_work(connection: Connection) -> bool:
    over = [state.value for state in RunState if state.is_final]
    # A search between two trials has none, and is work all the same unless it is paused.
    busy = runs.c.state.not_in(over) | (runs.c.id.is_(None) & (jobs.c.intent == Intent.RUN.value))
    query = _UNFINISHED.with_only_columns(jobs.c.id).where(busy).order_by(None).limit(1)
    return connection.execute(query).first() is not None


def inserted_key(result: CursorResult[Any]) -> int:
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])


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
_UNFINISHED = (
    select(*_JOB_COLUMNS, *_TRIAL_COLUMNS, *_RUN_COLUMNS)
    .outerjoin(trials, (trials.c.job == jobs.c.number) & ~trials.c.over)
    .outerjoin(runs, (runs.c.trial == trials.c.id) & (runs.c.attempt == trials.c.attempts))
    .where(jobs.c.unfinished)
    .order_by(jobs.c.number, trials.c.number)
)
_JOB_INTENT: Select[Any] = select(jobs.c.intent, jobs.c.search).where(jobs.c.number == bindparam("job"))
# The newest run of each trial that is not over.
OPEN_TRIALS: Select[Any] = (
    select(trials.c.id, trials.c.number, runs.c.number.label("run"), runs.c.state, runs.c.stop, runs.c.phase)
    .join(runs, (runs.c.trial == trials.c.id) & (runs.c.attempt == trials.c.attempts))
    .where(trials.c.job == bindparam("job"), ~trials.c.over)
    .order_by(trials.c.number)
)


_TRIAL = len(_JOB_COLUMNS)  # where a trial's columns begin
_INSERT_TRIAL = insert(trials)
_INSERT_RUN = insert(runs)


def _insert_run(connection: Connection, *, name: str, trial: int, attempt: int, now: float) -> None:
    values = {
        "id": name,
        "trial": trial,
        "attempt": attempt,
        "state": RunState.QUEUED.value,
        "created": now,
        "message": "",
        "directory": "",
    }
    connection.execute(_INSERT_RUN, values)


# Rows are taken apart by position: with a thousand jobs waiting, names would cost half of the scheduler's time.
def _job_now(rows: list[Sequence[Any]]) -> JobNow:
    number, id, pool, priority, intent, by, cpus, memory_gb, gpus, restarts, codes, waiting_s, grace_s, *more = rows[0]
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
        trials=tuple([_trial_now(row[_TRIAL:]) for row in rows if row[_TRIAL] is not None]),
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
        exit=_exit(exit_text),
        handle=handle,
    )
    is_invalid = invalid is not None
    return TrialNow(id=trial, number=number, failures=failures, losses=losses, run=run, is_invalid=is_invalid)


def _end(connection: Connection, row: Row[Any], state: RunState, *, now: float, restart: bool) -> None:
    counts = {RunState.FAILED: trials.c.failures, RunState.LOST: trials.c.losses}
    if (count := counts.get(state)) is not None:
        connection.execute(update(trials).where(trials.c.id == row.trial).values({count: count + 1}))
    if restart:
        add_next(connection, row.trial, now=now)
    else:
        settle(connection, row.job, now=now)


def _exit(text: str | None) -> Exited | None:
    return None if text is None else Exited.model_validate_json(text)
