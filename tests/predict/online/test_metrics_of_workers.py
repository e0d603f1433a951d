"""Which counters the workers of a pool write to: never two to the same."""

import socket
from types import SimpleNamespace
from typing import Any

from stoker.predict.online.worker_pool import _GENERATIONS, WorkerPool


def test_versions_that_are_refused_never_have_the_counters_of_the_one_that_serves() -> None:
    """Each that is tried is a generation, and there are counters for four: those in use may be the oldest."""
    with socket.socket() as listener:
        pool: Any = WorkerPool(lambda: None, listener, workers=2)  # type: ignore[arg-type,return-value]
    pool._workers = {slot: SimpleNamespace(slot=slot) for slot in range(2)}

    tried = []
    for _ in range(2 * _GENERATIONS):
        pool._generation = pool._free_generation()
        tried.append(pool._generation % _GENERATIONS)

    assert 0 not in tried
    assert len(set(tried)) == _GENERATIONS - 1, "those that leave have time to"
