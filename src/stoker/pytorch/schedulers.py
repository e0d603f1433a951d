"""When a learning-rate scheduler steps: the trainer calls it after `train_batch`, never between optimizer steps."""

from collections.abc import Callable
from enum import Enum
from typing import Any

import torch

from stoker.errors import UsageError

TorchScheduler = torch.optim.lr_scheduler.LRScheduler


class LRScheduler:
    """A torch scheduler and when to step it. Made by `context.wrap_lr_scheduler`."""

    class StepMode(Enum):
        """What `frequency` counts. Rates matter to optimizer steps alone, so with gradient aggregation the steps of
        the batches or epochs in between are made up for at the next optimizer step."""

        STEP_EVERY_EPOCH = 1
        STEP_EVERY_BATCH = 2
        MANUAL_STEP = 3  # the trial calls step() itself
        STEP_EVERY_OPTIMIZER_STEP = 4

    def __init__(self, scheduler: TorchScheduler, step_mode: "LRScheduler.StepMode", frequency: int = 1) -> None:
        if step_mode not in LRScheduler.StepMode:
            known = ", ".join(mode.name for mode in LRScheduler.StepMode)
            raise UsageError(f"step_mode is {step_mode!r}: expected one of LRScheduler.StepMode: {known}.")
        if frequency < 1:
            raise UsageError(f"A scheduler's frequency is {frequency!r}: expected a whole number of at least 1.")
        plateau = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
        if plateau and step_mode is not LRScheduler.StepMode.MANUAL_STEP:
            raise UsageError(
                "ReduceLROnPlateau needs a metric at each step, which the trainer does not know. Wrap it with"
                " LRScheduler.StepMode.MANUAL_STEP and call its step(metric) in on_validation_end."
            )
        self.scheduler = scheduler
        self.step_mode = step_mode
        self.frequency = frequency

    def step(self, *args: Any) -> None:
        self.scheduler.step(*args)

    def get_last_lr(self) -> list[float]:
        return [float(rate) for rate in self.scheduler.get_last_lr()]

    def state_dict(self) -> dict[str, Any]:
        return self.scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scheduler.load_state_dict(state)

    def steps_after(self, batch_idx: int, *, aggregation: int, epoch_of: Callable[[int], int]) -> int:
        """How often to step after this batch (counted from 0)."""
        if (batch_idx + 1) % aggregation:
            return 0
        mode = LRScheduler.StepMode
        if self.step_mode is mode.STEP_EVERY_BATCH:
            return self._multiples(batch_idx + 1 - aggregation, batch_idx + 1)
        if self.step_mode is mode.STEP_EVERY_OPTIMIZER_STEP:
            optimizer_steps = (batch_idx + 1) // aggregation
            return self._multiples(optimizer_steps - 1, optimizer_steps)
        if self.step_mode is mode.STEP_EVERY_EPOCH:
            # The epoch in which the next optimizer step will fall decides its rate.
            return self._multiples(epoch_of(batch_idx), epoch_of(batch_idx + aggregation))
        return 0

    def _multiples(self, after: int, up_to: int) -> int:
        """How many multiples of the frequency there are in (after, up_to]."""
        return up_to // self.frequency - after // self.frequency
