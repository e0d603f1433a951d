"""Which counters the workers of a fleet write to: never two to the same."""

import socket
from types import SimpleNamespace
from typing import Any

from stoker.predict.online.fleet import _GENERATIONS, Fleet


def test_versions_that_are_refused_never_have_the_counters_of_the_one_that_serves() -> None:
    """Each that is tried is a generation, and there are counters for four: those in use may be the oldest."""
    with socket.socket() as listener:
        fleet: Any = Fleet(lambda: None, listener, workers=2)  # type: ignore[arg-type,return-value]
    fleet._workers = {slot: SimpleNamespace(meter=slot) for slot in range(2)}

    tried = []
    for _ in range(2 * _GENERATIONS):
        fleet._generation = fleet._free_generation()
        tried.append(fleet._generation % _GENERATIONS)

    assert 0 not in tried
    assert len(set(tried)) == _GENERATIONS - 1, "those that leave have time to"
