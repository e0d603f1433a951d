"""`context.train`: metrics, progress and state of a trial."""

import enum
import json
import logging
import math
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from stoker.atomic import replace_file
from stoker.compat.determined.cluster import document_of
from stoker.context import Context
from stoker.run_dir import RunDir

logger = logging.getLogger("determined.core")


class EarlyExitReason(enum.Enum):
    INVALID_HP = "EXITED_REASON_INVALID_HP"
    USER_REQUESTED_STOP = "EXITED_REASON_USER_REQUESTED_STOP"


class TrainContext:
    """Reports go to the run's events, from whichever rank calls."""

    def __init__(self, run: Context) -> None:
        self._run = run
        self._best: dict[str, float] = {}
        self._unreported: set[str] = set()

    def report_training_metrics(
        self, steps_completed: int, metrics: Mapping[str, Any], batch_metrics: list[Any] | None = None
    ) -> None:
        self.report_metrics("training", steps_completed, metrics)

    def report_validation_metrics(self, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            if value is None:
                raise RuntimeError(f"validation metric {name!r} is None: report a number, or leave it out.")
        self.report_metrics("validation", steps_completed, metrics)

    def report_metrics(self, group: str, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Numbers are kept as curves, and those in nested dicts by names with dots. What is no number is left out."""
        if "." in group:
            raise ValueError(f"metric group {group!r}: a group's name has no dots.")
        found: dict[str, float] = {}
        for name, value in metrics.items():
            self._take(found, str(name), value)
        if group == "validation":
            self._note_best(found)
        self._run.report(int(steps_completed), group, **found)

    def report_progress(self, progress: float) -> None:
        if not 0 <= progress <= 1 or math.isnan(progress):
            raise RuntimeError(f"Progress should be between 0 and 1, not {progress!r}.")
        self._run.progress(progress)

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        if reason is EarlyExitReason.INVALID_HP:
            self._run.invalid_hp("reported by the trial")

    def set_status(self, status: str) -> None:
        logger.info("status: %s", status)

    def get_experiment_best_validation(self) -> float | None:
        """The best of the searched metric in this trial so far (of the whole experiment, where there was a master)."""
        searcher = document_of(self._run).get("searcher", {})
        return self._best.get(searcher.get("metric", ""))

    def get_tensorboard_path(self) -> pathlib.Path:
        path = RunDir(self._run.run_dir).tensorboard
        path.mkdir(parents=True, exist_ok=True)
        return path

    def upload_tensorboard_files(
        self,
        selector: Callable[[pathlib.Path], bool] = lambda path: True,
        mangler: Callable[[pathlib.Path, int], pathlib.Path] | None = None,
    ) -> None:
        """Nothing to do: they are written where they are kept."""

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        os.makedirs(self._run.run_dir, exist_ok=True)
        replace_file(self._metadata_file, json.dumps(metadata))

    def get_metadata(self) -> dict[str, Any] | None:
        try:
            with open(self._metadata_file) as file:
                found: dict[str, Any] = json.load(file)
                return found
        except FileNotFoundError:
            return None

    @property
    def _metadata_file(self) -> str:
        return os.path.join(self._run.run_dir, "metadata.json")

    def _take(self, found: dict[str, float], name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, under in value.items():
                self._take(found, f"{name}.{key}", under)
            return
        try:
            found[name] = float(value)
        except (TypeError, ValueError):
            if name not in self._unreported:
                self._unreported.add(name)
                logger.warning("metric %r is no number (%s): it is not kept", name, type(value).__name__)

    def _note_best(self, metrics: Mapping[str, float]) -> None:
        searcher = document_of(self._run).get("searcher", {})
        better = min if searcher.get("smaller_is_better", True) else max
        for name, value in metrics.items():
            if not math.isnan(value):
                self._best[name] = better(self._best.get(name, value), value)
