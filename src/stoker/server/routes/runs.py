"""Runs: what supervisors say, and what they are told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from stoker.schema.event import EventBatch, EventReply
from stoker.schema.model import Model, config_error
from stoker.schema.state import StopReason
from stoker.server.live.wakeups import Wakeups, run_topic
from stoker.server.routes.replies import reply
from stoker.server.scheduling.scheduler import Scheduler
from stoker.server.store.store import Store

_EVENT_BATCH = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}


class Orders(Model):
    """What a run is told: to stop, and why; or nothing."""

    stop: StopReason | None = None


@dataclass(frozen=True, slots=True)
class RunRoutes:
    """What the routes of runs need."""

    store: Store
    scheduler: Scheduler
    wakeups: Wakeups
    now: Callable[[], float]

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/runs", tags=["runs"])
        router.add_api_route(
            "/{run}/events", self.post_events, methods=["POST"], response_model=EventReply, openapi_extra=_EVENT_BATCH
        )
        router.add_api_route("/{run}/orders", self.get_orders, methods=["GET"], response_model=Orders)
        return router

    async def post_events(self, run: str, request: Request) -> Response:
        """An EventBatch: `{"node": 0, "events": […]}`.

        Sending events again is harmless. Those up to `acked` are safe; what came after a gap was not taken.
        """
        body = await request.body()
        # Megabytes of log take tens of milliseconds to read and store: not on the event loop.
        return reply(await run_in_threadpool(self._append, run, body))

    async def get_orders(self, run: str, wait_s: Annotated[float, Query(ge=0, le=60)] = 25.0) -> Response:
        """Answers as soon as there is an order, or with none after `wait_s`."""
        with self.wakeups.listen(run_topic(run)) as listener:
            stop = await run_in_threadpool(self.store.stop_order, run)
            if stop is None and await listener.wait(wait_s):
                stop = await run_in_threadpool(self.store.stop_order, run)
        return reply(Orders(stop=stop))

    def _append(self, run: str, body: bytes) -> EventReply:
        try:
            batch = EventBatch.model_validate_json(body)
        except ValidationError as error:
            raise config_error(error, source="The event batch") from error
        done = self.store.append_events(run, batch, now=self.now())
        if done.moved:
            self.scheduler.wake()
            if done.stop is not None:
                self.wakeups.run_ordered(run)  # one node's end may be the others' order to stop
        self.wakeups.run_changed(run)
        return EventReply(acked=done.acked, stop=done.stop)
