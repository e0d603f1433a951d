"""Keep what searches decide, and do it in the same transaction; read back what their searchers need to know."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, func, insert, or_, select, update

from stoker.errors import NotFoundError, UsageError
from stoker.schema.job import JobSpec
from stoker.schema.record import Trial, TrialList
from stoker.schema.search import Goal
from stoker.schema.state import JobState, RunState, StopReason
from stoker.search.base import (
    Asked,
    Ended,
    Outcome,
    Prior,
    Record,
    Reported,
    Suggestion,
    dump_record,
    load_record,
)
from stoker.server.store import jobs as job_rows
from stoker.server.store import runs as run_rows
from stoker.server.store import series
from stoker.server.store.tables import jobs, metrics, runs, search_records, trials
from stoker.server.store.values import (
    OverTrial,
    Report,
    SearchBatch,
    SearchEntry,
    SearchNews,
    SearchPast,
    SearchResult,
    SearchResults,
)
from stoker.server.views.quick_json import read_json

_REPORTS_AT_ONCE = 10_000

# Built once: to build a statement costs SQLAlchemy more than to run it.
_JOB: Select[Any] = select(
    jobs.c.number, jobs.c.id, jobs.c.maximize, jobs.c.trials_made, jobs.c.outcomes, jobs.c.intent, jobs.c.search
).where(jobs.c.id == bindparam("job"))
_PAST: Select[Any] = (
    select(search_records.c.record, search_records.c.metric)
    .where(search_records.c.job == bindparam("job"))
    .order_by(search_records.c.number)
)
_REPORTS: Select[Any] = (
    select(metrics.c.number, trials.c.number.label("trial"), metrics.c.kind, metrics.c.step, metrics.c.points)
    .join(runs, runs.c.number == metrics.c.run)
    .join(trials, trials.c.id == runs.c.trial)
    .where(metrics.c.job == bindparam("job"), metrics.c.number > bindparam("after"), metrics.c.kind != series.SYSTEM)
    .order_by(metrics.c.number)
    .limit(_REPORTS_AT_ONCE)
)
# Through the index of those that are over without an outcome yet: a handful, however many trials there are.
_OVER: Select[Any] = (
    select(trials.c.number, trials.c.invalid, runs.c.state, runs.c.stop)
    .join(runs, (runs.c.trial == trials.c.id) & (runs.c.attempt == trials.c.attempts))
    .where(trials.c.job == bindparam("job"), trials.c.over, trials.c.outcome.is_(None))
    .order_by(trials.c.number)
)
_OF_TRIAL = (trials.c.job == bindparam("of_job")) & (trials.c.number == bindparam("of_number"))
_newest = runs.alias()
_UPDATE_TRIAL = update(trials).where(_OF_TRIAL)
_UPDATE_JOB = update(jobs).where(jobs.c.number == bindparam("of_job"))
# An order to the trial's newest run, unless that is over or was told to stop before.
_STOP_RUN = (
    update(runs)
    .where(
        runs.c.number
        == select(_newest.c.number)
        .join(trials, (trials.c.id == _newest.c.trial) & (trials.c.attempts == _newest.c.attempt))
        .where(_OF_TRIAL)
        .scalar_subquery(),
        runs.c.stop.is_(None),
        or_(*(runs.c.state == state.value for state in RunState if not state.is_final)),
    )
    .values(stop=StopReason.PRUNE.value, stop_time=bindparam("at"))
)
_NOT_COUNTED = (Outcome.FAILED.value, Outcome.INVALID_HP.value)
_BEST: Select[Any] = select(trials.c.number, trials.c.objective).where(
    trials.c.job == bindparam("number"),
    trials.c.objective.is_not(None),
    trials.c.outcome.is_(None) | trials.c.outcome.not_in(_NOT_COUNTED),
)
_BEST_LOW = _BEST.order_by(trials.c.objective, trials.c.number).limit(1)
_BEST_HIGH = _BEST.order_by(trials.c.objective.desc(), trials.c.number).limit(1)
_RESULTS: Select[Any] = select(trials.c.number, trials.c.hparams, trials.c.objectives, trials.c.outcome).where(
    trials.c.job == bindparam("number")
)
_NEW_RECORDS: Select[Any] = (
    select(search_records.c.number, search_records.c.record)
    .where(search_records.c.job == bindparam("job"), search_records.c.number > bindparam("after"))
    .order_by(search_records.c.number)
)
_LAST_RECORD: Select[Any] = select(func.max(search_records.c.number)).where(search_records.c.job == bindparam("job"))
_STATES: Select[Any] = (
    select(runs.c.state, runs.c.stop, func.count().label("count_"))
    .join(trials, (runs.c.trial == trials.c.id) & (runs.c.attempt == trials.c.attempts))
    .where(trials.c.job == bindparam("number"))
    .group_by(runs.c.state, runs.c.stop)
)
_PARENT: Select[Any] = select(trials.c.checkpoint).where(_OF_TRIAL)
_INSERT_RECORD = insert(search_records)


def past(connection: Connection, job: str) -> SearchPast:
    rows = connection.execute(_PAST, {"job": _find(connection, job).number}).fetchall()
    records = tuple(load_record(row.record) for row in rows)
    return SearchPast(records, max((row.metric for row in rows if row.metric is not None), default=0))


def news(connection: Connection, job: str, *, after: int) -> SearchNews:
    number = _find(connection, job).number
    reports = [_report(row) for row in connection.execute(_REPORTS, {"job": number, "after": after})]
    # A trial's end is told when all it reported has been: not while there are more reports than one page holds.
    full = len(reports) == _REPORTS_AT_ONCE
    over = [] if full else [_over(row) for row in connection.execute(_OVER, {"job": number})]
    return SearchNews(tuple(reports), tuple(over))


def record(connection: Connection, job: str, batch: SearchBatch, *, now: float) -> None:
    found = _find(connection, job)
    rows = [{"job": found.number, "metric": e.metric, "record": dump_record(e.record)} for e in batch.entries]
    _run_many(connection, _INSERT_RECORD, rows)
    records = [entry.record for entry in batch.entries]
    for entry in batch.entries:
        if isinstance(entry.record, Asked):
            _add_trial(connection, found, entry.record.suggestion, entry, now=now)
    _order(connection, found.number, [r for r in records if isinstance(r, Reported)], now=now)
    ended = [{**_of(found, r.trial), "outcome": r.outcome.value} for r in records if isinstance(r, Ended)]
    _run_many(connection, _UPDATE_TRIAL, ended)
    _run_many(connection, _UPDATE_TRIAL, [_values(found, trial, values) for trial, values in batch.values.items()])
    changes = _sums(connection, found, records)
    if batch.progress is not None:
        changes["search_progress"] = batch.progress
    if batch.state != "open":
        changes |= {"search": batch.state, "failure": batch.failure}
    if changes:
        connection.execute(_UPDATE_JOB, {"of_job": found.number, **changes})
    if batch.state != "open":
        run_rows.settle(connection, found.number, now=now)


def _sums(connection: Connection, job: Row[Any], records: Sequence[Record]) -> dict[str, Any]:
    """What the job's row says of all its trials, as these records leave it."""
    changes: dict[str, Any] = {}
    if made := sum(isinstance(record, Asked) for record in records):
        changes["trials_made"] = job.trials_made + made
    if ended := Counter(record.outcome.value for record in records if isinstance(record, Ended)):
        changes["outcomes"] = json.dumps(Counter(json.loads(job.outcomes)) + ended)
    if ended or any(isinstance(record, Reported) for record in records):
        best = connection.execute(_BEST_HIGH if job.maximize else _BEST_LOW, {"number": job.number}).one_or_none()
        changes |= {"best": best.objective, "best_trial": best.number} if best is not None else {}
        changes |= {"best": None, "best_trial": None} if best is None else {}
    return changes


