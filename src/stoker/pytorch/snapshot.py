"""Training as it stands between two batches: take it as a checkpoint, and put it back."""

import functools
import importlib.metadata
import inspect
import logging
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stoker.errors import UsageError
from stoker.pytorch import parallel, rng
from stoker.pytorch.callbacks import Callbacks
from stoker.pytorch.checkpoint import Checkpoint
from stoker.pytorch.data.loader import TrainingStream
from stoker.pytorch.trial_context import PyTorchTrialContext

logger = logging.getLogger(__name__)

_NAMED = 5  # differences spelled out in a message


def take(
    context: PyTorchTrialContext, callbacks: Callbacks, stream: TrainingStream, description: dict[str, Any]
) -> Checkpoint | None:
    """All of it, on rank 0; None on the others. Collective. The tensors are the live ones: copy before training on."""
    own = {"rng": rng.get_state(context.device), "data": stream.state_dict(), "gradients": _gradients(context)}
    ranks = context.distributed.gather(own)
    models = [parallel.whole(parallel.unwrap(model).state_dict()) for model in context.models]
    optimizers = [parallel.whole(optimizer.state_dict()) for optimizer in context.optimizers]
    of_callbacks = callbacks.state_dict()
    if ranks is None:
        return None
    content: dict[str, Any] = {
        "models_state_dict": models,
        "optimizers_state_dict": optimizers,
        "lr_schedulers_state_dict": [scheduler.state_dict() for scheduler in context.lr_schedulers],
        "scaler_state_dict": None if context.scaler is None else context.scaler.state_dict(),
        "callbacks": of_callbacks,
        "ranks": ranks,
    }
    for callback in callbacks:
        callback.on_checkpoint_save_start(content)
    return Checkpoint(description, content.pop("models_state_dict"), content)


def describe(context: PyTorchTrialContext, trial: object, counters: Mapping[str, Any]) -> dict[str, Any]:
    """What a person or a tool wants to know of a checkpoint without loading it."""
    run, cls = context.run, type(trial)
    return {
        **counters,
        "time": time.time(),
        "job": run.job,
        "trial": run.trial,
        "trial_id": run.trial_id,
        "run": run.run_id,
        "fit": context.resuming.fits,
        "trial_class": {"module": cls.__module__, "name": cls.__qualname__, "file": _source_file(cls)},
        "hparams": context.hparams,
        "seed": context.settings.seed,
        "ranks": context.distributed.size,
        "versions": {"stoker": _version(), "torch": torch.__version__, "python": platform.python_version()},
    }


@functools.cache
def _version() -> str | None:
    try:
        return importlib.metadata.version("stoker")
    except importlib.metadata.PackageNotFoundError:
        return None  # run from its source


def put_back(checkpoint: Checkpoint, context: PyTorchTrialContext, callbacks: Callbacks) -> None:
    """Everything but the random generators and the data position: those come last, just before the next batch."""
    content = {"models_state_dict": checkpoint.models, **checkpoint.state}
    for callback in callbacks:
        callback.on_checkpoint_load_start(content)
    load_models(content["models_state_dict"], context.models)
    _load_each("optimizer", content["optimizers_state_dict"], context.optimizers)
    _load_each("LR scheduler", content["lr_schedulers_state_dict"], context.lr_schedulers)
    _put_back_gradients(content["ranks"], context)
    scaler = content["scaler_state_dict"]
    if context.scaler is not None and scaler is not None:
        context.scaler.load_state_dict(scaler)
    elif (context.scaler is None) != (scaler is None):
        logger.warning(
            "the checkpoint %s a gradient scaler's state, unlike this trial", "lacks" if scaler is None else "has"
        )
    if missing := callbacks.load_state_dict(content["callbacks"]):
        logger.warning("the checkpoint has no state for callbacks %s: they begin anew", ", ".join(missing))


def data_state(checkpoint: Checkpoint, rank: int) -> dict[str, Any]:
    """Where the data stood. A rank that did not exist then takes rank 0's word."""
    ranks = checkpoint.state["ranks"]
    return dict(ranks[rank if rank < len(ranks) else 0]["data"])


def _gradients(context: PyTorchTrialContext) -> list[list[torch.Tensor | None]] | None:
    """The sum so far, between the batches of one optimizer step; each rank has its own until they are exchanged."""
    if context.updates:
        return None
    sums = [[parallel.whole(param.grad) for param in model.parameters()] for model in context.models]
    if context.distributed.size == 1:
        return sums
    return [[None if grad is None else grad.cpu() for grad in model] for model in sums]


