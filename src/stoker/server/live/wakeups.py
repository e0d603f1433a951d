"""Wake those who wait for news. Carries no data: who is woken reads the store, so nobody can miss or lag behind it."""

import asyncio
import secrets
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class Listener:
    """One waiter. `news` collects what it was woken for until it takes it; it lives on the event loop alone."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._news: set[str] = set()
        self.closed = False

    async def wait(self, timeout_s: float) -> bool:
        """True if there is news, or the server is going away; False after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        return True

    def take(self) -> set[str]:
        """The news so far. Take it before reading the store: what comes in between then wakes again."""
        news, self._news = self._news, set()
        if not self.closed:
            self._event.clear()
        return news

    def _wake(self, news: str) -> None:
        self._news.add(news)
        self._event.set()

    def _close(self) -> None:
        self.closed = True
        self._event.set()


class Wakeups:
    """Topics and their listeners. Wake from any thread, after the commit; listen on the event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: dict[str, set[Listener]] = defaultdict(set)
        self._pending: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._on_close: list[Callable[[], None]] = []
        self._versions: Counter[str] = Counter()
        self.boot = secrets.token_hex(4)  # another one after each start of the server

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on waking reaches listeners of this loop."""
        self._loop = loop

    def job_changed(self, job: str) -> None:
        """Its state, progress, labels or logs are new."""
        with self._lock:
            self._versions[job] += 1
        self._wake(job_topic(job), job)
        self._wake(JOBS, job)

    def run_changed(self, run: str) -> None:
        """The same, and whose trial it was: a run's name is JOB.TRIAL.ATTEMPT."""
        job, trial, _ = run.rsplit(".", 2)
        self.job_changed(job)
        self._wake(trials_topic(job), f"#{trial}")

    def version(self, job: str) -> str:
        """Another text after each change of a job. Ask before reading the store."""
        return f"{self.boot}-{self._versions[job]}"

    def on_close(self, call: Callable[[], None]) -> None:
        """To be called on the event loop when the server goes away."""
        self._on_close.append(call)

    def pools_changed(self) -> None:
        """There is more or less to run on, or of a cluster other nodes are free."""
        self._wake(POOLS, POOLS)

    def run_ordered(self, run: str) -> None:
        """A run was told to stop."""
        self._wake(run_topic(run), run)

    @contextmanager
    def listen(self, *topics: str) -> Iterator[Listener]:
        listener = Listener()
        if self._closed:
            listener._close()
        for topic in topics:
            self._listeners[topic].add(listener)
        try:
            yield listener
        finally:
            for topic in topics:
                self._listeners[topic].discard(listener)
                if not self._listeners[topic]:
                    del self._listeners[topic]

    def close(self) -> None:
        """The server goes away: everyone stops waiting, and nobody begins to. From any thread."""
        self._closed = True
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._close_all)

    def _wake(self, topic: str, news: str) -> None:
        if self._loop is None or topic not in self._listeners:
            return
        with self._lock:
            first = not self._pending
            self._pending.add((topic, news))
        if first:  # one visit to the loop serves all that is pending by then
            with suppress(RuntimeError):  # the loop has closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._deliver)

    def _close_all(self) -> None:
        for listeners in self._listeners.values():
            for listener in listeners:
                listener._close()
        for call in self._on_close:
            call()

    def _deliver(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, set()
        for topic, news in pending:
            for listener in self._listeners.get(topic, ()):
                listener._wake(news)


JOBS = "jobs"
POOLS = "pools"


def job_topic(job: str) -> str:
    return f"job/{job}"


def trials_topic(job: str) -> str:
    """Which of its trials have changed: `#` and the number of each."""
    return f"trials/{job}"


def run_topic(run: str) -> str:
    return f"run/{run}"
