"""Read and write jobs and their trials."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from stoker.errors import ConflictError, NotFoundError
from stoker.schema.event import Phase
from stoker.schema.job import JobSpec, Labels
from stoker.schema.record import Job, JobSummary, JobTrial, SearchSummary, Trial
from stoker.schema.search import Goal
from stoker.schema.state import Intent, JobState, RunState, fold_job
from stoker.server.store import runs as run_rows
from stoker.server.store.tables import jobs, runs, trials
from stoker.server.store.values import NewJob

_MOST_TRIALS = 100  # shown with a job
_MOST_METRICS = 8  # shown in its line

# Built once: to build a statement costs SQLAlchemy more than to run it.
_INSERT = insert(jobs)
_BY_ID = select(jobs).where(jobs.c.id == bindparam("job"))
_RUNS_OF = select(runs).where(runs.c.trial.in_(bindparam("ids", expanding=True))).order_by(runs.c.trial, runs.c.attempt)
_TRIAL = select(trials).where(trials.c.id == bindparam("trial"))
TRIALS_OF = select(trials).where(trials.c.job == bindparam("number"))
_NEWEST_TRIALS = TRIALS_OF.order_by(trials.c.number.desc()).limit(_MOST_TRIALS)


def add(connection: Connection, new: NewJob, *, now: float) -> tuple[Job, bool]:
    found = connection.execute(_BY_ID, {"job": new.spec.name}).one_or_none()
    if found is not None:
        if JobSpec.model_validate_json(found.spec) != new.spec:
            raise ConflictError(
                f"A job named {new.spec.name!r} exists already, with another specification."
                f" Names are never used twice: choose a new one, for example {new.spec.name[:112]}_{int(now)}."
            )
        return whole(connection, found), False
    number = _insert_job(connection, new, now=now)
    if new.spec.search is None:
        run_rows.insert_trial(connection, job=(number, new.spec.name), number=1, hparams=new.spec.hparams, now=now)
    return whole(connection, find(connection, new.spec.name)), True


def find(connection: Connection, job: str) -> Row[Any]:
    row = connection.execute(_BY_ID, {"job": job}).one_or_none()
    if row is None:
        raise NotFoundError(f"No job {job!r} on this server. List yours with `stoker jobs list`.")
    return row


def number_of(connection: Connection, job: str) -> int:
    return int(find(connection, job).number)


def whole(connection: Connection, row: Row[Any], *, only: int | None = None) -> Job:
    """The job with its newest trials; or with the one of this id alone, whose state is then the job's."""
    if only is None:
        rows = connection.execute(_NEWEST_TRIALS, {"number": row.number}).fetchall()[::-1]
        line = summary(connection, row).model_dump()
        found = tuple(with_runs(connection, rows, run_rows.wanted(row)))
    else:
        one = connection.execute(_TRIAL, {"trial": only}).one()
        of_trial = connection.execute(_RUNS_OF, {"ids": [only]}).fetchall()
        line = _line(row, [(one, of_trial[-1])])
        found = (_trial(one, of_trial, run_rows.wanted(row)),)
    return Job(**line, intent=Intent(row.intent), spec=_spec(row.spec), trials=found)


def trial(connection: Connection, trial: int) -> JobTrial:
    row = connection.execute(select(trials).where(trials.c.id == trial)).one_or_none()
    if row is None:
        raise NotFoundError(f"No trial has the id {trial} on this server.")
    job = connection.execute(select(jobs).where(jobs.c.number == row.job)).one()
    (found,) = with_runs(connection, [row], run_rows.wanted(job))
    return JobTrial(**dict(found), job=job.id)


def with_runs(connection: Connection, rows: Sequence[Row[Any]], intent: Intent) -> Iterator[Trial]:
    """The trials of these rows, whole."""
    runs_of = defaultdict(list)
    for run in connection.execute(_RUNS_OF, {"ids": [row.id for row in rows]}):
        runs_of[run.trial].append(run)
    return (_trial(row, runs_of[row.id], intent) for row in rows)


