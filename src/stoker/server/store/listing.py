"""Lists of jobs: words to look for, filters, an order, a page at a time; and how many are in each state."""

from collections import Counter
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select, true

from stoker.errors import UsageError
from stoker.schema.record import JobSummary
from stoker.schema.state import JobState
from stoker.server.store import jobs as job_rows
from stoker.server.store import runs as run_rows
from stoker.server.store.tables import jobs, runs, trials
from stoker.server.store.values import JobPage, JobQuery, PastRun

_CHUNK_ROWS = 500
_LATER = 1e18  # what has not happened yet comes after all that has

SORTS: dict[str, ColumnElement[Any]] = {
    "created": jobs.c.number,
    "name": jobs.c.id,
    "priority": jobs.c.priority,
    "owner": jobs.c.owner,
    "pool": jobs.c.pool,
    "started": func.coalesce(jobs.c.started, _LATER),
    "ended": func.coalesce(jobs.c.ended, _LATER),
}


def find(connection: Connection, which: JobQuery) -> JobPage:
    found: list[JobSummary] = []
    last: tuple[Any, int] | None = None
    position = which.after
    size = _CHUNK_ROWS if which.states or which.name else min(which.limit + 1, _CHUNK_ROWS)
    while True:
        rows = connection.execute(_ordered(which, position).limit(size)).fetchall()
        for row, line in zip(rows, job_rows.summaries(connection, rows), strict=True):
            if not _is_wanted(line, which):
                continue
            if len(found) == which.limit:
                return JobPage(tuple(found), last)
            found.append(line)
            last = (row.sort_key, row.number)
        if len(rows) < size:
            return JobPage(tuple(found), None)
        position = (rows[-1].sort_key, rows[-1].number)


def sort_key(sort: str) -> ColumnElement[Any]:
    if sort not in SORTS:
        raise UsageError(f"Jobs are sorted by {', '.join(SORTS)} (with - in front: falling), not by {sort!r}.")
    return SORTS[sort]


def counts(connection: Connection, which: JobQuery) -> dict[JobState, int]:
    """Jobs without a search and searches that are over are counted by the database."""
    total: Counter[JobState] = Counter()
    which = replace(which, states=frozenset(), before=None)
    if which.name is not None:
        rows = connection.execute(_matching(which)).fetchall()
        total.update(line.state for line in job_rows.summaries(connection, rows) if _is_wanted(line, which))
        return dict(total)
    condition = _condition(which)
    plain = (
        select(jobs.c.intent, jobs.c.search, runs.c.state, runs.c.stop, func.count().label("number_of"))
        .join(trials, trials.c.job == jobs.c.number)
        .join(runs, (runs.c.trial == trials.c.id) & (runs.c.attempt == trials.c.attempts))
        # By their numbers: else SQLite begins with the runs of all trials, which are many more than jobs.
        .where(jobs.c.number > 0, condition, jobs.c.search.is_(None))
        .group_by(jobs.c.intent, jobs.c.search, runs.c.state, runs.c.stop)
    )
    for row in connection.execute(plain):
        total[run_rows.fold(row, run_rows.wanted(row))] += row.number_of
    searches = select(jobs).where(condition, jobs.c.search.is_not(None))
    over = searches.with_only_columns(jobs.c.search, func.count().label("number_of")).where(~jobs.c.unfinished)
    for row in connection.execute(over.group_by(jobs.c.search)):
        ended = {"done": JobState.SUCCEEDED, "failed": JobState.FAILED}
        total[ended.get(row.search, JobState.CANCELLED)] += row.number_of
    open_ones = connection.execute(searches.where(jobs.c.unfinished)).fetchall()
    total.update(line.state for line in job_rows.summaries(connection, open_ones))
    return dict(total)


def past_runs(connection: Connection, *, since: float, limit: int) -> list[PastRun]:
    query = (
        select(
            jobs.c.number,
            jobs.c.pool,
            jobs.c.cpus,
            jobs.c.memory_gb,
            jobs.c.gpus,
            runs.c.created,
            runs.c.started,
            runs.c.ended,
        )
        .join(trials, trials.c.job == jobs.c.number)
        .join(runs, runs.c.trial == trials.c.id)
        .where(or_(jobs.c.unfinished, jobs.c.ended >= since))
        .order_by(runs.c.number.desc())
        .limit(limit)
    )
    return [PastRun(*row) for row in connection.execute(query).fetchall()]


def _matching(which: JobQuery) -> Select[Any]:
    return select(jobs, sort_key(which.sort).label("sort_key")).where(_condition(which))


def _ordered(which: JobQuery, after: tuple[Any, int] | None) -> Select[Any]:
    query, key = _matching(which), sort_key(which.sort)
    # A key once only: by `number, number` no database sees that its index is in this order.
    keys = [jobs.c.number] if key is jobs.c.number else [key, jobs.c.number]
    if after is not None:
        value, number = after
        behind = jobs.c.number < number if which.falling else jobs.c.number > number
        beyond = key < value if which.falling else key > value
        query = query.where(behind if len(keys) == 1 else or_(beyond, and_(key == value, behind)))
    return query.order_by(*(each.desc() if which.falling else each for each in keys))


def _condition(which: JobQuery) -> ColumnElement[bool]:
    wanted: list[ColumnElement[bool]] = [true()]
    columns = (jobs.c.id, jobs.c.owner, jobs.c.pool, jobs.c.labels)
    for word in which.words:
        wanted.append(or_(*(func.lower(column).contains(word.lower(), autoescape=True) for column in columns)))
    for key, value in which.labels:
        # Neither keys nor values can hold quotes, so this finds the pair and nothing else.
        wanted.append(jobs.c.labels.contains(f'"{key}":"{value}"', autoescape=True))
    if which.pool is not None:
        wanted.append(jobs.c.pool == which.pool)
    if which.owner is not None:
        wanted.append(jobs.c.owner == which.owner)
    if which.before is not None:
        wanted.append(jobs.c.number < which.before)
    if which.states and not any(state.is_final for state in which.states):
        wanted.append(jobs.c.unfinished)
    if which.name is not None:
        fixed = which.name.replace("?", "*").split("*")[0]
        # By the order of bytes, which the index of names is in: LIKE has its own idea of case and of indexes.
        wanted.append(and_(jobs.c.id >= fixed, jobs.c.id < fixed + "\U0010ffff"))
    return and_(*wanted)


def _is_wanted(line: JobSummary, which: JobQuery) -> bool:
    if which.states and line.state not in which.states:
        return False
    if which.name is None:
        return True
    # Databases disagree about case in LIKE; names differ by it.
    return fnmatchcase(line.id, which.name if {"*", "?"} & set(which.name) else which.name + "*")