def _put_back_gradients(ranks: list[dict[str, Any]], context: PyTorchTrialContext) -> None:
    sums = [rank["gradients"] for rank in ranks if rank["gradients"] is not None]
    for index, model in enumerate(context.models if sums else ()):
        for param, *of_ranks in zip(model.parameters(), *(own[index] for own in sums), strict=True):
            known = [grad for grad in of_ranks if grad is not None]  # of a sharded model, rank 0 has it whole
            if known:
                # Among other ranks than before, each takes the mean: what they exchange in the end is the same.
                same_ranks = len(known) == context.distributed.size
                value = known[context.distributed.rank] if same_ranks else torch.stack(known).mean(0)
                param.grad = parallel.share_of(value.to(param.device, copy=True), param)


def put_back_rng(checkpoint: Checkpoint, context: PyTorchTrialContext) -> None:
    """Each rank's own generators; a rank that did not exist then is seeded anew."""
    ranks, rank = checkpoint.state["ranks"], context.distributed.rank
    if rank < len(ranks):
        rng.set_state(ranks[rank]["rng"], context.device)
    else:
        rng.seed_all(rng.seed_of_rank(context.settings.seed, rank, int(checkpoint.description["step"])))


def load_models(states: list[dict[str, Any]], models: list[nn.Module]) -> None:
    """Put weights into models, or say how the two differ."""
    if len(states) != len(models):
        raise UsageError(f"The checkpoint holds {len(states)} model(s), and this trial has wrapped {len(models)}.")
    for index, (state, wrapped) in enumerate(zip(states, models, strict=True)):
        model = parallel.unwrap(wrapped)
        if differences := list(_differences(state, model.state_dict())):
            which = f"model {index} ({type(model).__name__})" if len(models) > 1 else type(model).__name__
            more = f", and {len(differences) - _NAMED} more" if len(differences) > _NAMED else ""
            raise UsageError(
                f"The checkpoint does not fit {which}: {'; '.join(differences[:_NAMED])}{more}."
                " Build the model as it was (the checkpoint's hparams are in its checkpoint.json), or start without it."
            )
        model.load_state_dict(parallel.shares_of_model(state, model))


def _differences(saved: Mapping[str, Any], own: Mapping[str, Any]) -> "list[str]":
    found = []
    for name in own:
        if name not in saved:
            found.append(f"{name} is not in the checkpoint")
        elif isinstance(own[name], torch.Tensor) and own[name].shape != saved[name].shape:
            shapes = f"{list(saved[name].shape)} in the checkpoint and {list(own[name].shape)} in the model"
            found.append(f"{name} is {shapes}")
    return found + [f"the checkpoint's {name} is not in the model" for name in saved if name not in own]


def _load_each(what: str, states: list[dict[str, Any]], targets: "list[Any]") -> None:
    if len(states) != len(targets):
        raise UsageError(f"The checkpoint holds {len(states)} {what}(s), and this trial has wrapped {len(targets)}.")
    for index, (state, target) in enumerate(zip(states, targets, strict=True)):
        if isinstance(target, torch.optim.Optimizer):
            _load_optimizer(index, state, target)
        else:
            target.load_state_dict(state)


def _load_optimizer(index: int, state: dict[str, Any], optimizer: torch.optim.Optimizer) -> None:
    kernels = [{name: group.get(name) for name in ("fused", "foreach")} for group in optimizer.param_groups]
    try:
        optimizer.load_state_dict(parallel.shares_of_optimizer(state, optimizer))
    except (ValueError, IndexError) as error:
        raise UsageError(
            f"The checkpoint does not fit optimizer {index} ({type(optimizer).__name__}): {error}."
            " Give it the same parameters, in the same groups."
        ) from error
    for group, own in zip(optimizer.param_groups, kernels, strict=True):
        # Which kernels to use is a question of this machine, not of the one that wrote the checkpoint.
        group.update({name: value for name, value in own.items() if name in group})


def _source_file(cls: type) -> str | None:
    try:
        return str(Path(inspect.getfile(cls)).resolve())
    except (TypeError, OSError):
        main = sys.modules.get("__main__")
        return getattr(main, "__file__", None)
