"""Who listens to a topic hears of every change, or is told to fetch anew: whatever comes between."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from stoker.errors import StokerError
from stoker.server.live import fanout as fanout
from stoker.server.live.fanout import Fanout, Message
from stoker.server.live.wakeups import JOBS, Wakeups


@dataclass
class Counter:
    """Tells how high it is, whenever that has changed since it was opened."""

    at: list[int]
    fails: list[str] = field(default_factory=list)  # what its next calls raise
    told: int = 0
    wakes: Sequence[str] = (JOBS,)
    pause_s: float = 0.0

    def open(self) -> None:
        self._fail()
        self.told = self.at[0]

    def read(self, news: set[str]) -> list[Message]:
        self._fail()
        if self.told == self.at[0]:
            return []
        self.told = self.at[0]
        return [("at", json.dumps(self.told))]

    def _fail(self) -> None:
        if self.fails:
            raise StokerError(self.fails.pop())


def on_a_loop(body: Callable[[Wakeups], Awaitable[None]]) -> None:
    async def main() -> None:
        wakeups = Wakeups()
        wakeups.bind(asyncio.get_running_loop())
        await body(wakeups)
        wakeups.close()

    asyncio.run(asyncio.wait_for(main(), 60))


async def said(stream: AsyncIterator[str], event: str) -> str:
    """The id of the next such event; what comes before it is let go."""
    async for text in stream:
        for message in text.split("\n\n"):
            lines = dict(line.partition(": ")[::2] for line in message.splitlines() if not line.startswith(":"))
            if lines.get("event") == event:
                return lines["id"]
    raise AssertionError(f"the stream ended without {event}")


async def heard_and_left(topics: Fanout) -> str:
    """The last id that a client had, who listened for a moment."""
    stream = topics.stream(["counter"], None)
    last_id = await said(stream, "hello")
    await stream.aclose()
    return last_id


def test_client_that_comes_back_is_resynced_when_the_topic_had_ended_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody told what changed then, so no number was given out for it."""
    monkeypatch.setattr(fanout, "_LINGER_S", -1.0)
    monkeypatch.setattr(fanout, "KEEP_ALIVE_S", 0.01)
    at = [0]

    async def body(wakeups: Wakeups) -> None:
        topics = Fanout(wakeups, lambda name: Counter(at))
        last_id = await heard_and_left(topics)
        while topics._topics:  # nobody listens: it ends
            await asyncio.sleep(0.01)
        at[0] = 1

        again = topics.stream(["counter"], last_id)

        await said(again, "resync")
        await again.aclose()

    on_a_loop(body)


def test_client_that_comes_back_to_a_topic_that_went_on_is_not_resynced() -> None:
    at = [0]

    async def body(wakeups: Wakeups) -> None:
        topics = Fanout(wakeups, lambda name: Counter(at))
        last_id = await heard_and_left(topics)
        at[0] = 1
        wakeups.job_changed("job")
        while not topics._ring:
            await asyncio.sleep(0.01)

        again = topics.stream(["counter"], last_id)
        assert (await anext(again)).startswith(":")
        text = await anext(again)

        assert "event: at" in text
        assert "event: resync" not in text
        await again.aclose()

    on_a_loop(body)


@pytest.mark.parametrize("when", ["open", "read"])
def test_stream_ends_when_its_topic_cannot_go_on_and_the_next_one_hears(when: str) -> None:
    """Left open it would be silent for ever: the topic that tells the news is another one by then."""
    at, fails = [0], ["the database does not answer"] if when == "open" else []

    async def body(wakeups: Wakeups) -> None:
        topics = Fanout(wakeups, lambda name: Counter(at, fails))
        first = topics.stream(["counter"], None)
        if when == "read":
            await said(first, "hello")
            fails.append("the database does not answer")
            wakeups.job_changed("job")
        assert not [text async for text in first if "event:" in text]

        again = topics.stream(["counter"], None)
        await said(again, "hello")
        at[0] = 2
        wakeups.job_changed("job")
        await said(again, "at")
        await again.aclose()

    on_a_loop(body)
