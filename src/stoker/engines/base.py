"""The port every engine implements: where runs execute. `tests/contracts/engine.py` is the contract as tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from stoker.schema.job import Share
from stoker.schema.launch import Launch


class Liveness(StrEnum):
    """What an engine knows of a run it was given. Why a run ended is for its events to say."""

    ALIVE = "alive"
    WAITING = "waiting"  # for a place on its cluster; `diagnose` says for what
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of a cluster: what it has, and what of it is free."""

    id: str
    host: str
    address: str
    has: Share
    free: Share
    resources: Mapping[str, float]


class Engine(Protocol):
    """Starts supervisors and knows whether they live.

    1. A handle is a short string that the store keeps; any server process can use it, also after a restart.
    2. Nothing here blocks on user code; every call returns within seconds.
    3. The engine never reads events and never decides what is next.
    4. A server may be killed between `submit` and writing the handle down: `find` answers for such a run.
    """

    def submit(self, launch: Launch) -> str:
        """Start the run's supervisor(s) and return the handle. All nodes or none; raises StokerError."""
        ...

    def find(self, launch: Launch) -> str | None:
        """The handle of a run that was submitted already, whoever did it; None if it was not."""
        ...

    def poll(self, handles: Sequence[str]) -> Mapping[str, Liveness]:
        """Which of these still have a living supervisor, or wait for one. Unknown handles are GONE."""
        ...

    def cancel(self, handle: str) -> None:
        """End all that the run started, at once and for good: supervisor, replicas, their children. Idempotent."""
        ...

    def diagnose(self, handle: str) -> str:
        """What is known of why a GONE run vanished or a WAITING one waits, for a person; empty if nothing is."""
        ...

    def drain(self, handle: str) -> str | None:
        """Start shipping what a GONE run left unsent; a handle that is ALIVE until that is done, or None."""
        ...
