"""All trials of a job in columns, as tables and plots want them: made once for every change, sent compressed."""

import gzip
import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from stoker.errors import StokerError, UsageError
from stoker.server.live.wakeups import Wakeups
from stoker.server.searches.rungs import find_rungs
from stoker.server.store.store import Store
from stoker.server.store.values import TrialRow
from stoker.server.views.quick_json import write_json

COLUMNS = (
    "number",
    "state",
    "outcome",
    "objective",
    "progress",
    "started",
    "ended",
    "bracket",
    "parent",
    "stopped",
)
FIELDS = (*COLUMNS, "hparams", "metrics")
_JOBS_KEPT = 16
_ANSWERS_KEPT = 4  # of a job


@dataclass(frozen=True, slots=True)
class Compressed:
    """JSON, and the tag that changes when it does."""

    tag: str
    body: bytes  # gzip


@dataclass(slots=True)
class _Known:
    """What is known of a job's trials: those that will not change, and what was made of all of them."""

    settled: dict[int, TrialRow] = field(default_factory=dict)
    rows: Sequence[TrialRow] = ()
    version: str = ""  # of the job when it was last looked at
    changed: str = ""  # the one since which the rows are the same
    rungs: Compressed | None = None
    answers: OrderedDict[frozenset[str], Compressed] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class TrialColumns:
    """Of ten thousand trials only those that may have changed are read again."""

    def __init__(self, store: Store, wakeups: Wakeups) -> None:
        self._store, self._wakeups = store, wakeups
        self._jobs: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def answer(self, job: str, fields: Iterable[str]) -> Compressed:
        """UsageError for a field that there is not; NotFoundError."""
        wanted = frozenset(fields) or frozenset(FIELDS)
        if unknown := sorted(wanted.difference(FIELDS)):
            raise UsageError(f"Trials have no {', '.join(unknown)}. Fields: {', '.join(FIELDS)}.")
        summary = self._store.summary(job)
        known = self._known(job)
        with known.lock:
            self._refresh(job, known)
            if wanted not in known.answers:
                search = summary.search
                head = {
                    "job": job,
                    "total": len(known.rows),
                    "metric": search.metric if search else None,
                    "maximize": bool(search and search.maximize),
                    "version": known.changed,
                }
                known.answers[wanted] = _compressed(known.changed, _text(head, known.rows, wanted))
                if len(known.answers) > _ANSWERS_KEPT:
                    known.answers.popitem(last=False)
            return known.answers[wanted]

    def prepare(self, job: str) -> None:
        """So that the answer is there when somebody asks, who then also hears what went wrong."""
        with suppress(StokerError):
            self.answer(job, ())

    def rungs(self, job: str) -> Compressed:
        """Who was stopped where, made of the same rows; NotFoundError."""
        self._store.summary(job)
        known = self._known(job)
        with known.lock:
            version = self._refresh(job, known)
            # How far a trial has come is not in its row: while some go on, every change of the job counts.
            is_over = len(known.settled) == len(known.rows)
            tag = _tag(known.changed if is_over else version)
            if known.rungs is None or known.rungs.tag != tag:
                known.rungs = _compressed(
                    known.changed if is_over else version,
                    find_rungs(self._store, job, known.rows).model_dump_json().encode(),
                )
            return known.rungs

    def _known(self, job: str) -> _Known:
        with self._lock:
            known = self._jobs.setdefault(job, _Known())
            self._jobs.move_to_end(job)
            if len(self._jobs) > _JOBS_KEPT:
                self._jobs.popitem(last=False)
            return known

    def _refresh(self, job: str, known: _Known) -> str:
        """Which version of the job the rows are now."""
        # Before reading: what changes meanwhile makes it old. And in our turn: the rows of one who asked before us and
        # read after us would be called by a version that others have other rows of.
        version = self._wakeups.version(job)
        if known.version == version:
            return version
        fresh = self._store.pages.trial_rows_but(job, set(known.settled))
        rows = sorted([*known.settled.values(), *fresh], key=attrgetter("number")) if fresh else known.rows
        known.settled |= {row.number: row for row in fresh if row.is_settled}
        known.version = version
        if rows != known.rows or not known.changed:
            known.rows, known.changed = rows, version
            known.answers.clear()
        return version


def as_json(row: TrialRow) -> dict[str, Any]:
    """A trial as streams tell of it."""
    return {name: getattr(row, name) for name in (*COLUMNS, "hparams", "metrics")}


def _text(head: Mapping[str, Any], rows: Sequence[TrialRow], wanted: frozenset[str]) -> bytes:
    every = dict(zip(TrialRow._fields, zip(*rows, strict=True), strict=True)) if rows else {}
    body = {**head, "columns": {name: every.get(name, ()) for name in COLUMNS if name in wanted}}
    for name in ("hparams", "metrics"):
        if name in wanted:
            body[name] = _spread(every.get(name, ()))
    return write_json(body)


def _spread(tables: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(itertools.chain.from_iterable(tables))
    return {name: [table.get(name) for table in tables] for name in names}


def _tag(version: str) -> str:
    return f'"{version}"'


def _compressed(version: str, text: bytes) -> Compressed:
    # Level 1 takes a third of the time of level 6 and leaves a fifth more.
    return Compressed(_tag(version), gzip.compress(text, 1, mtime=0))
