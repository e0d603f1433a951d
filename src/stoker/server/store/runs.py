"""Read and write runs: their states and their orders."""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, CursorResult, Row, Select, bindparam, insert, select, update

from stoker.errors import ConflictError, NotFoundError
from stoker.schema.event import Exited, Phase
from stoker.schema.record import Run
from stoker.schema.state import Intent, JobState, RunState, StopReason, check_move, fold_trial
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
    settle(connection, last.job, now=now, only=trial)
    return name


def settle(connection: Connection, job: int, *, now: float, only: int | None = None) -> None:
    """Keep a job's `unfinished` and `ended`, and its trials' `over`, true to its runs and intent.

    With `only` a run of this trial has changed and nothing else: thousands beside it need not be looked at.
    """
    row = connection.execute(_JOB_INTENT, {"job": job}).one()
    intent = wanted(row)
    query = OPEN_TRIALS if only is None else _OPEN_TRIAL
    states = {found.id: fold(found, intent) for found in connection.execute(query, {"job": job, "only": only})}
    over = [trial for trial, state in states.items() if state.is_final]
    if over:
        connection.execute(update(trials).where(trials.c.id.in_(over)).values(over=True))
    # A search with no trial at the moment is not over: it may be about to ask for the next.
    may_end = row.search != "open" or intent is Intent.STOP
    ended = may_end and connection.execute(_ANY_OPEN, {"job": job}).first() is None
    connection.execute(
        update(jobs).where(jobs.c.number == job).values(unfinished=not ended, ended=now if ended else None)
    )


def wanted(job: Row[Any]) -> Intent:
    """What is wanted of a job's runs: what the user wants, but for a search that failed, whose runs have to stop."""
    return Intent.STOP if job.search == "failed" else Intent(job.intent)


def fold(run: Row[Any], intent: Intent) -> JobState:
    """The state of a trial by its newest run."""
    return fold_trial([(RunState(run.state), StopReason(run.stop) if run.stop else None)], intent)


def inserted_key(result: CursorResult[Any]) -> int:
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])


_JOB_INTENT: Select[Any] = select(jobs.c.intent, jobs.c.search).where(jobs.c.number == bindparam("job"))
# The newest run of each trial that is not over.
OPEN_TRIALS: Select[Any] = (
    select(trials.c.id, trials.c.number, runs.c.number.label("run"), runs.c.state, runs.c.stop, runs.c.phase)
    .join(runs, (runs.c.trial == trials.c.id) & (runs.c.attempt == trials.c.attempts))
    .where(trials.c.job == bindparam("job"), ~trials.c.over)
    .order_by(trials.c.number)
)


_OPEN_TRIAL = OPEN_TRIALS.where(trials.c.id == bindparam("only"))
_ANY_OPEN: Select[Any] = select(trials.c.id).where(trials.c.job == bindparam("job"), ~trials.c.over).limit(1)
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


def _end(connection: Connection, row: Row[Any], state: RunState, *, now: float, restart: bool) -> None:
    counts = {RunState.FAILED: trials.c.failures, RunState.LOST: trials.c.losses}
    if (count := counts.get(state)) is not None:
        connection.execute(update(trials).where(trials.c.id == row.trial).values({count: count + 1}))
    if restart:
        add_next(connection, row.trial, now=now)
    else:
        settle(connection, row.job, now=now, only=row.trial)


def _exit(text: str | None) -> Exited | None:
    return None if text is None else Exited.model_validate_json(text)
