"""PyTorchTrial as it was before 0.13: the class has `build_model` and `optimizer`, and the trainer steps.

`train_batch(batch, model, epoch_idx, batch_idx)` returned a loss, and the rest was done for it.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from stoker.pytorch import LRScheduler, PyTorchCallback, PyTorchTrial
from stoker.pytorch.trial_context import PyTorchTrialContext


class ClipGradsL2Norm(PyTorchCallback):
    """Clips before each step; the optimizer's steps were the trainer's then, and so is this."""

    def __init__(self, clip_value: float) -> None:
        self._most = float(clip_value)

    def on_before_optimizer_step(self, parameters: Iterator[nn.Parameter]) -> None:
        nn.utils.clip_grad_norm_(parameters, self._most)


class ClipGradsL2Value(ClipGradsL2Norm):
    """The same by value."""

    def on_before_optimizer_step(self, parameters: Iterator[nn.Parameter]) -> None:
        nn.utils.clip_grad_value_(parameters, self._most)


def is_old(cls: type[Any]) -> bool:
    """Known by `train_batch`, which is given the model."""
    return hasattr(cls, "build_model") and "model" in inspect.signature(cls.train_batch).parameters


def build(cls: type[Any], context: PyTorchTrialContext) -> PyTorchTrial:
    """A trial of today's around one of that time, which it asks for everything."""
    evaluation: dict[str, Any] = {
        "evaluate_batch": _evaluate_batch,
        "evaluate_full_dataset": _evaluate_full_dataset,
    }
    own = {name: call for name, call in evaluation.items() if getattr(cls, name) is not getattr(PyTorchTrial, name)}
    today: PyTorchTrial = type(cls.__name__, (_Today,), own)(context, cls(context))
    return today


def reset_parameters(model: nn.Module) -> None:
    """Begin every layer's weights anew."""
    for layer in model.modules():
        if layer is not model and callable(reset := getattr(layer, "reset_parameters", None)):
            reset()


class _Today(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext, trial: Any) -> None:
        self.context = context
        self.trial = trial
        self.model = context.wrap_model(trial.build_model())
        self.optimizer = context.wrap_optimizer(trial.optimizer(self.model))
        make_scheduler = getattr(trial, "create_lr_scheduler", None)
        scheduler = make_scheduler(self.optimizer) if make_scheduler is not None else None
        if isinstance(scheduler, LRScheduler):
            context.wrap_lr_scheduler(scheduler.scheduler, scheduler.step_mode, scheduler.frequency)
        self._callbacks = trial.build_callbacks()

    def build_training_data_loader(self) -> Any:
        return self.trial.build_training_data_loader()

    def build_validation_data_loader(self) -> Any:
        return self.trial.build_validation_data_loader()

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        found: dict[str, PyTorchCallback] = self._callbacks
        return found

    def evaluation_reducer(self) -> Any:
        return self.trial.evaluation_reducer()

    def get_batch_length(self, batch: Any) -> int:
        return int(self.trial.get_batch_length(batch))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        found = self.trial.train_batch(batch=batch, model=self.model, epoch_idx=epoch_idx, batch_idx=batch_idx)
        metrics: dict[str, Any] = {"loss": found} if isinstance(found, torch.Tensor) else dict(found)
        self.context.backward(metrics["loss"])
        self.context.step_optimizer(self.optimizer, clip_grads=self._before_step)
        return metrics

    def _before_step(self, parameters: Iterator[nn.Parameter]) -> None:
        every = list(parameters)
        for callback in self._callbacks.values():
            if (call := getattr(callback, "on_before_optimizer_step", None)) is not None:
                call(every)


def _evaluate_batch(self: _Today, batch: Any, batch_idx: int) -> dict[str, Any]:
    found: dict[str, Any] = self.trial.evaluate_batch(batch=batch, model=self.model)
    return found


def _evaluate_full_dataset(self: _Today, data_loader: Any) -> dict[str, Any]:
    found: dict[str, Any] = self.trial.evaluate_full_dataset(data_loader=data_loader, model=self.model)
    return found
