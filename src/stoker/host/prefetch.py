"""Prepare the next items in threads while the caller uses the last, for work that releases the GIL."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def prefetch(make: Callable[[T], R], items: Iterable[T], *, at_once: int) -> Iterator[R]:
    """`make(item)` for each item, in order, with up to `at_once` being made by threads, however slow the caller.

    `items` are taken in the caller's thread. What `make` raises is raised in its turn.
    """
    with ThreadPoolExecutor(at_once, thread_name_prefix="stoker-prefetch") as threads:
        coming: deque[Future[R]] = deque()
        try:
            for item in items:
                coming.append(threads.submit(make, item))
                if len(coming) > at_once:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            for future in coming:
                future.cancel()
