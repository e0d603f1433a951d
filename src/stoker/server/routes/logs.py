"""Logs and metrics: pages of them, or as they come."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from stoker.errors import UsageError
from stoker.schema.model import Model
from stoker.schema.record import LogPage, MetricPoint
from stoker.server.live.sse import KEEP_ALIVE, KEEP_ALIVE_S, EventStream, event_message
from stoker.server.live.wakeups import Wakeups, job_topic
from stoker.server.routes.replies import reply
from stoker.server.store.logs import check_filter
from stoker.server.store.store import Store
from stoker.server.store.values import LogFilter, MetricPage

_PAGE_LINES = 10_000
_METRICS_AT_ONCE = 1000
# While a job shouts, its followers are served fifty times a second, not for every batch.
_PAUSE_S = 0.02

Read = Callable[[int], tuple[list[str], int]]  # cursor to messages and the next cursor
Cursor = Annotated[int | None, Query(ge=0, description="only what comes after this cursor")]
LastEventId = Annotated[int | None, Header(description="where a broken stream is taken up again")]


class LogQuery(Model):
    """Which lines, and from where."""

    trial: int | None = Field(None, ge=1, description="of the trial of this number alone")
    replica: str | None = Field(None, description="for example chief-0, worker-1, supervisor")
    level: str | None = Field(None, description="the lowest level to show: DEBUG, INFO, WARNING, ERROR, CRITICAL")
    text: str | None = Field(None, description="lines that hold these words, in any case")
    regex: str | None = Field(None, description="lines in which this regular expression is found")
    since: str | None = Field(None, description="seconds since 1970, or 2026-11-15T12:30")
    until: str | None = None
    tail: int | None = Field(None, ge=0, description="only the last so many lines (and what comes then, if following)")
    after: int | None = Field(None, ge=0, description="only blocks after this cursor; goes before tail")
    limit: int = Field(_PAGE_LINES, ge=1, le=100_000, description="a page ends with the block that reaches it")
    follow: bool = False

    def filter(self) -> LogFilter:
        return LogFilter(
            replica=self.replica,
            level=self.level,
            text=self.text,
            regex=self.regex,
            since=_seconds(self.since),
            until=_seconds(self.until),
            trial=self.trial,
        )


@dataclass(frozen=True, slots=True)
class LogRoutes:
    """What the routes of logs and metrics need."""

    store: Store
    wakeups: Wakeups

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/jobs", tags=["logs and metrics"])
        router.add_api_route("/{job}/logs", self.get_logs, methods=["GET"], response_model=LogPage)
        router.add_api_route("/{job}/metrics", self.get_metrics, methods=["GET"], response_model=list[MetricPoint])
        return router

    async def get_logs(
        self,
        job: str,
        which: Annotated[LogQuery, Query()],
        last_event_id: LastEventId = None,
    ) -> Response:
        """Blocks of log lines, oldest first; an empty page means that there is no more for now.

        With `follow`, server-sent events: `log` for each block as it comes, `end` with the job when it has ended.
        """
        wanted = which.filter()
        check_filter(wanted)
        after = which.after if last_event_id is None else last_event_id
        await run_in_threadpool(self.store.summary, job)  # no such job is an error, not an empty stream
        if not which.follow:
            return reply(await run_in_threadpool(self._page, job, wanted, after, which))

        def read(cursor: int) -> tuple[list[str], int]:
            if cursor < 0:
                page = self.store.log_tail(job, wanted, lines=which.tail or 0)
            else:
                page = self.store.log_page(job, wanted, after=cursor, limit=which.limit)
            return [event_message("log", b.model_dump_json(), id=b.cursor) for b in page.blocks], page.cursor

        first = -1 if after is None and which.tail is not None else after or 0
        return EventStream(self._follow(job, read, first))

    def get_metrics(
        self, job: str, after: Cursor = None, follow: bool = False, last_event_id: LastEventId = None
    ) -> Response:
        """All that was reported, oldest first.

        With `follow`, server-sent events: `metrics` with a list of points as they come, and `end`.
        """
        cursor = (after if last_event_id is None else last_event_id) or 0
        first = self.store.metric_page(job, after=cursor, limit=_METRICS_AT_ONCE)

        def read(cursor: int) -> tuple[list[str], int]:
            page = self.store.metric_page(job, after=cursor, limit=_METRICS_AT_ONCE)
            return [event_message("metrics", _list(page.points), id=page.cursor)] if page.points else [], page.cursor

        if follow:
            return EventStream(self._follow(job, read, cursor))
        return StreamingResponse(self._all_metrics(job, first), media_type="application/json")

    def _page(self, job: str, wanted: LogFilter, after: int | None, which: LogQuery) -> LogPage:
        if which.tail is not None and after is None:
            return self.store.log_tail(job, wanted, lines=which.tail)
        return self.store.log_page(job, wanted, after=after or 0, limit=which.limit)

    def _all_metrics(self, job: str, page: MetricPage) -> Iterator[str]:
        """A JSON list of any length, a page in memory at a time."""
        opening = "["
        while page.points:
            yield opening + _items(page.points)
            opening = ","
            page = self.store.metric_page(job, after=page.cursor, limit=_METRICS_AT_ONCE)
        yield "[]" if opening == "[" else "]"

    async def _follow(self, job: str, read: Read, cursor: int) -> AsyncIterator[str]:
        """What is there, then what comes, until the job has ended and everything was said."""
        with self.wakeups.listen(job_topic(job)) as listener:
            yield KEEP_ALIVE  # the headers go out at once, also when there is nothing to say yet
            while not listener.closed:
                listener.take()
                # Asked before reading: what a job says is stored before it ends, so then this reads the last of it.
                line = await run_in_threadpool(self.store.summary, job)
                messages, cursor = await run_in_threadpool(read, cursor)
                if messages:
                    yield "".join(messages)
                    await asyncio.sleep(_PAUSE_S)
                elif line.state.is_final:
                    yield event_message("end", line.model_dump_json())
                    return
                else:
                    while not await listener.wait(KEEP_ALIVE_S):
                        yield KEEP_ALIVE


def _list(points: Iterable[MetricPoint]) -> str:
    return f"[{_items(points)}]"


def _items(points: Iterable[MetricPoint]) -> str:
    return ",".join(point.model_dump_json() for point in points)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        raise UsageError(f"{text!r} is not a time: give seconds since 1970, or 2026-11-15T12:30.") from None
