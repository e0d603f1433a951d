"""The server itself: health, pools, the news of all jobs, and its end."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from stoker.errors import NotFoundError
from stoker.host.home import Home
from stoker.schema.record import Health, PoolStatus
from stoker.server.live.sse import KEEP_ALIVE, KEEP_ALIVE_S, EventStream, event_message
from stoker.server.live.wakeups import JOBS, Wakeups
from stoker.server.routes.replies import reply, reply_many
from stoker.server.scheduling.scheduler import Scheduler
from stoker.server.store.store import Store
from stoker.server.views.pools import PoolViews

_PAUSE_S = 0.2  # between two looks at what has changed: progress may be reported a thousand times a second
_VERSION = version("stoker")


@dataclass(frozen=True, slots=True)
class SystemRoutes:
    """What these routes need. `shutdown` asks the server to end."""

    store: Store
    scheduler: Scheduler
    pools: PoolViews
    wakeups: Wakeups
    home: Home
    shutdown: Callable[[], None]

    def router(self) -> APIRouter:
        router = APIRouter(tags=["server"])
        router.add_api_route("/health", self.get_health, methods=["GET"], response_model=Health)
        router.add_api_route("/pools", self.get_pools, methods=["GET"], response_model=list[PoolStatus])
        router.add_api_route("/events", self.get_events, methods=["GET"], response_class=EventStream)
        router.add_api_route("/shutdown", self.post_shutdown, methods=["POST"], status_code=202)
        return router

    async def get_health(self, request: Request) -> Response:
        """Who answers here. The only route without a token."""
        url = str(request.base_url).rstrip("/")
        return reply(Health(version=_VERSION, pid=os.getpid(), url=url, home=str(self.home.root)))

    def get_pools(self) -> Response:
        """Each pool's capacity, what of it is in use, who runs and who waits."""
        return reply_many(self.pools.status())

    async def get_events(self) -> Response:
        """Server-sent events: `job` with a job's line each time it has changed. Ask GET /jobs for where they stand."""
        return EventStream(self._news())

    async def post_shutdown(self) -> Response:
        """End the server. Runs go on; the next server takes over."""
        self.shutdown()
        return Response(status_code=202)

    async def _news(self) -> AsyncIterator[str]:
        told: dict[str, str] = {}
        with self.wakeups.listen(JOBS) as listener:
            yield KEEP_ALIVE  # from here on nothing is missed
            while not listener.closed:
                for job, line in (await run_in_threadpool(self._lines, listener.take())).items():
                    if told.get(job) != line:
                        told[job] = line
                        yield event_message("job", line)
                await asyncio.sleep(_PAUSE_S)
                while not await listener.wait(KEEP_ALIVE_S):
                    yield KEEP_ALIVE

    def _lines(self, jobs: Iterable[str]) -> dict[str, str]:
        lines = {}
        for job in sorted(jobs):
            try:
                lines[job] = self.scheduler.with_reason(self.store.summary(job)).model_dump_json()
            except NotFoundError:
                continue
        return lines
