"""Lines of metrics: packed into blocks as reports come in, read back as what a chart can draw.

A block holds up to 1024 points of one line as three arrays; `brief` holds the first, lowest, highest and last of every
64 of them, which is enough while a line is seen whole. What is not packed yet is read from the reports themselves.
"""

import json
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, func, insert, select, update

from stoker.server.store.tables import jobs, metrics, runs, series, trials
from stoker.server.store.values import Axis, Fresh, Line, Points, SeriesAnswer, SeriesFilter, SeriesNews
from stoker.server.views.downsample import downsample, extremes, within

SYSTEM = "system"  # the group of what a run uses: nobody reported it
EXACT = 1 << 40  # so many points: nothing is left out
PACK_AT = 128  # reports of a trial that wait to be packed
_BLOCK = 1024  # points
_BRIEF = 64  # points that four stand for
_AT_ONCE = 4096  # reports packed in one transaction
_LONG = 4 * PACK_AT  # reports that nobody packed: they are older than blocks are
_MOST_POINTS = 60_000  # in one answer
_IDS = 500  # in one question

_KEY = (series.c.kind, series.c.replica, series.c.name)
_META: Select[Any] = (
    select(
        series.c.number,
        trials.c.number.label("of_trial"),
        *_KEY,
        series.c.count.label("size"),
        series.c.low_step,
        series.c.high_step,
        series.c.low_time,
        series.c.high_time,
    )
    .join(trials, trials.c.id == series.c.trial)
    .where(trials.c.job == bindparam("job"), trials.c.number.in_(bindparam("chosen", expanding=True)))
    .order_by(series.c.number)
)
_REPORTS: Select[Any] = (
    select(
        metrics.c.number,
        trials.c.number.label("of_trial"),
        metrics.c.kind,
        metrics.c.replica,
        metrics.c.step,
        metrics.c.time,
        metrics.c.points,
    )
    .join(runs, runs.c.number == metrics.c.run)
    .join(trials, trials.c.id == runs.c.trial)
    .order_by(metrics.c.number)
)
_OF_CHOSEN = (trials.c.job == bindparam("job")) & trials.c.number.in_(bindparam("chosen", expanding=True))
_TAIL = _REPORTS.where(_OF_CHOSEN, metrics.c.number > trials.c.packed)
_TO_PACK = _REPORTS.where(trials.c.id == bindparam("id"), metrics.c.number > trials.c.packed).limit(_AT_ONCE)
# The page of a search has no room for what each of its trials uses; that of one trial has.
_SINCE = _REPORTS.where(
    metrics.c.job == bindparam("job"), metrics.c.number > bindparam("after"), metrics.c.kind != SYSTEM
)
_LAST: Select[Any] = select(func.max(metrics.c.number)).where(metrics.c.job == bindparam("job"))
_NEWEST_BLOCKS: Select[Any] = select(series).where(
    series.c.number.in_(
        select(func.max(series.c.number)).where(series.c.trial == bindparam("id")).group_by(*_KEY).scalar_subquery()
    ),
    series.c.count < _BLOCK,
)
_OVERDUE: Select[Any] = (
    select(trials.c.id)
    .join(runs, runs.c.trial == trials.c.id)
    .join(metrics, metrics.c.run == runs.c.number)
    .where(_OF_CHOSEN, trials.c.unpacked > 0, metrics.c.number > trials.c.packed)
    .group_by(trials.c.id)
    .having(func.count() > _LONG)
)


@dataclass(slots=True)
class _Arrays:
    """Points in the order they came."""

    steps: "array[int]" = field(default_factory=lambda: array("q"))
    times: "array[float]" = field(default_factory=lambda: array("d"))
    values: "array[float]" = field(default_factory=lambda: array("d"))

    @classmethod
    def load(cls, data: bytes) -> "_Arrays":
        third = len(data) // 3
        found = cls()
        found.extend_from(data, third)
        return found

    def extend_from(self, data: bytes, third: int) -> None:
        # Little-endian, as every machine is that Python's `array` meets here.
        self.steps.frombytes(data[:third])
        self.times.frombytes(data[third : 2 * third])
        self.values.frombytes(data[2 * third :])

    def dump(self) -> bytes:
        return self.steps.tobytes() + self.times.tobytes() + self.values.tobytes()

    def brief(self) -> bytes:
        kept = list(
            chain.from_iterable(
                extremes(self.values, at, min(at + _BRIEF, len(self.values))) for at in range(0, len(self), _BRIEF)
            )
        )
        return _Arrays(
            array("q", [self.steps[at] for at in kept]),
            array("d", [self.times[at] for at in kept]),
            array("d", [self.values[at] for at in kept]),
        ).dump()

    def __len__(self) -> int:
        return len(self.values)

    def cut(self, begin: int, end: int) -> "_Arrays":
        return _Arrays(self.steps[begin:end], self.times[begin:end], self.values[begin:end])

    def extend(self, other: "_Arrays") -> None:
        self.steps.extend(other.steps)
        self.times.extend(other.times)
        self.values.extend(other.values)


