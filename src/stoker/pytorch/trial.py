"""The class a user writes: a model, its optimizer, and what to do with one batch."""

import inspect
from typing import TYPE_CHECKING, Any

import torch

from stoker.errors import UsageError
from stoker.pytorch.callbacks import PyTorchCallback
from stoker.pytorch.data.loader import data_length
from stoker.pytorch.metrics import Reducer

if TYPE_CHECKING:
    from stoker.pytorch.trial_context import PyTorchTrialContext

TorchData = Any  # a tensor, or a dict, list or tuple of them: whatever the loader yields


class PyTorchTrial:
    """Write `__init__`, `train_batch` and one of the two evaluate methods. The trainer passes arguments by keyword."""

    def __init__(self, context: "PyTorchTrialContext") -> None:
        """Build models and optimizers and wrap them with the context; keep the context."""

    def train_batch(self, batch: TorchData, epoch_idx: int, batch_idx: int) -> torch.Tensor | dict[str, Any]:
        """Learn from one batch; return its metrics, or the loss alone.

        `batch_idx` counts from the start of the trial, not of the epoch. Return tensors as they are (no `.item()`):
        they stay on the device until the next report.
        """
        raise UsageError(f"{type(self).__name__} has no train_batch(self, batch, epoch_idx, batch_idx).")

    def evaluate_batch(self, batch: TorchData, batch_idx: int) -> dict[str, Any]:
        """Metrics of one validation batch; `evaluation_reducer` says how they combine."""
        raise NotImplementedError

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        """Instead of `evaluate_batch`: metrics of all the validation data at once. Runs on rank 0 alone."""
        raise NotImplementedError

    def evaluation_reducer(self) -> "Reducer | dict[str, Reducer]":
        """How metrics of batches become one: for all of them, or by name."""
        return Reducer.AVG

    def build_training_data_loader(self) -> Any:
        """The training data, for those who do not pass it to `fit`."""
        raise NotImplementedError

    def build_validation_data_loader(self) -> Any:
        """The validation data, for those who do not pass it to `fit`."""
        raise NotImplementedError

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        """Callbacks by name; the name is where their state is kept in checkpoints."""
        return {}

    def get_batch_length(self, batch: TorchData) -> int:
        """How many samples a batch holds: the weight of its metrics, and what throughput counts."""
        return data_length(batch)


def overrides(trial: PyTorchTrial, method: str) -> bool:
    """Whether the user wrote this method."""
    return getattr(type(trial), method, None) is not getattr(PyTorchTrial, method)


def check_trial(trial: PyTorchTrial) -> None:
    """Find what is wrong with the class before anything is trained."""
    name = type(trial).__name__
    if not overrides(trial, "train_batch"):
        raise UsageError(f"{name} has no train_batch(self, batch, epoch_idx, batch_idx): write it, it is the training.")
    if overrides(trial, "evaluate_batch") and overrides(trial, "evaluate_full_dataset"):
        raise UsageError(
            f"{name} has both evaluate_batch and evaluate_full_dataset, and only one can be the validation."
            " Remove one of them."
        )


def check_evaluates(trial: PyTorchTrial) -> None:
    """Validation data was given, so something must look at it."""
    if not overrides(trial, "evaluate_batch") and not overrides(trial, "evaluate_full_dataset"):
        raise UsageError(
            f"{type(trial).__name__} has neither evaluate_batch nor evaluate_full_dataset, but there is validation"
            " data. Write evaluate_batch(self, batch, batch_idx), or give no validation data."
        )


def takes_batch_idx(trial: PyTorchTrial) -> bool:
    """Older trials have `evaluate_batch(self, batch)`."""
    parameters = inspect.signature(trial.evaluate_batch).parameters.values()
    return any(p.name == "batch_idx" or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
