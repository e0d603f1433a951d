"""What a model says about rows: probabilities of classes, or the value itself."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from stoker.recipes.tabular.features import Features

_PART_ROWS = 1 << 11  # what a layer makes of them stays in the core's own cache


def exact(net: nn.Module) -> nn.Module:
    """A copy to predict with: in double precision, so that after rounding to single an answer is the same whatever
    rows are beside it (sums in another order differ in the last digits, and matrix products change it with the size).
    """
    return copy.deepcopy(net).cpu().double().eval()


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch's own threads left out, for work that takes less time than to share it out, or that several threads do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@torch.inference_mode()
def infer(net: nn.Module, features: Features, numbers: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """float32 [rows, classes] probabilities, or [rows] values; in the model's own precision until then."""
    weights = next(iter(net.parameters()))
    parts = []
    for start in range(0, len(numbers), _PART_ROWS):
        rows = slice(start, start + _PART_ROWS)
        outputs = net(
            numbers[rows].to(device=weights.device, dtype=weights.dtype), codes[rows].to(device=weights.device)
        )
        parts.append(_answers(outputs, features).float().cpu())
    return torch.cat(parts) if parts else _answers(torch.zeros(0, features.metadata.num_outputs), features)


def _answers(outputs: torch.Tensor, features: Features) -> torch.Tensor:
    match features.metadata.task:
        case "regression":
            return outputs[:, 0] * features.target_std + features.target_mean
        case "binary":
            positive = outputs[:, 0].sigmoid()
            return torch.stack([1 - positive, positive], dim=1)
        case _:
            return outputs.softmax(1)