def results(connection: Connection, job: str, *, after: int) -> SearchResults:
    number = _find(connection, job).number
    query = _RESULTS
    keys: dict[str, Any] = {"number": number}
    if after:
        rows = connection.execute(_NEW_RECORDS, {"job": number, "after": after}).fetchall()
        keys["touched"] = sorted({_trial_of(load_record(row.record)) for row in rows})
        cursor = rows[-1].number if rows else after
        query = _RESULTS.where(trials.c.number.in_(bindparam("touched", expanding=True)))
    else:
        cursor = last_decision(connection, job)
    found = connection.execute(query, keys).fetchall()
    return SearchResults(tuple(_result(row) for row in found), cursor)


def last_decision(connection: Connection, job: str) -> int:
    return connection.execute(_LAST_RECORD, {"job": _find(connection, job).number}).scalar_one() or 0


def _trial_of(record: Record) -> int:
    return record.suggestion.trial if isinstance(record, Asked) else record.trial


def _result(row: Row[Any]) -> SearchResult:
    line: Any = row  # all at once: a column by its name takes as long as all else here
    number, hparams, objectives, outcome = line
    return SearchResult(number, read_json(hparams), read_json(objectives or "{}"), outcome)


def states(connection: Connection, job: str) -> dict[JobState, int]:
    found = _find(connection, job)
    counts: Counter[JobState] = Counter()
    for row in connection.execute(_STATES, {"number": found.number}):
        counts[run_rows.fold(row, run_rows.wanted(found))] += row.count_
    return dict(counts)


