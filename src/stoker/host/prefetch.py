"""Make the next things while the last is used, by threads: for work that lets go of Python's lock."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def made_ahead(make: Callable[[T], R], items: Iterable[T], *, at_once: int) -> Iterator[R]:
    """`make(item)` of each, in order, so many in the making and no more: memory is bounded, however slow the caller.

    `items` are taken in the caller's thread. What `make` raises is raised in its turn.
    """
    with ThreadPoolExecutor(at_once, thread_name_prefix="stoker-ahead") as threads:
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