def summary(connection: Connection, row: Row[Any]) -> JobSummary:
    return summaries(connection, [row])[0]


def change(
    connection: Connection, row: Row[Any], *, labels: Labels | None, priority: int | None, max_slots: int | None
) -> None:
    changes: dict[str, Any] = {}
    if labels is not None:
        changes["labels"] = _labels_text(labels)
    if priority is not None:
        changes["priority"] = priority
    if max_slots is not None:
        if row.search is None:
            raise ConflictError(f"Job {row.id!r} has no search: max_slots is of the trials that run at once.")
        each = JobSpec.model_validate_json(row.spec).resources.slots_in_all
        changes |= {"max_slots": max_slots, "max_live": max(max_slots // each, 1)}
    if changes:
        connection.execute(update(jobs).where(jobs.c.number == row.number).values(changes))


def set_intent(connection: Connection, row: Row[Any], intent: Intent, *, by: str, now: float, kill: bool) -> None:
    if not row.unfinished:
        if intent is Intent.STOP:
            return
        raise ConflictError(f"Job {row.id!r} has ended; only a job that has not can be paused or resumed.")
    if row.intent == Intent.STOP and intent is not Intent.STOP:
        raise ConflictError(f"Job {row.id!r} is being cancelled and cannot be paused or resumed any more.")
    if kill:
        connection.execute(update(jobs).where(jobs.c.number == row.number).values(killed=True))
    if row.intent != intent:
        connection.execute(update(jobs).where(jobs.c.number == row.number).values(intent=intent.value, intent_by=by))
        run_rows.settle(connection, row.number, now=now)


@lru_cache(maxsize=64)
def _spec(text: str) -> JobSpec:
    """Read once for all the trials of a search, which start one by one; nobody can change it."""
    return JobSpec.model_validate_json(text)


def _insert_job(connection: Connection, new: NewJob, *, now: float) -> int:
    spec = new.spec
    codes = spec.restarts.exit_codes
    values = {
        "id": spec.name,
        "owner": new.owner,
        "kind": spec.kind,
        "pool": new.pool,
        "priority": spec.priority,
        "labels": _labels_text(spec.labels),
        "spec": spec.model_dump_json(),
        "intent": Intent.RUN.value,
        "intent_by": new.owner,
        "cpus": new.need.cpus,
        "memory_gb": new.need.memory_gb,
        "gpus": new.need.gpus,
        "max_restarts": spec.restarts.max_restarts,
        "exit_codes": None if codes is None else json.dumps(codes),
        "max_waiting_s": spec.limits.max_waiting_s,
        "grace_s": spec.limits.grace_s,
        "created": now,
        "unfinished": True,
    }
    if spec.search is not None:
        maximize = spec.search.goal is Goal.MAXIMIZE
        values |= {"search": "open", "search_progress": 0.0, "metric": spec.search.metric, "maximize": maximize}
    return run_rows.inserted_key(connection.execute(_INSERT, values))


def _line(row: Row[Any], newest: Sequence[tuple[Row[Any], Row[Any]]]) -> dict[str, Any]:
    """The fields of a JobSummary, from the job's row and each trial's with its newest run's."""
    state = _state(row, [run_rows.fold(run, run_rows.wanted(row)) for _, run in newest])
    progress = [trial.progress for trial, _ in newest if trial.progress is not None]
    mean = sum(progress) / len(newest) if progress else None
    return {
        "id": row.id,
        "number": row.number,
        "owner": row.owner,
        "kind": row.kind,
        "state": state,
        "reason": _reason(row, state, [run for _, run in newest]),
        "pool": row.pool,
        "priority": row.priority,
        "labels": json.loads(row.labels),
        "progress": mean if row.search is None else row.search_progress,
        "created": row.created,
        "started": row.started,
        "ended": row.ended,
        "search": None if row.search is None else _search(row),
        "metrics": _metrics(newest[0][0].metrics) if row.search is None and newest else {},
    }


def _metrics(text: str) -> dict[str, float]:
    return dict(islice(json.loads(text).items(), _MOST_METRICS))


def _search(row: Row[Any]) -> SearchSummary:
    return SearchSummary(
        metric=row.metric,
        maximize=bool(row.maximize),
        trials=row.trials_made,
        outcomes=json.loads(row.outcomes),
        best=row.best,
        best_trial=row.best_trial,
        max_slots=row.max_slots,
    )


def _state(job: Row[Any], states: Sequence[JobState]) -> JobState:
    """Of a job without a search, the fold over its trial; of one with, `states` are those of the trials not over."""
    intent = Intent(job.intent)
    if job.search is None:
        return fold_job(states, intent)
    if not job.unfinished:
        return {"done": JobState.SUCCEEDED, "failed": JobState.FAILED}.get(job.search, JobState.CANCELLED)
    alive = [state for state in states if not state.is_final]
    if not alive and intent is Intent.RUN and job.started is not None:
        return JobState.RUNNING  # between two trials
    return fold_job(alive, intent)


def _reason(job: Row[Any], state: JobState, newest: Sequence[Row[Any]]) -> str:
    """Why a job is not simply running or done. Why one waits for a place is the scheduler's to add."""
    if job.failure:
        return str(job.failure)
    match state:
        case JobState.FAILED:
            return next((_failure(run) for run in newest if run_rows.fold(run, Intent(job.intent)) is state), "")
        case JobState.CANCELLED | JobState.CANCELLING:
            return f"cancelled by {job.intent_by}"
        case JobState.PAUSED | JobState.PAUSING:
            return f"paused by {job.intent_by}; `stoker jobs resume {job.id}` lets it go on"
        case JobState.PREPARING:
            return next((_PREPARING[Phase(run.phase)] for run in newest if run.phase), "starting its supervisor")
        case _:
            return ""


_PREPARING = {
    Phase.PACKAGE: "fetching its package",
    Phase.ENVIRONMENT: "making its environment",
    Phase.START: "starting its processes",
    Phase.USER_CODE: "",
}


def _failure(run: Row[Any]) -> str:
    phase = f"{run.phase}: " if run.phase and run.state == RunState.FAILED else ""
    return f"{phase}{run.message}"


def _trial(row: Row[Any], of_trial: Sequence[Row[Any]], intent: Intent) -> Trial:
    return Trial(
        id=row.id,
        number=row.number,
        hparams=json.loads(row.hparams),
        state=run_rows.fold(of_trial[-1], intent),
        progress=row.progress,
        metrics=json.loads(row.metrics),
        latest_checkpoint=row.checkpoint,
        runs=tuple(run_rows.record(run) for run in of_trial),
        objective=row.objective,
        objectives=json.loads(row.objectives or "{}"),
        outcome=row.outcome,
        stopped=why_stopped(invalid=row.invalid, stopped=row.stopped),
        bracket=row.bracket or 0,
        parent=row.parent,
        seed=row.seed,
    )


def why_stopped(*, invalid: str | None, stopped: str | None) -> str:
    return f"invalid hyperparameters: {invalid}" if invalid is not None else stopped or ""


def summaries(connection: Connection, rows: Sequence[Row[Any]]) -> list[JobSummary]:
    """One query for any number of jobs. Of a search only the trials that are not over are looked at."""
    if not rows:
        return []
    newest: dict[int, list[Any]] = defaultdict(list)
    lines = (
        select(
            trials.c.job, trials.c.progress, trials.c.metrics, runs.c.state, runs.c.stop, runs.c.phase, runs.c.message
        )
        .join(runs, (runs.c.trial == trials.c.id) & (runs.c.attempt == trials.c.attempts))
        .join(jobs, jobs.c.number == trials.c.job)
        .where(trials.c.job.in_([row.number for row in rows]), ~trials.c.over | jobs.c.search.is_(None))
        .order_by(trials.c.job, trials.c.number)
    )
    for line in connection.execute(lines):
        newest[line.job].append(line)
    return [JobSummary(**_line(row, [(line, line) for line in newest[row.number]])) for row in rows]


def _labels_text(labels: Labels) -> str:
    return json.dumps(labels, separators=(",", ":"), sort_keys=True)
