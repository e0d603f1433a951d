"""Number formats and speed: autocast and loss scaling, compilation, fused optimizers."""

import types
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import torch
from torch import nn

from stoker.errors import UsageError


class Precision(StrEnum):
    """What wrapped models compute in. Weights, losses and optimizer states are float32 in all of them."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"  # with a GradScaler

    @classmethod
    def parse(cls, name: str) -> "Precision":
        try:
            return cls(name)
        except ValueError:
            raise UsageError(f"precision={name!r}: expected one of {', '.join(cls)}.") from None

    @property
    def dtype(self) -> torch.dtype:
        return {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}[self]


def autocast_forward(model: nn.Module, dtype: torch.dtype, device_type: str) -> None:
    """Make the model's forward run in autocast and give float32 back, so that losses are computed in float32."""

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device_type, dtype=dtype):
            output = type(self).forward(self, *args, **kwargs)
        return _as_float32(output)

    # A bound method, not a closure over the model: a deep copy of the model then runs its own weights.
    model.forward = types.MethodType(forward, model)


def _as_float32(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output.float() if output.dtype in (torch.float16, torch.bfloat16) else output
    if isinstance(output, dict):
        items = {key: _as_float32(value) for key, value in output.items()}
        return items if type(output) is dict else type(output)(**items)
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return type(output)(*map(_as_float32, output))
    if isinstance(output, list | tuple):
        return type(output)(map(_as_float32, output))
    return output


_FUSED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)


def use_fused_kernels(optimizer: torch.optim.Optimizer, models: Iterable[nn.Module]) -> bool:
    """Switch to torch's fused kernels where it has them and the user chose neither way; returns whether it did.

    The tiny MLP of bench/trainer.py steps a quarter faster for it.
    """
    if type(optimizer) not in _FUSED or optimizer.state:
        return False
    if not all(_can_fuse(group) for group in optimizer.param_groups):
        return False
    if any(getattr(module, "sparse", False) for model in models for module in model.modules()):
        return False  # fused kernels take no sparse gradients
    for group in optimizer.param_groups:
        group["fused"] = True
        group["foreach"] = False
    optimizer.defaults["fused"] = True
    # What their constructors set for fused=True: GradScaler then leaves inf checks to the kernel, without a sync.
    optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]
    return True


def _can_fuse(group: dict[str, Any]) -> bool:
    chosen = group.get("fused") is not None or group.get("foreach") is not None
    plain = not group.get("differentiable") and not isinstance(group["lr"], torch.Tensor)
    return (
        not chosen
        and plain
        and all(
            type(param) is nn.Parameter and param.is_floating_point() and param.device.type in ("cpu", "cuda")
            for param in group["params"]
        )
    )