def pack(connection: Connection, trial: int) -> int:
    """Put the trial's waiting reports into blocks; how many there were. The caller keeps other writers out."""
    rows = connection.execute(_TO_PACK, {"id": trial}).fetchall()
    if not rows:
        return 0
    found = {(line.group, line.replica, line.name): points for line, points in _collect(rows).items()}
    for block in connection.execute(_NEWEST_BLOCKS, {"id": trial}).fetchall():
        if (points := found.pop((block.kind, block.replica, block.name), None)) is not None:
            whole = _Arrays.load(block.data)
            room = _BLOCK - len(whole)
            whole.extend(points.cut(0, room))
            connection.execute(update(series).where(series.c.number == block.number).values(_block(whole)))
            if len(points) > room:
                found[block.kind, block.replica, block.name] = points.cut(room, len(points))
    new = [
        {"trial": trial, "kind": kind, "replica": replica, "name": name, **_block(points.cut(at, at + _BLOCK))}
        for (kind, replica, name), points in found.items()
        for at in range(0, len(points), _BLOCK)
    ]
    if new:
        connection.execute(insert(series), new)
    left = 0 if len(rows) < _AT_ONCE else 1
    connection.execute(update(trials).where(trials.c.id == trial).values(packed=rows[-1].number, unpacked=left))
    return len(rows)


def lock(connection: Connection, trial: int) -> None:
    """Keep those away who would pack the same reports; `events.append` has the job's lock for that."""
    of_trial = select(trials.c.job).where(trials.c.id == trial).scalar_subquery()
    connection.execute(select(jobs.c.number).where(jobs.c.number == of_trial).with_for_update())


def overdue(connection: Connection, job: int, chosen: Sequence[int]) -> list[int]:
    """Ids of these trials that have many reports outside of blocks."""
    return list(connection.execute(_OVERDUE, {"job": job, "chosen": list(chosen)}).scalars())


def last(connection: Connection, job: int) -> int:
    return connection.execute(_LAST, {"job": job}).scalar_one() or 0


