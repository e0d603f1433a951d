"""What each topic of the stream tells: jobs, pools, one job, one trial, a log."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stoker.errors import NotFoundError, UsageError
from stoker.schema.record import PoolStatus
from stoker.server.live.fanout import Message, Source
from stoker.server.live.wakeups import JOBS, POOLS, Wakeups, job_topic, trials_topic
from stoker.server.scheduling.scheduler import Scheduler
from stoker.server.store.store import Store
from stoker.server.store.values import Fresh, Line, LogFilter
from stoker.server.views.columns import as_json
from stoker.server.views.log_lines import Lines, LogLines
from stoker.server.views.quick_json import write_json

TOPICS = "jobs, pools, job:NAME, trial:NAME:N, logs:NAME"
_PAUSE_S = 0.25
_POOLS_PAUSE_S = 1.0
_TOLD = 2000  # jobs whose last line is kept, so that it is not said twice
_MOST_TRIALS = 200  # in one message
_MOST_LINES = 200
_MOST_REPORTS = 2000


@dataclass(frozen=True, slots=True)
class Topics:
    """Makes sources; what they read is in these."""

    store: Store
    scheduler: Scheduler
    wakeups: Wakeups
    lines: LogLines
    pools: Callable[[], Sequence[PoolStatus]]

    def source(self, name: str) -> Source:
        """UsageError for a topic that there is not, NotFoundError for a job."""
        match name.split(":"):
            case ["jobs"]:
                return _Jobs(self)
            case ["pools"]:
                return _Pools(self)
            case ["job", job]:
                return _Job(self, job)
            case ["trial", job, number] if number.isdecimal():
                return _Job(self, job, int(number))
            case ["logs", job]:
                return _Logs(self, job)
        raise UsageError(f"No topic {name[:80]!r}. Topics: {TOPICS}.")

    def check(self, name: str) -> None:
        """The same errors, before a stream begins."""
        self.source(name)
        if ":" in name:
            self.store.summary(name.split(":")[1])


@dataclass(slots=True)
class _Jobs:
    of: Topics
    told: dict[str, str] = field(default_factory=dict)
    wakes: Sequence[str] = (JOBS,)
    pause_s: float = _PAUSE_S

    def open(self) -> None:
        pass

    def read(self, news: set[str]) -> list[Message]:
        messages: list[Message] = []
        for job in sorted(news):
            try:
                line = self.of.scheduler.with_reason(self.of.store.summary(job)).model_dump_json()
            except NotFoundError:
                continue
            if self.told.get(job) != line:
                messages.append(("job", line))
            self.told[job] = line
        while len(self.told) > _TOLD:
            del self.told[next(iter(self.told))]
        return messages


@dataclass(slots=True)
class _Pools:
    of: Topics
    told: str = ""
    wakes: Sequence[str] = (JOBS, POOLS)
    pause_s: float = _POOLS_PAUSE_S

    def open(self) -> None:
        self.told = self._text()

    def read(self, _news: set[str]) -> list[Message]:
        text = self._text()
        if text == self.told:
            return []
        self.told = text
        return [("pools", text)]

    def _text(self) -> str:
        return f"[{','.join(pool.model_dump_json() for pool in self.of.pools())}]"


@dataclass(slots=True)
class _Job:
    """A job, the trials of it that change, and what they report; or of one trial alone."""

    of: Topics
    job: str
    trial: int | None = None
    told: str = ""
    reports: int = 0
    results: int = 0
    pause_s: float = _PAUSE_S

    @property
    def wakes(self) -> Sequence[str]:
        return (job_topic(self.job), trials_topic(self.job))

    def open(self) -> None:
        self.reports = self.of.store.pages.last_report(self.job)
        if self.of.store.summary(self.job).search is not None:
            self.results = self.of.store.pages.last_decision(self.job)

    def read(self, news: set[str]) -> list[Message]:
        version = self.of.wakeups.version(self.job)
        line = self.of.scheduler.with_reason(self.of.store.summary(self.job))
        text = line.model_dump_json()
        messages: list[Message] = [("job", text)] if text != self.told and self.trial is None else []
        self.told = text
        changed = {int(word[1:]) for word in news if word.startswith("#")}
        if line.search is not None:
            heard = self.of.store.search_results(self.job, after=self.results)
            self.results = heard.cursor
            changed |= {result.number for result in heard.results}
        if self.trial is not None:
            changed &= {self.trial}
        return [*messages, *self._trials(sorted(changed), version), *self._metrics()]

    def _trials(self, changed: Sequence[int], version: str) -> list[Message]:
        messages = []
        for at in range(0, len(changed), _MOST_TRIALS):
            rows = self.of.store.pages.trial_rows(self.job, changed[at : at + _MOST_TRIALS])
            body = {"job": self.job, "version": version, "trials": [as_json(row) for row in rows]}
            messages.append(("trials", _json(body)))
        return messages

    def _metrics(self) -> list[Message]:
        chosen = None if self.trial is None else [self.trial]
        after = self.reports
        found = self.of.store.pages.series_news(self.job, after=after, trials=chosen, limit=_MOST_REPORTS)
        if not found.is_whole:  # nobody can draw so much: let pages fetch what they show
            self.reports = self.of.store.pages.last_report(self.job)
            name = f"job:{self.job}" if self.trial is None else f"trial:{self.job}:{self.trial}"
            return [("resync", json.dumps({"topics": [name]}))]
        self.reports = found.cursor
        if not found.lines:
            return []
        lines = [line_json(line, fresh) for line, fresh in found.lines.items()]
        return [("metrics", _json({"job": self.job, "after": after, "cursor": found.cursor, "series": lines}))]


@dataclass(slots=True)
class _Logs:
    of: Topics
    job: str
    lines: int = 0
    pause_s: float = _PAUSE_S

    @property
    def wakes(self) -> Sequence[str]:
        return (job_topic(self.job),)

    def open(self) -> None:
        self.lines = self.of.lines.total(self.job)

    def read(self, _news: set[str]) -> list[Message]:
        total = self.of.lines.total(self.job)
        if total == self.lines:
            return []
        count = total - self.lines if total - self.lines <= _MOST_LINES else 0
        window = self.of.lines.window(self.job, LogFilter(), begin=self.lines, count=count)
        self.lines = total
        return [("log", _json({"job": self.job, **lines_json(window), "lines": total}))]


def line_json(line: Line, fresh: Fresh) -> dict[str, Any]:
    return {
        **line._asdict(),
        "n": fresh.numbers,
        "step": fresh.steps,
        "time": fresh.times,
        "y": fresh.values,
    }


def lines_json(window: Lines) -> dict[str, Any]:
    """A window in columns; where lines come from is said once for each place."""
    sources: dict[tuple[str, str, str], int] = {}
    named: list[dict[str, Any]] = []
    of_line = []
    for block in window.blocks:
        key = (block.run, block.replica, block.stream)
        if key not in sources:
            sources[key] = len(sources)
            named.append(
                {
                    "run": block.run,
                    "trial": block.trial,
                    "attempt": block.attempt,
                    "replica": block.replica,
                    "stream": block.stream,
                }
            )
        of_line.append(sources[key])
    return {
        "lines": window.lines,
        "matches": window.matches,
        "complete": window.is_complete,
        "scanned": window.scanned,
        "from": window.begin,
        "n": window.numbers,
        "text": window.texts,
        "level": window.levels,
        "time": [block.time for block in window.blocks],
        "source": of_line,
        "sources": named,
        "replicas": list(window.replicas),
    }


def _json(body: dict[str, Any]) -> str:
    return write_json(body).decode()
