"""What pages draw: lines of metrics, trials in columns, rungs, windows of a log; and the stream of news."""

import gzip
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from stoker.errors import UsageError
from stoker.schema.model import Model
from stoker.schema.record import PoolHistory
from stoker.schema.views import Rungs
from stoker.server.live.fanout import Fanout
from stoker.server.live.sse import EventStream
from stoker.server.live.topics import Topics, line_json, lines_json
from stoker.server.routes.replies import reply_many
from stoker.server.store.logs import check_filter
from stoker.server.store.store import Store
from stoker.server.store.values import Axis, LogFilter, Points, SeriesFilter
from stoker.server.views.columns import Compressed, TrialColumns
from stoker.server.views.log_lines import LogLines
from stoker.server.views.pools import PoolViews
from stoker.server.views.quick_json import write_json

_MOST_TOPICS = 64
_MOST_TRIALS = 500
_SAFE = {"X-Content-Type-Options": "nosniff"}


class SeriesQuery(Model):
    """Which lines, and what of them."""

    trial: str | None = Field(None, description="numbers, with commas between; the best ones without it")
    top: int = Field(20, ge=1, le=_MOST_TRIALS, description="how many of the best, if no trial is named")
    group: str | None = None
    names: str | None = Field(None, description="with commas between: loss, or validation/loss")
    x: Axis = "step"
    points: int = Field(1200, ge=4, le=20_000, description="at most so many of a line")
    start: float | None = None
    end: float | None = None
    after: int | None = Field(None, ge=0, description="a cursor: only what was reported since, all of it")


class LinesQuery(Model):
    """Which lines of a log."""

    trial: int | None = Field(None, ge=1)
    replica: str | None = None
    level: str | None = None
    text: str | None = None
    regex: str | None = None

    def filter(self) -> LogFilter:
        found = LogFilter(
            trial=self.trial, replica=self.replica, level=self.level, text=self.text or None, regex=self.regex or None
        )
        check_filter(found)
        return found


class WindowQuery(LinesQuery):
    begin: int = Field(0, alias="from", description="place among the lines that match; negative: from the end")
    at: int | None = Field(None, ge=1, description="instead: the first match at or after this line")
    count: int = Field(500, ge=0, le=5000)


class DownloadQuery(LinesQuery):
    stamps: bool = Field(False, description="the time and the replica before each line")


