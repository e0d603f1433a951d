"""`determined.pytorch`."""

import importlib
from typing import Any

from stoker.compat.determined.old_checkpoints import load_trial_from_checkpoint_path
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
    init,
    samplers,
    to_device,
)

__all__ = [
    "Batch",
    "CheckpointLoadContext",
    "DataLoader",
    "Epoch",
    "LRScheduler",
    "MetricReducer",
    "PyTorchCallback",
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
    "samplers",
    "to_device",
]


def __getattr__(name: str) -> Any:
    """Modules of this one are found without an import of their own; what Determined itself removed is said."""
    if name == "experimental":  # not by `from … import`, which would ask here again
        return importlib.import_module(f"{__name__}.experimental")
    if name == "_SimpleReducer":  # private, and yet used by examples
        from stoker.pytorch.metrics import FunctionReducer  # noqa: PLC0415

        return FunctionReducer
    if name in ("ClipGradsL2Norm", "ClipGradsL2Value"):
        raise ImportError(
            f"{name} was removed from Determined. Clip where the optimizer steps: context.step_optimizer(optimizer,"
            " clip_grads=lambda params: torch.nn.utils.clip_grad_norm_(params, 1.0))."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
