"""A job's log as numbered lines: any window of a million of them, of those that match a filter too.

What is kept in memory is where lines are, never what they say: how many lines each block has, and the numbers of those
that a filter has found. Both grow with the log. A search through a long log is done a slice at a time, so that every
answer comes soon and says how far the search has come.
"""

import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from stoker.server.store.logs import LEVELS, check_filter
from stoker.server.store.pages import PageStore
from stoker.server.store.values import Block, LogFilter

_JOBS_KEPT = 16
_SEARCHES_KEPT = 8  # of a job
_SLICE_S = 0.1  # of searching, for one answer
_BLOCKS_AT_ONCE = 32
_LEVELS_AT_ONCE = 5000
_INFO = LEVELS.index("INFO")

Key = TypeVar("Key", bound=Hashable)
Kept = TypeVar("Kept")


@dataclass(slots=True)
class _Blocks:
    """Blocks in order: their numbers, and how many lines come before each."""

    numbers: "array[int]" = field(default_factory=lambda: array("q"))
    starts: "array[int]" = field(default_factory=lambda: array("q"))
    lines: int = 0

    def add(self, number: int, count: int) -> None:
        self.numbers.append(number)
        self.starts.append(self.lines)
        self.lines += count

    def holding(self, line: int) -> int:
        """Which block has this line, counted from 0."""
        return bisect_right(self.starts, line) - 1


@dataclass(slots=True)
class _Search:
    """Lines that a filter has found, and how many blocks have been looked at."""

    found: "array[int]" = field(default_factory=lambda: array("q"))
    looked: int = 0


@dataclass(slots=True)
class _Part:
    """The log of one trial or replica (or all of it), and searches in it."""

    runs: frozenset[int] | None
    blocks: _Blocks = field(default_factory=_Blocks)
    taken: int = 0  # blocks of the whole log that were looked at
    searches: OrderedDict[LogFilter, _Search] = field(default_factory=OrderedDict)


@dataclass(slots=True)
class _Log:
    """All that is known of a job's log."""

    numbers: "array[int]" = field(default_factory=lambda: array("q"))
    counts: "array[int]" = field(default_factory=lambda: array("q"))
    runs: "array[int]" = field(default_factory=lambda: array("q"))
    replicas: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)  # of those
    parts: OrderedDict[tuple[int | None, str | None], _Part] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class Lines:
    """A window. `numbers` count from 1; each line has its text, level, block and its offset there."""

    lines: int  # of the whole part
    matches: int
    is_complete: bool
    scanned: int
    begin: int  # the place of the first one here among the matches
    numbers: Sequence[int]
    texts: Sequence[str]
    levels: Sequence[str]
    blocks: Sequence[Block]  # of each line
    replicas: Sequence[str] = ()  # that have said anything, in this window or not


