"""One model over several ranks: DDP, FSDP2, and a state that is the same whichever is used."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from stoker.errors import UsageError
from stoker.pytorch.distributed import DistributedContext
from stoker.pytorch.precision import Precision

STRATEGIES = ("ddp", "fsdp")


class _DDP(DistributedDataParallel):
    """DDP through which the model's own attributes can be reached, as if it were not there."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


def replicate(model: nn.Module, distributed: DistributedContext, *, find_unused_parameters: bool) -> nn.Module:
    """A copy on every rank, gradients averaged; rank 0's weights to begin with."""
    if not any(param.requires_grad for param in model.parameters()):
        return model  # DDP refuses a frozen model, and there is nothing to average
    on_gpu = distributed.device.type == "cuda"
    return _DDP(
        model,
        device_ids=[distributed.device.index] if on_gpu else None,
        find_unused_parameters=find_unused_parameters,
        gradient_as_bucket_view=True,
    )


def shard(model: nn.Module, distributed: DistributedContext, precision: Precision) -> nn.Module:
    """A part of each weight on every rank (FSDP2). The layers of a ModuleList are gathered one at a time."""
    try:  # here, because they cost a second to import
        from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(f"FSDP needs torch 2.7 or newer; this is {torch.__version__}. Use strategy='ddp'.") from error
    mesh = init_device_mesh(distributed.device.type, (distributed.size,))
    policy = MixedPrecisionPolicy()
    if precision is Precision.BF16:
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32)
    for layers in [module for module in model.modules() if isinstance(module, nn.ModuleList)]:
        for layer in layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def is_sharded(model: nn.Module) -> bool:
    fsdp = sys.modules.get("torch.distributed.fsdp")  # not imported: nothing can be of its classes
    return fsdp is not None and isinstance(model, fsdp.FSDPModule)


def _is_part(value: Any) -> bool:
    tensor = sys.modules.get("torch.distributed.tensor")
    return tensor is not None and isinstance(value, tensor.DTensor)


def unwrap(model: nn.Module) -> nn.Module:
    """The user's own model."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def set_gradient_sync(model: nn.Module, *, enabled: bool) -> None:
    """Whether the next backward exchanges gradients: not between the batches of one optimizer step.

    FSDP does it anyway: to put it off, each rank would have to hold the gradients of the whole model.
    """
    if isinstance(model, DistributedDataParallel):
        model.require_backward_grad_sync = enabled


@contextmanager
def evaluating(models: list[nn.Module]) -> Iterator[None]:
    """Models in eval mode, without gradients; afterwards each module is in the mode it was in before.

    DDP would exchange buffers in each forward and hang when ranks have different numbers of batches, so they are
    exchanged once, here.
    """
    modes = [(module, module.training) for model in models for module in model.modules()]
    replicas = [model for model in models if isinstance(model, DistributedDataParallel)]
    for replica in replicas:
        if replica.will_sync_module_buffers():  # type: ignore[no-untyped-call]
            replica._sync_buffers()  # type: ignore[no-untyped-call]
        replica.require_forward_param_sync = False
    for model in models:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for replica in replicas:
            replica.require_forward_param_sync = True
        for module, _ in modes:
            if is_sharded(module):
                module.reshard()  # type: ignore[operator]  # a forward without backward leaves it whole
        for module, mode in modes:
            module.training = mode


def whole(tree: Any) -> Any:
    """The tree with sharded tensors gathered, so that it can be loaded by any number of ranks. Collective.

    They go to the CPU one by one: a model that needs sharding does not fit on one GPU.
    """
    if isinstance(tree, dict):
        return {key: whole(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(map(whole, tree))
    return _gathered(tree) if _is_part(tree) else tree


def _gathered(part: Any) -> torch.Tensor | None:
    full: torch.Tensor = part.full_tensor()
    return full.cpu() if part.device_mesh.get_rank() == 0 else None  # rank 0 alone writes checkpoints


def share_of(value: Any, like: Any) -> Any:
    """This rank's part of a whole tensor, if the tensor it replaces is sharded."""
    if not _is_part(like) or not isinstance(value, torch.Tensor) or value.shape != like.shape:
        return value  # of another shape: a step counter, not a moment of the weight
    distribute = sys.modules["torch.distributed.tensor"].distribute_tensor
    return distribute(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def shares_of_model(state: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    own = model.state_dict()
    return {name: share_of(value, own[name]) for name, value in state.items()}


def shares_of_optimizer(state: dict[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    params = list(_params_in_order(optimizer))
    by_param = {
        index: {name: share_of(value, params[index]) for name, value in values.items()}
        for index, values in state["state"].items()
    }
    return {**state, "state": by_param}


def _params_in_order(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
