"""`context.searcher`: the operations of the older dialect, where the search's file says how long a trial is."""

import enum
import logging
from collections.abc import Iterator
from typing import Any

from stoker.compat.determined.cluster import document_of
from stoker.context import Context

logger = logging.getLogger("determined.core")


class SearcherMode(enum.Enum):
    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"


class Unit(enum.Enum):
    EPOCHS = "EPOCHS"
    RECORDS = "RECORDS"
    BATCHES = "BATCHES"


class SearcherOperation:
    """Train until `length`, counted from the trial's beginning."""

    def __init__(self, run: Context, length: int, *, is_chief: bool) -> None:
        self.length = length
        self._run, self._is_chief = run, is_chief
        self.completed = False

    def report_progress(self, length: float) -> None:
        if self._is_chief:
            self._run.progress(min(length / self.length, 1.0))

    def report_completed(self, searcher_metric: Any) -> None:
        """The search has the metric from the validation that was reported; this ends the operation."""
        if not self._is_chief:
            raise RuntimeError("report_completed() is for the chief alone.")
        if self.completed:
            raise RuntimeError("report_completed() was called twice for one operation.")
        self.completed = True


class SearcherContext:
    """One operation, of the file's max_length; without a job, of length 1, so that a script can be tried."""

    def __init__(self, run: Context, distributed: Any) -> None:
        self._run, self._distributed = run, distributed

    def operations(
        self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> Iterator[SearcherOperation]:
        is_chief = self._distributed.rank == 0
        operation = SearcherOperation(self._run, self._length(), is_chief=is_chief)
        yield operation
        if is_chief and not operation.completed and not self._run.should_stop():
            raise RuntimeError(
                "The trial went on to the next operation without op.report_completed(metric) of this one."
            )

    def get_configured_units(self) -> Unit | None:
        for name in self._max_length():
            return Unit[name.upper()]
        return None

    def _length(self) -> int:
        if not self._run.managed:
            return 1
        for count in self._max_length().values():
            return int(count)
        raise ValueError(
            "context.searcher.operations() needs searcher.max_length in the experiment's file, which has none. Add it"
            " (max_length: {batches: 1000}), or train to a length of the script's own."
        )

    def _max_length(self) -> dict[str, Any]:
        found = document_of(self._run).get("searcher", {}).get("max_length")
        return {"batches": found} if isinstance(found, int) else dict(found or {})