class LogLines:
    """Answers for all jobs; keeps what it found out about those that were asked about last."""

    def __init__(self, store: PageStore, *, slice_s: float = _SLICE_S) -> None:
        self._store = store
        self._slice_s = slice_s
        self._logs: OrderedDict[str, _Log] = OrderedDict()
        self._lock = threading.Lock()

    def window(self, job: str, which: LogFilter, *, begin: int = 0, at: int | None = None, count: int = 500) -> Lines:
        """`begin` counts matches, from the end if negative; `at` is a line's number, to begin with the match there."""
        check_filter(which)
        log = self._log(job)
        with log.lock:
            self._refresh(job, log)
            part = self._part(job, log, which.trial, which.replica)
            search = self._search(job, log, part, which)
            matches = part.blocks.lines if search is None else len(search.found)
            if at is not None:
                begin = at - 1 if search is None else bisect_left(search.found, at - 1)
            elif begin < 0:
                begin += matches
            begin = min(max(begin, 0), matches)
            end = min(begin + count, matches)
            places = range(begin, end) if search is None else search.found[begin:end]
            wanted = list(_by_block(part.blocks, places))
            looked = len(part.blocks.numbers) if search is None else search.looked
            is_complete = looked == len(part.blocks.numbers)
            scanned = part.blocks.lines if is_complete else part.blocks.starts[looked]
            lines = part.blocks.lines
            names = sorted(log.names, key=_natural)
        return self._filled(wanted, Lines(lines, matches, is_complete, scanned, begin, [], [], [], [], names))

    def total(self, job: str) -> int:
        """How many lines there are."""
        log = self._log(job)
        with log.lock:
            self._refresh(job, log)
            return self._part(job, log, None, None).blocks.lines

    def _filled(self, wanted: Sequence[tuple[int, int, Sequence[int]]], empty: Lines) -> Lines:
        blocks = {block.number: block for block in self._store.log_blocks([number for number, _, _ in wanted])}
        numbers: list[int] = []
        texts: list[str] = []
        levels: list[str] = []
        of: list[Block] = []
        for number, start, offsets in wanted:
            block = blocks[number]
            for offset in offsets:
                numbers.append(start + offset + 1)
                texts.append(block.lines[offset] if offset < len(block.lines) else "")
                levels.append(block.levels.get(offset, ""))
                of.append(block)
        return replace(empty, numbers=numbers, texts=texts, levels=levels, blocks=of)

    def _log(self, job: str) -> _Log:
        with self._lock:
            return _keep(self._logs, job, _Log, most=_JOBS_KEPT)

    def _refresh(self, job: str, log: _Log) -> None:
        new = self._store.log_columns(job, after=log.numbers[-1] if log.numbers else 0)
        log.numbers.extend(new.numbers)
        log.counts.extend(new.counts)
        log.runs.extend(new.runs)
        log.replicas.extend(new.replicas)
        log.names.update(new.replicas)

    def _part(self, job: str, log: _Log, trial: int | None, replica: str | None) -> _Part:
        runs = None if trial is None else self._store.log_runs(job, trial)
        part = _keep(log.parts, (trial, replica), lambda: _Part(runs), most=_SEARCHES_KEPT)
        if part.runs != runs:  # a new run: what it said before we heard of it was passed over
            part = log.parts[trial, replica] = _Part(runs)
        add = part.blocks.add
        for at in range(part.taken, len(log.numbers)):
            if (runs is None or log.runs[at] in runs) and (replica is None or log.replicas[at] == replica):
                add(log.numbers[at], log.counts[at])
        part.taken = len(log.numbers)
        return part

    def _search(self, job: str, log: _Log, part: _Part, which: LogFilter) -> _Search | None:
        """None if all lines match."""
        rank = 0 if which.level is None else LEVELS.index(which.level.upper())
        if not (rank or which.text or which.regex):
            return None
        search = _keep(part.searches, which, _Search, most=_SEARCHES_KEPT)
        if which.text or which.regex:
            self._look_through(part.blocks, search, which, rank)
        else:
            self._look_at_levels(job, part.blocks, search, rank)
        return search

    def _look_at_levels(self, job: str, blocks: _Blocks, search: _Search, rank: int) -> None:
        """Lines of a level are known without reading them."""
        while search.looked < len(blocks.numbers):
            after = blocks.numbers[search.looked] - 1
            told = dict(self._store.log_levels(job, after=after, limit=_LEVELS_AT_ONCE))
            last = max(told) if len(told) == _LEVELS_AT_ONCE else blocks.numbers[-1]
            end = bisect_right(blocks.numbers, last)
            for at in range(search.looked, end):
                start = blocks.starts[at]
                levels = told.get(blocks.numbers[at], {})
                if rank <= _INFO:
                    size = (blocks.starts[at + 1] if at + 1 < len(blocks.starts) else blocks.lines) - start
                    search.found.extend(
                        start + offset for offset in range(size) if _rank(levels.get(offset, "")) >= rank
                    )
                else:
                    search.found.extend(start + offset for offset in sorted(levels) if _rank(levels[offset]) >= rank)
            search.looked = end

    def _look_through(self, blocks: _Blocks, search: _Search, which: LogFilter, rank: int) -> None:
        deadline = time.monotonic() + self._slice_s
        while search.looked < len(blocks.numbers):
            numbers = blocks.numbers[search.looked : search.looked + _BLOCKS_AT_ONCE]
            for at, block in enumerate(self._store.log_blocks(numbers), search.looked):
                start = blocks.starts[at]
                search.found.extend(start + offset for offset in self._matching(block, which, rank))
            search.looked += len(numbers)
            if time.monotonic() > deadline:
                return

    def _matching(self, block: Block, which: LogFilter, rank: int) -> Sequence[int]:
        offsets: Sequence[int] = range(len(block.lines))
        if which.text:
            text = which.text.casefold()
            if text not in "\n".join(block.lines).casefold():
                return ()  # most blocks hold no match at all: say so before taking them apart
            offsets = [offset for offset in offsets if text in block.lines[offset].casefold()]
        if rank:
            offsets = [offset for offset in offsets if _rank(block.levels.get(offset, "")) >= rank]
        if which.regex and offsets:
            found = self._store.find_lines(which.regex, [block.lines[offset] for offset in offsets])
            offsets = [offsets[at] for at in found]
        return offsets


def _by_block(blocks: _Blocks, places: Sequence[int]) -> Iterator[tuple[int, int, Sequence[int]]]:
    """Lines, counted from 0, as blocks: a number, the lines before it, and offsets in it."""
    at = 0
    while at < len(places):
        block = blocks.holding(places[at])
        start = blocks.starts[block]
        end = blocks.starts[block + 1] if block + 1 < len(blocks.starts) else blocks.lines
        behind = bisect_left(places, end, at)
        yield blocks.numbers[block], start, [place - start for place in places[at:behind]]
        at = behind


def _natural(replica: str) -> tuple[str, int]:
    """worker-2 before worker-10."""
    role, _, index = replica.rpartition("-")
    return role, int(index) if index.isdecimal() else 0


def _rank(level: str) -> int:
    level = level.upper()
    return LEVELS.index(level) if level in LEVELS else _INFO


def _keep(kept: OrderedDict[Key, Kept], key: Key, make: Callable[[], Kept], *, most: int) -> Kept:
    if key not in kept:
        kept[key] = make()
        if len(kept) > most:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return kept[key]