@dataclass(frozen=True, slots=True)
class ViewRoutes:
    """What these routes need."""

    store: Store
    columns: TrialColumns
    lines: LogLines
    pools: PoolViews
    topics: Topics
    fanout: Fanout

    def router(self) -> APIRouter:
        router = APIRouter(tags=["pages"])
        router.add_api_route("/jobs/{job}/series", self.get_series, methods=["GET"], response_class=Response)
        router.add_api_route("/jobs/{job}/trials/columns", self.get_columns, methods=["GET"], response_class=Response)
        router.add_api_route("/jobs/{job}/rungs", self.get_rungs, methods=["GET"], response_model=Rungs)
        router.add_api_route("/jobs/{job}/logs/lines", self.get_lines, methods=["GET"], response_class=Response)
        router.add_api_route("/jobs/{job}/logs/download", self.get_log, methods=["GET"], response_class=Response)
        router.add_api_route("/pools/history", self.get_history, methods=["GET"], response_model=list[PoolHistory])
        router.add_api_route("/stream", self.get_stream, methods=["GET"], response_class=EventStream)
        return router

    def get_series(self, job: str, which: Annotated[SeriesQuery, Query()]) -> Response:
        """Lines of metrics, in columns, as many points as a chart can draw."""
        chosen = _numbers(which.trial) or self.store.pages.best_trials(job, which.top)
        if which.after is not None:
            return self._since(job, chosen, which.after)
        wanted = SeriesFilter(
            chosen,
            group=which.group,
            names=frozenset(_words(which.names)),
            x=which.x,
            points=which.points,
            start=which.start,
            end=which.end,
        )
        found = self.store.pages.series(job, wanted)
        names = [{"group": group, "name": name} for group, name in found.names]
        body = {"job": job, "x": which.x, "cursor": found.cursor, "trials": chosen, "names": names}
        return _json({**body, "series": [_drawn(points) for points in found.points]})

    def get_columns(
        self,
        job: str,
        fields: str | None = None,
        if_none_match: Annotated[str | None, Header()] = None,
        accept_encoding: Annotated[str, Header()] = "",
    ) -> Response:
        """All trials: a list for each of their columns, hyperparameters and metrics."""
        return _prepared(self.columns.answer(job, _words(fields)), if_none_match, accept_encoding)

    def get_rungs(
        self,
        job: str,
        if_none_match: Annotated[str | None, Header()] = None,
        accept_encoding: Annotated[str, Header()] = "",
    ) -> Response:
        """Who was stopped at which rung, of a search with successive halving."""
        return _prepared(self.columns.rungs(job), if_none_match, accept_encoding)

    def get_lines(self, job: str, which: Annotated[WindowQuery, Query()]) -> Response:
        """A window of the lines that match, anywhere in the log."""
        window = self.lines.window(job, which.filter(), begin=which.begin, at=which.at, count=which.count)
        return _json(lines_json(window))

    def get_log(self, job: str, which: Annotated[DownloadQuery, Query()]) -> Response:
        """The lines that match, as a text file."""
        self.store.summary(job)
        headers = {"Content-Disposition": f'attachment; filename="{job}.log"', **_SAFE}
        lines = self._text(job, which.filter(), stamps=which.stamps)
        return StreamingResponse(lines, media_type="text/plain; charset=utf-8", headers=headers)

    def get_history(self, hours: Annotated[float, Query(gt=0, le=24)] = 24.0) -> Response:
        """What of each pool was in use, over the last day at most."""
        return reply_many(self.pools.history(hours))

    async def get_stream(self, request: Request, topics: str, last_event_id: str | None = None) -> Response:
        """Server-sent events of all topics named; `hello` is the first."""
        names = list(dict.fromkeys(_words(topics)))
        if not names or len(names) > _MOST_TOPICS:
            raise UsageError(f"Name 1 to {_MOST_TOPICS} topics, with commas between.")
        for name in names:
            await run_in_threadpool(self.topics.check, name)
        return EventStream(self.fanout.stream(names, request.headers.get("last-event-id") or last_event_id))

    def _since(self, job: str, chosen: list[int], after: int) -> Response:
        found = self.store.pages.series_news(job, after=after, trials=chosen, limit=20_000)
        lines = [line_json(line, fresh) for line, fresh in found.lines.items()]
        return _json({"job": job, "after": after, "cursor": found.cursor, "whole": found.is_whole, "series": lines})

    def _text(self, job: str, which: LogFilter, *, stamps: bool) -> Iterator[str]:
        """A page of blocks in memory at a time."""
        after = 0
        while (page := self.store.log_page(job, which, after=after)).blocks:
            after = page.cursor
            for block in page.blocks:
                if not stamps:
                    yield block.text + "\n"
                    continue
                stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(block.time))
                yield "".join(f"{stamp} {block.replica} {line}\n" for line in block.text.split("\n"))


def _prepared(found: Compressed, known: str | None, accepted: str) -> Response:
    headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
    if known == found.tag:
        return Response(status_code=304, headers=headers)
    headers |= {"Vary": "Accept-Encoding", **_SAFE}
    if "gzip" not in accepted:
        return Response(gzip.decompress(found.body), media_type="application/json", headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(found.body, media_type="application/json", headers=headers)


def _drawn(points: Points) -> dict[str, Any]:
    return {
        **points.line._asdict(),
        "total": points.total,
        "exact": points.total == len(points.xs),
        "x": list(points.xs),
        "y": list(points.ys),
    }


def _json(body: dict[str, Any]) -> Response:
    return Response(write_json(body), media_type="application/json", headers=_SAFE)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _numbers(text: str | None) -> list[int]:
    words = _words(text)
    if not all(word.isdecimal() for word in words) or len(words) > _MOST_TRIALS:
        raise UsageError(f"trial: give numbers with commas between, {_MOST_TRIALS} at most (got {words[:3]}).")
    return [int(word) for word in words]
