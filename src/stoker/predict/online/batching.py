"""Gather what many clients ask for into few calls of the model, without ever waiting when there is nothing to wait for.

While one batch is computed, the next gathers. On the idle path there is no timer: requests that arrived in the same
turn of the event loop go together, and at once. A model that is quicker than a hop to a thread is called right in the
event loop; which it is, is found by measuring every call.
"""

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from stoker.errors import InstanceError, StokerError
from stoker.predict.base import Instance, Predictor
from stoker.predict.online.compute import Outcome, compute
from stoker.predict.online.settings import Limits

# A call this short costs the other connections less than handing it to a thread and taking turns at Python's lock.
_QUICK_S = 0.003
_HICCUP_S = 0.03


class BusyError(StokerError):
    """The queue is full."""

    http_status = 429


class Work:
    """One request's instances on their way through the model, perhaps in several batches."""

    __slots__ = ("answered", "deadline", "done", "instances", "predictions", "since", "taken")

    def __init__(self, instances: Sequence[Instance], done: Callable[[Outcome], None], now: float, timeout_s: float):
        self.instances = instances
        self.done = done
        self.since = now
        self.deadline = now + timeout_s
        self.taken = 0
        self.predictions: list[object] = []
        self.answered = False

    def answer(self, outcome: Outcome) -> None:
        if not self.answered:
            self.answered = True
            self.done(outcome)

    def add(self, outcome: Outcome) -> None:
        """The outcome of the next part; the last one, or an error, is the answer."""
        if isinstance(outcome, InstanceError) and self.predictions:
            outcome = InstanceError(outcome.reason, index=outcome.index + len(self.predictions), field=outcome.field)
        if isinstance(outcome, BaseException):
            self.answer(outcome)
            return
        if not self.predictions and len(outcome) == len(self.instances):
            self.answer(outcome)
            return
        self.predictions += outcome
        if len(self.predictions) == len(self.instances):
            self.answer(self.predictions)


Part = tuple[Work, Sequence[Instance]]


class Batcher:
    """A model's queue and its one caller. Belongs to an event loop; `submit` and `tick` are called in it."""

    def __init__(
        self, predictor: Predictor, *, limits: Limits, observe: Callable[[int], None] = lambda size: None
    ) -> None:
        self._predictor = predictor
        self._max_batch = limits.max_batch
        self._delay_s = limits.max_delay_ms / 1000
        self._queue = limits.queue
        self._timeout_s = limits.timeout_s
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Work] = deque()
        self._running: list[Part] = []
        self._running_since = 0.0
        self._is_called = False  # a start is on its way
        self._delayed: asyncio.TimerHandle | None = None  # the same, when it waits for others to join
        self._quick_size = 0  # so many instances are known to take less than _QUICK_S
        self._was_slow = False  # the last call in the event loop, though it should have been quick
        self._calls: queue.SimpleQueue[list[Part]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def depth(self) -> int:
        return len(self._waiting)

    def submit(self, instances: Sequence[Instance], done: Callable[[Outcome], None]) -> None:
        """Have them predicted; `done` is called in the event loop, once. BusyError when too many wait."""
        if len(self._waiting) >= self._queue:
            raise BusyError(f"{self._queue} requests are waiting already. Try again in a moment.")
        self._waiting.append(Work(instances, done, time.monotonic(), self._timeout_s))
        if not self._running and not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._start)
        elif self._delayed is not None and self._is_full():
            self._delayed.cancel()
            self._delayed = None
            self._loop.call_soon(self._start)

    def tick(self, now: float) -> None:
        """Answer those whose time is up. To be called a few times a second."""
        for work in [*self._waiting, *(work for work, _ in self._running)]:
            if now > work.deadline and not work.answered:
                work.answer(TimeoutError(f"No prediction within {self._timeout_s:g} s."))
        while self._waiting and self._waiting[0].answered:
            self._waiting.popleft()

    def stuck_s(self, now: float) -> float:
        """How long the call that runs has been running."""
        return now - self._running_since if self._running else 0.0

    def _start(self) -> None:
        """The next batch, now."""
        self._is_called = False
        self._delayed = None
        parts, size = self._take()
        if not parts:
            return
        self._observe(size)
        self._running = parts
        self._running_since = time.monotonic()
        if size <= self._quick_size:
            self._finish(parts, *_timed(self._predictor, parts))
        else:
            self._hand_over(parts)

    def _take(self) -> tuple[list[Part], int]:
        """From the oldest on, as many as fit. What is left of a long request goes behind the short ones."""
        parts: list[Part] = []
        size = 0
        waiting = self._waiting
        while waiting and size < self._max_batch:
            work = waiting.popleft()
            if work.answered:
                continue
            room, start = self._max_batch - size, work.taken
            if start == 0 and len(work.instances) <= room:
                parts.append((work, work.instances))
                size += len(work.instances)
                continue
            some = work.instances[start : start + room]
            work.taken += len(some)
            parts.append((work, some))
            size += len(some)
            if work.taken < len(work.instances):
                waiting.append(work)
                break  # or it would be taken again in this very batch
        return parts, size

    def _hand_over(self, parts: list[Part]) -> None:
        if self._thread is None:
            # A daemon: a model that never returns must not keep the process from ending.
            self._thread = threading.Thread(target=self._work, name="model", daemon=True)
            self._thread.start()
        self._calls.put(parts)

    def _work(self) -> None:
        while True:
            parts = self._calls.get()
            outcomes, took_s = _timed(self._predictor, parts)
            self._loop.call_soon_threadsafe(self._finish, parts, outcomes, took_s)

    def _finish(self, parts: list[Part], outcomes: list[Outcome], took_s: float) -> None:
        self._learn(sum(len(some) for _, some in parts), took_s)
        self._running = []
        for (work, _), outcome in zip(parts, outcomes, strict=True):
            work.add(outcome)
        self._go_on()

    def _learn(self, size: int, took_s: float) -> None:
        if took_s < _QUICK_S:
            self._quick_size = max(self._quick_size, min(2 * size, self._max_batch))
            self._was_slow = False
        elif size <= self._quick_size:
            # A little, and once, may be the machine's doing; a thread for the next batch would make those wait too.
            is_hiccup = took_s < _HICCUP_S and not self._was_slow
            self._quick_size = self._quick_size if is_hiccup else size // 2
            self._was_slow = is_hiccup

    def _go_on(self) -> None:
        if not self._waiting:
            return
        wait_s = 0.0
        if self._delay_s and not self._is_full():
            wait_s = self._waiting[0].since + self._delay_s - time.monotonic()
        self._is_called = True
        if wait_s > 0:
            self._delayed = self._loop.call_later(wait_s, self._start)
        else:
            self._loop.call_soon(self._start)

    def _is_full(self) -> bool:
        return sum(len(work.instances) - work.taken for work in self._waiting) >= self._max_batch


def _timed(predictor: Predictor, parts: list[Part]) -> tuple[list[Outcome], float]:
    start = time.perf_counter()
    outcomes = compute(predictor, [some for _, some in parts])
    return outcomes, time.perf_counter() - start
