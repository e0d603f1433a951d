"""Hugging Face's Trainer in a run, by Determined's callback."""

import functools
import json
import os
from typing import Any

from stoker.integrations.transformers import StokerCallback


class DetCallback(StokerCallback):
    """Reports what the Trainer logs, keeps what it saves, goes on from the latest checkpoint, stops when told.

    `training_args.resume_from_checkpoint` is set when the run has a checkpoint; pass it to `train()`, as examples do.
    """

    def __init__(
        self,
        core_context: Any,
        args: Any = None,
        filter_metrics: list[str] | None = None,
        user_data: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.core_context = core_context
        self._filter = filter_metrics
        self._user_data = user_data
        self.last_metrics: dict[str, float] = {}
        if args is not None and self.latest_checkpoint is not None:
            args.resume_from_checkpoint = self.latest_checkpoint

    @functools.cached_property
    def current_op(self) -> Any:
        """How long the search's file says a trial is; read by scripts of the older dialect."""
        return next(iter(self.core_context.searcher.operations()))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        wanted = {
            name: value
            for name, value in (logs or {}).items()
            if self._filter is None or any(part in name for part in self._filter)
        }
        group = "validation" if any(name.startswith("eval_") for name in wanted) else "training"
        numbers = {name: float(value) for name, value in wanted.items() if isinstance(value, int | float)}
        numbers |= {"batches": state.global_step, "epochs": state.epoch or 0}
        self.last_metrics = numbers
        # Their names are kept whole ("eval_loss"), because a search's file names its metric so.
        self._link.report(state.global_step, numbers, group=group)
        if state.max_steps > 0:
            self._link.progress(state.global_step / state.max_steps)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._user_data is not None and self._link.is_chief:
            folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            with open(os.path.join(folder, "my_data.json"), "w") as file:
                json.dump(self._user_data, file)
        super().on_save(args, state, control, **kwargs)
