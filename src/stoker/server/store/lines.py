"""Log blocks without their text, to count lines by; and whole ones by their numbers."""

import json
import zlib
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, select

from stoker.errors import NotFoundError
from stoker.server.store.tables import logs, runs, trials
from stoker.server.store.values import Block, BlockColumns

_AFTER = (logs.c.job == bindparam("job")) & (logs.c.number > bindparam("after"))
_COLUMNS: Select[Any] = (
    select(logs.c.number, logs.c.count, logs.c.run, logs.c.replica).where(_AFTER).order_by(logs.c.number)
)
_LEVELS: Select[Any] = (
    select(logs.c.number, logs.c.levels).where(_AFTER, logs.c.levels.is_not(None)).order_by(logs.c.number)
)
_RUNS: Select[Any] = (
    select(runs.c.number)
    .join(trials, trials.c.id == runs.c.trial)
    .where(trials.c.job == bindparam("job"), trials.c.number == bindparam("trial"))
)
_BLOCKS: Select[Any] = (
    select(logs, runs.c.id.label("run_id"), runs.c.attempt, trials.c.number.label("trial"))
    .join(runs, runs.c.number == logs.c.run)
    .join(trials, trials.c.id == runs.c.trial)
    .where(logs.c.number.in_(bindparam("numbers", expanding=True)))
    .order_by(logs.c.number)
)


def columns(connection: Connection, job: int, *, after: int) -> BlockColumns:
    found = BlockColumns(array("q"), array("q"), array("q"), [])
    for part in connection.execute(_COLUMNS, {"job": job, "after": after}).partitions(10_000):
        numbers, counts, of_runs, replicas = zip(*part, strict=True)
        found.numbers.extend(numbers)
        found.counts.extend(counts)
        found.runs.extend(of_runs)
        found.replicas.extend(replicas)
    return found


def levels(connection: Connection, job: int, *, after: int, limit: int) -> list[tuple[int, Mapping[int, str]]]:
    rows = connection.execute(_LEVELS.limit(limit), {"job": job, "after": after})
    return [(row.number, _levels(row.levels)) for row in rows]


def runs_of(connection: Connection, job: int, trial: int) -> frozenset[int]:
    found = frozenset(connection.execute(_RUNS, {"job": job, "trial": trial}).scalars())
    if not found:
        raise NotFoundError(f"The job has no trial {trial}.")
    return found


def blocks(connection: Connection, numbers: Sequence[int]) -> list[Block]:
    rows = connection.execute(_BLOCKS, {"numbers": list(numbers)})
    return [
        Block(
            number=row.number,
            lines=zlib.decompress(row.packed).decode().split("\n"),
            levels=_levels(row.levels),
            time=row.time,
            run=row.run_id,
            trial=row.trial,
            attempt=row.attempt,
            replica=row.replica,
            stream=row.stream,
        )
        for row in rows
    ]


def _levels(text: str | None) -> dict[int, str]:
    return {int(offset): level for offset, level in json.loads(text).items()} if text else {}