def numbered(connection: Connection, job: str, numbers: Sequence[int]) -> tuple[Trial, ...]:
    found = job_rows.find(connection, job)
    chosen = job_rows.TRIALS_OF.where(trials.c.number.in_(numbers))
    rows = connection.execute(chosen, {"number": found.number}).fetchall()
    whole = {trial.number: trial for trial in job_rows.with_runs(connection, rows, run_rows.wanted(found))}
    return tuple(whole[number].model_copy(update={"runs": ()}) for number in numbers if number in whole)


def prior(connection: Connection, job: str, names: Sequence[str]) -> tuple[Prior, ...]:
    found = job_rows.find(connection, job)
    query = job_rows.TRIALS_OF.where(trials.c.outcome.in_(("completed", "stopped"))).order_by(trials.c.number)
    rows = connection.execute(query, {"number": found.number}).fetchall()
    known = [(json.loads(row.hparams), json.loads(row.objectives or "{}")) for row in rows]
    return tuple(
        Prior(hparams=hparams, values=tuple(values[name] for name in names))
        for hparams, values in known
        if all(name in values for name in names)
    )


def checkpoint_of(connection: Connection, trial: int) -> str | None:
    row = connection.execute(select(trials.c.checkpoint).where(trials.c.id == trial)).one_or_none()
    if row is None:
        raise NotFoundError(f"No trial {trial} on this server.")
    return None if row.checkpoint is None else str(row.checkpoint)


def listed(connection: Connection, job: str, *, sort: str, after: int, limit: int, only: int | None) -> TrialList:
    row = job_rows.find(connection, job)
    query = job_rows.TRIALS_OF.limit(limit)
    match sort:
        case "number":
            query = query.where(trials.c.number > after).order_by(trials.c.number)
        case "newest":
            query = query.order_by(trials.c.number.desc())
        case "best":
            query = query.where(trials.c.objective.is_not(None)).order_by(_best_first(row), trials.c.number)
        case _:
            raise UsageError(f"Trials are sorted by number, newest or best, not by {sort!r}.")
    if only is not None:
        query = job_rows.TRIALS_OF.where(trials.c.number == only)
    rows = connection.execute(query, {"number": row.number}).fetchall()
    if only is not None and not rows:
        raise NotFoundError(f"Job {job!r} has no trial {only}.")
    total = connection.execute(select(func.count()).where(trials.c.job == row.number)).scalar_one()
    return TrialList(trials=tuple(job_rows.with_runs(connection, rows, run_rows.wanted(row))), total=total)


def _find(connection: Connection, job: str) -> Row[Any]:
    row = connection.execute(_JOB, {"job": job}).one_or_none()
    if row is None:
        raise NotFoundError(f"No job {job!r} on this server.")
    return row


def _report(row: Row[Any]) -> Report:
    return Report(number=row.number, trial=row.trial, group=row.kind, step=row.step, values=json.loads(row.points))


def _over(row: Row[Any]) -> OverTrial:
    stop = StopReason(row.stop) if row.stop else None
    return OverTrial(number=row.number, state=RunState(row.state), stop=stop, is_invalid=row.invalid is not None)


def _run_many(connection: Connection, statement: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(statement, rows)


def _of(job: Row[Any], trial: int) -> dict[str, Any]:
    return {"of_job": job.number, "of_number": trial}


def _add_trial(
    connection: Connection, job: Row[Any], suggestion: Suggestion, entry: SearchEntry, *, now: float
) -> None:
    checkpoint = entry.checkpoint
    if suggestion.parent is not None:
        checkpoint = connection.execute(_PARENT, _of(job, suggestion.parent)).scalar_one()
    run_rows.insert_trial(
        connection,
        job=(job.number, job.id),
        number=suggestion.trial,
        hparams=entry.hparams,
        now=now,
        seed=suggestion.seed,
        bracket=suggestion.bracket,
        parent=suggestion.parent,
        checkpoint=checkpoint,
    )


def _order(connection: Connection, job: int, reports: Sequence[Reported], *, now: float) -> None:
    stops = [(report.trial, report.stop) for report in reports if report.stop is not None]
    words = [{"of_job": job, "of_number": trial, "stopped": f"{stop.kind}: {stop.message}"} for trial, stop in stops]
    _run_many(connection, _UPDATE_TRIAL, words)
    _run_many(connection, _STOP_RUN, [{"of_job": job, "of_number": trial, "at": now} for trial, _ in stops])


def _values(job: Row[Any], trial: int, values: Mapping[str, float]) -> dict[str, Any]:
    first = next(iter(values.values()), None)
    return {**_of(job, trial), "objective": first, "objectives": json.dumps(values)}


def _best_first(row: Row[Any]) -> Any:
    search = JobSpec.model_validate_json(row.spec).search
    falling = search is not None and search.goal is Goal.MAXIMIZE
    return trials.c.objective.desc() if falling else trials.c.objective