def read(connection: Connection, job: int, which: SeriesFilter) -> SeriesAnswer:
    keys = {"job": job, "chosen": list(which.trials)}
    blocks: dict[Line, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(_META, keys):
        blocks[Line(row.of_trial, row.kind, row.name, row.replica)].append(row)
    tail = _collect(connection.execute(_TAIL, keys))
    known = {*blocks, *tail}
    wanted = sorted(line for line in known if _is_wanted(line, which))
    most = which.points if which.points == EXACT else max(_MOST_POINTS // max(len(wanted), 1), 100)
    points = min(which.points, most)
    taken = {line: _choose(blocks[line], which, points) for line in wanted if line in blocks}
    data = _load(connection, taken.values())
    answers = []
    for line in wanted:
        whole, total = _join(taken.get(line, ()), data)
        if line in tail:
            whole.extend(tail[line])
            total += len(tail[line])
        answers.append(_drawn(line, whole, total, which, points))
    names = sorted({(line.group, line.name) for line in known})
    return SeriesAnswer(tuple(answers), tuple(names), last(connection, job))


def news(connection: Connection, job: int, *, after: int, chosen: Sequence[int] | None, limit: int) -> SeriesNews:
    query = _SINCE if chosen is None else _REPORTS.where(_OF_CHOSEN, metrics.c.number > bindparam("after"))
    keys: dict[str, Any] = {"job": job, "after": after} | ({} if chosen is None else {"chosen": list(chosen)})
    rows = connection.execute(query.limit(limit), keys).fetchall()
    lines: dict[Line, Fresh] = {}
    for row, name, value in _values(rows):
        fresh = lines.setdefault(Line(row.of_trial, row.kind, name, row.replica), Fresh([], [], [], []))
        fresh.numbers.append(row.number)
        fresh.steps.append(row.step)
        fresh.times.append(row.time)
        fresh.values.append(value)
    return SeriesNews(lines, rows[-1].number if rows else after, len(rows) < limit)


def _is_wanted(line: Line, which: SeriesFilter) -> bool:
    if which.group is not None and line.group != which.group:
        return False
    if which.names:
        return line.name in which.names or f"{line.group}/{line.name}" in which.names
    return which.group is not None or line.group != SYSTEM


@dataclass(frozen=True, slots=True)
class _Taken:
    """A block that is drawn, whole or in brief."""

    number: int
    size: int
    in_brief: bool


def _choose(blocks: Sequence[Row[Any]], which: SeriesFilter, points: int) -> list[_Taken]:
    """Blocks in the range, in brief where that is enough; those that reach beyond the range are read whole."""
    start, end = which.start, which.end
    spans = [(row, *_span(row, which.x)) for row in blocks]
    inside = [
        (row, low, high) for row, low, high in spans if (start is None or high >= start) and (end is None or low <= end)
    ]
    if which.newest_block:
        inside = inside[-1:]
    is_enough = sum(row.size for row, _, _ in inside) * 4 // _BRIEF >= points
    return [
        _Taken(row.number, row.size, is_enough and (start is None or low >= start) and (end is None or high <= end))
        for row, low, high in inside
    ]


def _span(row: Row[Any], x: Axis) -> tuple[float, float]:
    return (row.low_step, row.high_step) if x == "step" else (row.low_time, row.high_time)


def _load(connection: Connection, taken: Iterable[Sequence[_Taken]]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    blocks = list(chain.from_iterable(taken))
    for column in (series.c.data, series.c.brief):
        numbers = [block.number for block in blocks if block.in_brief == (column is series.c.brief)]
        for at in range(0, len(numbers), _IDS):
            query = select(series.c.number, column.label("bytes")).where(series.c.number.in_(numbers[at : at + _IDS]))
            found.update((row.number, row.bytes) for row in connection.execute(query))
    return found


def _join(taken: Sequence[_Taken], data: dict[int, bytes]) -> tuple[_Arrays, int]:
    """The points of these blocks, and how many those in brief stand for besides."""
    whole, left_out = _Arrays(), 0
    for block in taken:
        before = len(whole)
        whole.extend_from(data[block.number], len(data[block.number]) // 3)
        left_out += block.size - (len(whole) - before)
    return whole, len(whole) + left_out


def _drawn(line: Line, whole: _Arrays, total: int, which: SeriesFilter, points: int) -> Points:
    xs: Sequence[float] = (whole.steps if which.x == "step" else whole.times).tolist()
    ys: Sequence[float] = whole.values
    if sorted(xs) != xs:
        # A trial went on from a checkpoint and did some steps again: what came later counts.
        newest = dict(zip(xs, ys, strict=True))
        total -= len(xs) - len(newest)
        xs = sorted(newest)
        ys = [newest[x] for x in xs]
    begin, end = within(xs, which.start, which.end)
    total -= len(xs) - (end - begin)
    xs, ys = xs[begin:end], ys[begin:end]
    kept = downsample(xs, ys, points=points)
    if len(kept) == len(xs):
        return Points(line, xs, ys, total)
    return Points(line, [xs[at] for at in kept], [ys[at] for at in kept], total)


def _collect(rows: Iterable[Row[Any]]) -> dict[Line, _Arrays]:
    found: dict[Line, _Arrays] = {}
    for row, name, value in _values(rows):
        line = Line(row.of_trial, row.kind, name, row.replica)
        points = found.get(line)
        if points is None:
            points = found[line] = _Arrays()
        points.steps.append(row.step)
        points.times.append(row.time)
        points.values.append(value)
    return found


def _values(rows: Iterable[Row[Any]]) -> Iterator[tuple[Row[Any], str, float]]:
    for row in rows:
        for name, value in json.loads(row.points).items():
            yield row, name.replace("\0", "\N{REPLACEMENT CHARACTER}"), value  # as the database would keep it


def _block(points: _Arrays) -> dict[str, Any]:
    return {
        "count": len(points),
        "low_step": min(points.steps),
        "high_step": max(points.steps),
        "low_time": min(points.times),
        "high_time": max(points.times),
        "data": points.dump(),
        "brief": points.brief(),
    }
