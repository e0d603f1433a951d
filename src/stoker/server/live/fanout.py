"""One stream of news for each page: every topic is read and written down once, however many look at it.

A topic's pump waits until something has changed, reads it from the store, and hands the same text to all its clients.
Nobody waits for a slow client: what does not fit its queue is dropped, and it is told to fetch again (`resync`).
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from starlette.concurrency import run_in_threadpool

from stoker.errors import StokerError
from stoker.server.live.sse import KEEP_ALIVE, KEEP_ALIVE_S, event_message
from stoker.server.live.wakeups import Wakeups

logger = logging.getLogger(__name__)

_PAUSE_S = 0.25  # between two messages of a topic
_RING = 4096  # messages kept for those whose connection broke
_RING_BYTES = 8 << 20
_QUEUE_BYTES = 1 << 20  # of a client that does not read
_LINGER_S = 60.0  # a topic is kept going so long for those who come back

Message = tuple[str, str]  # an event's name and its JSON


class Source(Protocol):
    """What a topic tells. Its methods are called one at a time, off the event loop."""

    @property
    def wakes(self) -> Sequence[str]:
        """The topics of Wakeups that wake it."""
        ...

    @property
    def pause_s(self) -> float: ...

    def open(self) -> None:
        """What changes from now on is news."""
        ...

    def read(self, news: set[str]) -> list[Message]: ...


@dataclass(eq=False, slots=True)
class _Client:
    """What one connection has still to be sent."""

    waiting: deque[str] = field(default_factory=deque)
    size: int = 0
    has_lost: bool = False
    is_over: bool = False  # one of its topics has ended: it is to come back
    event: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, text: str) -> None:
        self.size += len(text)
        if self.size > _QUEUE_BYTES:
            self.waiting.clear()
            self.size = len(text)
            self.has_lost = True
        self.waiting.append(text)
        self.event.set()

    def end(self) -> None:
        self.is_over = True
        self.event.set()

    def take(self) -> str:
        text = "".join(self.waiting)
        self.waiting.clear()
        self.size = 0
        self.event.clear()
        return text


@dataclass(eq=False, slots=True)
class _Topic:
    source: Source
    since: int  # all later messages of the fanout that are this topic's are in the ring
    clients: set[_Client] = field(default_factory=set)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    left: float = field(default_factory=time.monotonic)  # when the last client went
    task: asyncio.Task[None] | None = None


class Fanout:
    """All topics and their clients; lives on the event loop."""

    def __init__(self, wakeups: Wakeups, source_of: Callable[[str], Source]) -> None:
        self._wakeups = wakeups
        self._source_of = source_of
        self._topics: dict[str, _Topic] = {}
        self._clients: set[_Client] = set()
        self._ring: deque[tuple[int, str, str]] = deque()
        self._ring_bytes = 0
        self._number = 0
        self._is_closed = False
        wakeups.on_close(self.close)

    async def stream(self, names: Sequence[str], last_id: str | None) -> AsyncIterator[str]:
        """What a client is sent, until the server goes away or a topic cannot go on: then it comes back."""
        yield KEEP_ALIVE
        topics = {name: self._topic(name) for name in names}
        client = _Client()
        self._clients.add(client)
        for topic in topics.values():
            topic.clients.add(client)  # from now on the topic stays; what it says before `hello` is dropped below
        try:
            for topic in topics.values():
                await topic.ready.wait()
            if client.is_over:
                return  # without `hello`: nothing would follow it
            client.take()
            yield self._greeting(topics, last_id)
            async for text in self._news(client, list(names)):
                yield text
        finally:
            self._clients.discard(client)
            for topic in topics.values():
                topic.clients.discard(client)
                topic.left = time.monotonic()

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        for client in self._clients:
            client.event.set()
        for topic in self._topics.values():
            if topic.task is not None:
                topic.task.cancel()

    async def _news(self, client: _Client, names: Sequence[str]) -> AsyncIterator[str]:
        while not self._is_closed:
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    await client.event.wait()
            except TimeoutError:
                yield KEEP_ALIVE
                continue
            if client.has_lost:
                client.has_lost = False
                client.take()
                yield self._resync(names)
            elif text := client.take():
                yield text
            if client.is_over:
                return

    def _greeting(self, topics: dict[str, _Topic], last_id: str | None) -> str:
        hello = {"boot": self._wakeups.boot, "topics": list(topics), "time": time.time()}
        text = self._written("hello", json.dumps(hello))
        boot, _, number = (last_id or "").partition("-")
        if boot != self._wakeups.boot or not number.isdecimal():
            return text
        last = int(number)
        oldest = self._ring[0][0] if self._ring else self._number + 1
        lost = [name for name, topic in topics.items() if last < topic.since or last < oldest - 1]
        missed = "".join(said for at, name, said in self._ring if at > last and name in topics and name not in lost)
        return text + (self._resync(lost) if lost else "") + missed

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            source = self._source_of(name)
            # A number of its own: who heard the last before it has not heard what changed while nobody listened.
            self._number += 1
            topic = self._topics[name] = _Topic(source, since=self._number)
            topic.task = asyncio.get_running_loop().create_task(self._pump(name, topic))
        return topic

    async def _pump(self, name: str, topic: _Topic) -> None:
        try:
            with self._wakeups.listen(*topic.source.wakes) as listener:
                await run_in_threadpool(topic.source.open)
                topic.ready.set()
                while not listener.closed and not self._is_abandoned(topic):
                    if not await listener.wait(KEEP_ALIVE_S):
                        continue
                    for event, data in await run_in_threadpool(topic.source.read, listener.take()):
                        self._publish(name, topic, event, data)
                    await asyncio.sleep(topic.source.pause_s)
        except StokerError as error:  # the database does not answer: whoever comes back starts it anew
            logger.warning("topic %s: %s", name, error)
        finally:
            for client in topic.clients:
                client.end()  # or it would wait for news that nobody tells any more
            topic.ready.set()
            if self._topics.get(name) is topic:
                del self._topics[name]

    def _is_abandoned(self, topic: _Topic) -> bool:
        return not topic.clients and time.monotonic() - topic.left > _LINGER_S

    def _publish(self, name: str, topic: _Topic, event: str, data: str) -> None:
        self._number += 1
        text = self._written(event, data)
        self._ring.append((self._number, name, text))
        self._ring_bytes += len(text)
        while len(self._ring) > _RING or self._ring_bytes > _RING_BYTES:
            self._ring_bytes -= len(self._ring.popleft()[2])
        for client in topic.clients:
            client.put(text)

    def _resync(self, names: Sequence[str]) -> str:
        return self._written("resync", json.dumps({"topics": list(names)}))

    def _written(self, event: str, data: str) -> str:
        return event_message(event, data, id=f"{self._wakeups.boot}-{self._number}")
