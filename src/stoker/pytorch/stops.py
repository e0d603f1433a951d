"""Being told to stop: by the supervisor, by a signal, by the trial itself; and all ranks agreeing on it."""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from stoker.context import Context
from stoker.pytorch.distributed import DistributedContext

_VOTE_S = 1.0


class StopSignals:
    """Notices Ctrl-C and SIGTERM while training, so that the loop ends at a batch and not in the middle of one.

    A second Ctrl-C interrupts at once. What others handle already is left to them: under a supervisor that is SIGTERM,
    which the run's context notices.
    """

    def __init__(self, run: Context) -> None:
        self._run = run
        self._received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
                if signal.getsignal(number) is default:
                    self._before[number] = signal.signal(number, self._notice)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def asked(self) -> bool:
        return self._received is not None or self._run.should_stop()

    def leave(self, step: int, checkpoint: str | None) -> None:
        """End the process the way whoever asked for it expects: 0 for the supervisor, as the signal would otherwise."""
        saved = f"; fit(latest_checkpoint={checkpoint!r}) goes on from there" if checkpoint else ""
        if self._received == signal.SIGINT and not self._run.should_stop():
            raise KeyboardInterrupt(f"stopped after batch {step}{saved}")
        raise SystemExit(128 + self._received if self._received and not self._run.should_stop() else 0)

    def _notice(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            raise KeyboardInterrupt
        self._received = number


class StopVote:
    """Ranks stop after the same batch. One exchange about every second, never one a batch, decides it for all."""

    def __init__(self, distributed: DistributedContext, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._distributed = distributed
        self._clock = clock
        self._voted_at = clock()
        self._voted_step = 0
        self._next = 0

    def any_asked(self, step: int, asked: bool, *, now: bool = False) -> bool:
        """Whether to stop now. With several ranks all call it for every batch, with the same step.

        `now`: vote in any case, because all ranks wait for each other here anyway.
        """
        if self._distributed.size == 1:
            return asked
        if step < self._next and not now:
            return False
        votes = self._distributed.allgather((asked, self._batches_a_second(step)))
        self._voted_at, self._voted_step = self._clock(), step
        self._next = step + max(1, min(batches for _, batches in votes))
        return any(vote for vote, _ in votes)

    def _batches_a_second(self, step: int) -> int:
        elapsed = max(self._clock() - self._voted_at, 1e-6)
        return int((step - self._voted_step) / elapsed * _VOTE_S)
