"""An engine without processes and a clock that stands still."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from stoker.engines.base import Liveness
from stoker.errors import StokerError
from stoker.schema.launch import Launch


class FakeClock:
    """Seconds since the epoch, when told."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class AtOnce(Executor):
    """What is to be done in the background is done when `submit` returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - a future holds whatever it was
            future.set_exception(error)
        return future


class FakeEngine:
    """Remembers what it was asked. A handle is the run's name in brackets."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.alive: set[str] = set()
        self.cancelled: list[str] = []
        self.drained: list[str] = []
        self.refuses: StokerError | None = None
        self.lost_answers: bool = False  # a submit that starts the run, but whose answer nobody hears
        self.on_drain: Callable[[str], None] = lambda handle: None
        self.drains_slowly = False

    def submit(self, launch: Launch) -> str:
        if self.refuses is not None:
            raise self.refuses
        handle = f"[{launch.run}]"
        assert handle not in self.alive, "two supervisors for one run"
        self.launches.append(launch)
        self.alive.add(handle)
        if self.lost_answers:
            raise KeyboardInterrupt  # the server is killed here, as far as anybody can tell
        return handle

    def poll(self, handles: Sequence[str]) -> Mapping[str, Liveness]:
        return {handle: Liveness.ALIVE if handle in self.alive else Liveness.GONE for handle in handles}

    def cancel(self, handle: str) -> None:
        self.cancelled.append(handle)
        self.alive.discard(handle)

    def diagnose(self, handle: str) -> str:
        return "It was seen falling."

    def find(self, launch: Launch) -> str | None:
        return f"[{launch.run}]" if launch in self.launches else None

    def drain(self, handle: str) -> str | None:
        self.drained.append(handle)
        self.on_drain(handle)
        if self.drains_slowly:
            self.alive.add(f"drain {handle}")
            return f"drain {handle}"
        return None

    def dies(self, run: str) -> None:
        """The supervisor vanishes, with whatever it had not said."""
        self.alive.discard(f"[{run}]")

    @property
    def runs(self) -> list[str]:
        return [launch.run for launch in self.launches]
