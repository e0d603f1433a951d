"""`determined.pytorch`."""

import importlib
from typing import Any

from stoker.compat.determined.old_checkpoints import load_trial_from_checkpoint_path
from stoker.compat.determined.old_trial import ClipGradsL2Norm, ClipGradsL2Value, reset_parameters
from stoker.compat.determined.trial_context import OldExperimental as PyTorchExperimentalContext
from stoker.compat.determined.trial_context import init
from stoker.pytorch import (
    Batch,
    CheckpointLoadContext,
    DataLoader,
    Epoch,
    LRScheduler,
    MetricReducer,
    PyTorchCallback,
    PyTorchTrial,
    PyTorchTrialContext,
    Reducer,
    TorchData,
    Trainer,
    TrainUnit,
    adapt_batch_sampler,
    data_length,
    samplers,
    to_device,
)

__all__ = [
    "Batch",
    "CheckpointLoadContext",
    "ClipGradsL2Norm",
    "ClipGradsL2Value",
    "DataLoader",
    "Epoch",
    "LRScheduler",
    "MetricReducer",
    "PyTorchCallback",
    "PyTorchExperimentalContext",
    "PyTorchTrial",
    "PyTorchTrialContext",
    "Reducer",
    "TorchData",
    "TrainUnit",
    "Trainer",
    "adapt_batch_sampler",
    "data_length",
    "init",
    "load_trial_from_checkpoint_path",
    "reset_parameters",
    "samplers",
    "to_device",
]


def __getattr__(name: str) -> Any:
    """Modules of this one are found without an import of their own; one that is private is used by examples."""
    if name in ("dsat", "experimental"):  # not by `from … import`, which would ask here again
        return importlib.import_module(f"{__name__}.{name}")
    if name == "_SimpleReducer":  # private, and yet used by examples
        from stoker.pytorch.metrics import FunctionReducer  # noqa: PLC0415

        return FunctionReducer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
