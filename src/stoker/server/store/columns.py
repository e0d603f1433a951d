"""Trials as lists, tables and plots show them: all of a search in one question; and checkpoints with their metrics."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, Row, Select, bindparam, func, select

from stoker.schema.record import CheckpointRecord
from stoker.schema.state import Intent, JobState
from stoker.server.store import jobs as job_rows
from stoker.server.store import runs as run_rows
from stoker.server.store import series
from stoker.server.store.tables import checkpoints, metrics, runs, trials
from stoker.server.store.values import SeriesFilter, TrialRow
from stoker.server.views.quick_json import read_json

_ROWS: Select[Any] = (
    select(
        trials.c.number,
        runs.c.state,
        runs.c.stop,
        trials.c.outcome,
        trials.c.objective,
        trials.c.progress,
        runs.c.started,
        runs.c.ended,
        trials.c.bracket,
        trials.c.parent,
        trials.c.stopped,
        trials.c.invalid,
        trials.c.hparams,
        trials.c.metrics,
        trials.c.over,
    )
    .join(runs, (runs.c.trial == trials.c.id) & (runs.c.attempt == trials.c.attempts))
    .where(trials.c.job == bindparam("number"))
    .order_by(trials.c.number)
)
_CHOSEN = _ROWS.where(trials.c.number.in_(bindparam("chosen", expanding=True)))
_NUMBERS: Select[Any] = select(trials.c.number).where(trials.c.job == bindparam("number"))
_STEPS: Select[Any] = (
    select(trials.c.number, func.max(metrics.c.step).label("step"))
    .join(runs, runs.c.trial == trials.c.id)
    .join(metrics, metrics.c.run == runs.c.number)
    .where(trials.c.job == bindparam("number"), trials.c.number.in_(bindparam("chosen", expanding=True)))
    .where(metrics.c.kind != series.SYSTEM)
    .group_by(trials.c.number)
)
_CHECKPOINTS: Select[Any] = (
    select(
        runs.c.id,
        trials.c.number,
        checkpoints.c.time,
        checkpoints.c.step,
        checkpoints.c.path,
        checkpoints.c.size_bytes,
        checkpoints.c.metadata,
    )
    .join(runs, runs.c.number == checkpoints.c.run)
    .join(trials, trials.c.id == runs.c.trial)
    .where(checkpoints.c.job == bindparam("number"))
    .order_by(checkpoints.c.number)
)
_RECORDS = TypeAdapter(tuple[CheckpointRecord, ...])
_IDS = 500  # in one question


def rows(connection: Connection, job: str, chosen: Sequence[int] | None) -> list[TrialRow]:
    found = job_rows.find(connection, job)
    make = _Maker(run_rows.wanted(found), is_search=found.search is not None)
    if chosen is None:
        return [make.row(row) for row in connection.execute(_ROWS, {"number": found.number}).fetchall()]
    made: list[TrialRow] = []
    for at in range(0, len(chosen), _IDS):
        keys = {"number": found.number, "chosen": list(chosen[at : at + _IDS])}
        made += [make.row(row) for row in connection.execute(_CHOSEN, keys).fetchall()]
    return made


def rows_but(connection: Connection, job: str, known: set[int]) -> list[TrialRow]:
    if not known:
        return rows(connection, job, None)
    number = job_rows.number_of(connection, job)
    missing = [trial for trial in connection.execute(_NUMBERS, {"number": number}).scalars() if trial not in known]
    return rows(connection, job, sorted(missing))


def last_steps(connection: Connection, job: str, chosen: Sequence[int]) -> dict[int, int]:
    number = job_rows.number_of(connection, job)
    found: dict[int, int] = {}
    for at in range(0, len(chosen), _IDS):
        keys = {"number": number, "chosen": list(chosen[at : at + _IDS])}
        found.update((row.number, row.step) for row in connection.execute(_STEPS, keys))
    return found


def best(connection: Connection, job: str, count: int) -> list[int]:
    found = job_rows.find(connection, job)
    order = trials.c.objective.desc() if found.maximize else trials.c.objective
    ranked = _NUMBERS.where(trials.c.objective.is_not(None)).order_by(order, trials.c.number).limit(count)
    numbers = list(connection.execute(ranked, {"number": found.number}).scalars())
    if numbers:
        return numbers
    newest = _NUMBERS.order_by(trials.c.number.desc()).limit(count)
    return list(connection.execute(newest, {"number": found.number}).scalars())


def checkpoint_records(connection: Connection, job: str, trial: int | None = None) -> tuple[CheckpointRecord, ...]:
    """Checkpoints, oldest first; with the metrics of one trial's, which is what a page shows."""
    number = job_rows.number_of(connection, job)
    query = _CHECKPOINTS if trial is None else _CHECKPOINTS.where(trials.c.number == trial)
    found = connection.execute(query, {"number": number}).fetchall()
    newest = _newest_at(connection, number, trial, [row.step for row in found]) if trial is not None else {}
    return _RECORDS.validate_python(  # all at once: a record at a time takes twice as long
        [
            {
                "run": run,
                "trial": of_trial,
                "time": time,
                "step": step,
                "path": path,
                "size_bytes": size_bytes,
                "metadata": read_json(metadata),
                "metrics": newest.get(step, {}),
            }
            for run, of_trial, time, step, path, size_bytes, metadata in found
        ]
    )


def _newest_at(connection: Connection, job: int, trial: int, steps: Sequence[int]) -> dict[int, dict[str, float]]:
    """What each metric was at these steps; of a line only the block that a step is in is read."""
    found: dict[int, dict[str, float]] = {}
    for step in sorted(set(steps)):
        answer = series.read(connection, job, SeriesFilter([trial], points=series.EXACT, end=step, newest_block=True))
        found[step] = {
            points.line.name if points.line.group == "training" else f"{points.line.group}/{points.line.name}": value
            for points in answer.points
            if (at := bisect_right(points.xs, step)) and (value := points.ys[at - 1]) == value
        }
    return found


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested names with dots; lists and empty tables stay as they are."""
    if not prefix and isinstance(values, dict) and dict not in map(type, values.values()):
        return values  # most are flat as they are
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


class _Maker:
    """Makes rows of one job; there are few different states, and ten thousand trials."""

    def __init__(self, intent: Intent, *, is_search: bool) -> None:
        self._intent = intent
        self._is_search = is_search
        self._states: dict[tuple[str, str | None], JobState] = {}

    def row(self, row: Row[Any]) -> TrialRow:
        # All at once: to ask a row for a column by its name takes as long as all else here.
        line: Any = row
        number, run, stop, outcome, objective, progress, started, ended, bracket, parent, *rest = line
        stopped, invalid, hparams, found, over = rest
        state = self._states.get((run, stop))
        if state is None:
            state = self._states[run, stop] = run_rows.fold(row, self._intent)
        why = job_rows.why_stopped(invalid=invalid, stopped=stopped)
        is_settled = bool(over) and (outcome is not None or not self._is_search)
        values = flatten(read_json(hparams)), read_json(found)
        return TrialRow(  # by place: by name takes twice as long
            number, state, outcome, objective, progress, started, ended, bracket or 0, parent, why, *values, is_settled
        )
