"""Metrics to all who want them: the run, TensorBoard, the person watching. Rank 0 alone."""

from collections.abc import Mapping
from typing import Any

from stoker.context import Context
from stoker.pytorch.metrics import scalars
from stoker.pytorch.progress import Progress
from stoker.pytorch.tensorboard import EventFile


class Reporter:
    """Says each metric once, to everyone. Values that are not one number stay in the process."""

    def __init__(self, run: Context, *, events: EventFile | None, progress: Progress | None, total: int) -> None:
        self._run = run
        self._events = events
        self._progress = progress
        self._total = total

    def batch(self, step: int) -> None:
        if self._progress is not None:
            self._progress.batch(step)

    def training(self, step: int, metrics: Mapping[str, Any]) -> None:
        numbers = scalars(metrics)
        self._report(step, "training", numbers)
        self._run.progress(step / self._total)
        if self._progress is not None:
            self._progress.training(step, numbers)

    def validation(self, step: int, metrics: Mapping[str, Any]) -> None:
        numbers = scalars(metrics)
        self._report(step, "validation", numbers)
        if self._progress is not None:
            self._progress.validation(step, numbers)

    def say(self, line: str) -> None:
        if self._progress is not None:
            self._progress.say(line)

    def close(self) -> None:
        if self._events is not None:
            self._events.close()
        if self._progress is not None:
            self._progress.close()

    def _report(self, step: int, group: str, numbers: Mapping[str, float]) -> None:
        self._run.report(step, group, **numbers)
        if self._events is not None:
            self._events.add(step, {f"{group}/{name}": value for name, value in numbers.items()})
