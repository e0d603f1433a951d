"""What every callback needs: a trainer of another library, tied to a run."""

import logging
import os
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

from stoker.context import Context, init

logger = logging.getLogger(__name__)

_GROUPS = {"eval": "validation", "val": "validation", "validation": "validation", "test": "test"}
_VOTE_S = 1.0  # how often ranks ask one another whether to stop


class RunLink:
    """Reports and keeps on the chief, stops on all ranks at the same step."""

    def __init__(self, context: Context | None, *, keep: int) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}: a run without a checkpoint cannot be gone on with. Use 1 or more.")
        self.context = context or init()
        self.is_chief = self.context.rank == 0
        self.stopped = False
        self._keep = keep
        self._kept: list[str] = []
        self._vote = _StopVote()

    def begin(self) -> None:
        """Training starts, on all ranks."""
        self._vote.open()

    def report(self, step: int, metrics: Mapping[str, Any], *, group: str | None = None) -> None:
        """Report what can be a number. Without a group, `eval_loss` and `val_loss` are the `loss` of `validation`."""
        if not self.is_chief:
            return
        groups: dict[str, dict[str, float]] = {}
        for name, value in metrics.items():
            number = _number(value)
            if number is not None:
                where, what = (group, name) if group else _group_of(name)
                groups.setdefault(where, {})[what] = number
        for where, numbers in groups.items():
            self.context.report(step, where, **numbers)

    def progress(self, fraction: float) -> None:
        if self.is_chief:
            self.context.progress(fraction)

    def keep(self, path: str, step: int, **metadata: Any) -> None:
        """Make a file or folder the run's newest checkpoint; the oldest beyond those to keep goes."""
        if not self.is_chief:
            return
        kept = self.context.save_checkpoint(path, step, **metadata)
        self._kept = [*(known for known in self._kept if known != kept), kept]
        while len(self._kept) > self._keep:
            _remove(self._kept.pop(0))

    def should_stop(self, step: int) -> bool:
        """Whether the run is to end after this step. The same on all ranks; each asks for every step."""
        self.stopped = self.stopped or self._vote.any_asked(step, self.context.should_stop())
        return self.stopped

    def leave(self) -> None:
        """End the process as the supervisor expects it of a run that was told to stop."""
        logger.info("stopped as told: %s", self.context.stop_reason or "no reason given")
        raise SystemExit(0)


class _StopVote:
    """Ranks that stop at different steps would wait for one another for ever, so they vote: about once a second."""

    def __init__(self) -> None:
        self._group: Any = None
        self._next = 0
        self._last = (0, 0.0)  # step and time of the last vote

    def open(self) -> None:
        distributed = sys.modules.get("torch.distributed")  # Keras may run without torch
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return
        if distributed.get_world_size() > 1:
            self._group = distributed.new_group(backend="gloo")  # a GPU is not waited for
            self._next = 0

    def any_asked(self, step: int, asked: bool) -> bool:
        if self._group is None:
            return asked
        if step < self._next:
            return False
        now = time.monotonic()
        since, at = self._last
        rate = int((step - since) / max(now - at, 1e-6) * _VOTE_S) if at else 1
        votes: list[Any] = [None] * self._group.size()
        sys.modules["torch.distributed"].all_gather_object(votes, (asked, rate), group=self._group)
        self._last = (step, now)
        self._next = step + max(1, min(rate for _, rate in votes))
        return any(vote for vote, _ in votes)


def _group_of(name: str) -> tuple[str, str]:
    prefix, _, rest = name.replace("/", "_", 1).partition("_")
    return (_GROUPS[prefix], rest) if rest and prefix in _GROUPS else ("training", name)


def _number(value: Any) -> float | None:
    if isinstance(value, str | bytes | bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None  # a histogram, an image, a table: not for a curve


def _remove(path: str) -> None:
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.exists(path):
        os.remove(path)
