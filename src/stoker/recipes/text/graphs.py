"""Forward and backward of a batch as one CUDA graph for each shape, so that Python launches one thing, not hundreds.

BERT's step at batch 64 is bound by launches, compiled or not: see perf.md's figures for batch 32 and 64.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Tensors = dict[str, torch.Tensor]
_WARM_UPS = 2  # before the first capture: the first of them compiles and tunes


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    inputs: Tensors  # where the graph reads its batch
    loss: torch.Tensor  # where it leaves the loss


class GraphedGradients:
    """Called with a batch, gives its loss and leaves its gradients in `.grad`, whatever was there before.

    The loss is overwritten by the next call. Random draws are those of the global CUDA generator, so that a resumed
    training drops out the same: warming up and capturing give back what they drew.
    """

    def __init__(self, model: nn.Module, loss_of: Callable[[Tensors], torch.Tensor]) -> None:
        self._params = [param for param in model.parameters() if param.requires_grad]
        self._loss_of = loss_of
        self._captured: dict[tuple[Any, ...], _Captured] = {}
        self._pool = torch.cuda.graph_pool_handle()
        # One for all captures: libraries keep a workspace for each stream that they have seen.
        self._side = torch.cuda.Stream(self._params[0].device)  # type: ignore[no-untyped-call]
        self._gradients: list[torch.Tensor | None] | None = None

    def __call__(self, batch: Tensors) -> torch.Tensor:
        key = tuple(tuple(tensor.shape) for tensor in batch.values())
        captured = self._captured.get(key) or self._capture(key, batch)
        for name, tensor in batch.items():
            captured.inputs[name].copy_(tensor, non_blocking=True)
        captured.graph.replay()
        return captured.loss

    def prepare(self, batch: Tensors) -> None:
        """Capture for this shape now. The largest first: the others then fit into its memory."""
        key = tuple(tuple(tensor.shape) for tensor in batch.values())
        if key not in self._captured:
            self._capture(key, batch)

    def release(self) -> None:
        """Give the memory back; gradients are the optimizer's to make again."""
        self._captured.clear()
        for param in self._params:
            param.grad = None

    def _capture(self, key: tuple[Any, ...], batch: Tensors) -> _Captured:
        device = self._params[0].device
        inputs = {name: tensor.clone() for name, tensor in batch.items()}
        before = torch.cuda.get_rng_state(device)
        side = self._side
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(1 if self._captured else _WARM_UPS):
                _, gradients = self._backward(inputs)
            self._hold(gradients)
        torch.cuda.current_stream(device).wait_stream(side)
        del gradients
        graph = torch.cuda.CUDAGraph()
        # Only this thread is watched: another may be writing a checkpoint meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, stream=side, capture_error_mode="thread_local"):
            loss, gradients = self._backward(inputs)
            self._store(gradients)
        del gradients
        torch.cuda.set_rng_state(before, device)
        captured = self._captured[key] = _Captured(graph, inputs, loss)
        return captured

    def _backward(self, inputs: Tensors) -> tuple[torch.Tensor, tuple[torch.Tensor | None, ...]]:
        # Not loss.backward(): what accumulates into .grad remembers the stream it was made on.
        loss = self._loss_of(inputs)
        return loss.detach(), torch.autograd.grad(loss, self._params, allow_unused=True)

    def _hold(self, gradients: tuple[torch.Tensor | None, ...]) -> None:
        """One place for each gradient, the same for all graphs; none for a parameter that the loss does not use."""
        if self._gradients is None:
            pairs = zip(self._params, gradients, strict=True)
            # Like the parameter, not the gradient: fused optimizers take it that both lie alike in memory.
            self._gradients = [None if made is None else torch.empty_like(param) for param, made in pairs]
        for param, place in zip(self._params, self._gradients, strict=True):
            param.grad = place

    def _store(self, gradients: tuple[torch.Tensor | None, ...]) -> None:
        pairs = zip(self._gradients or (), gradients, strict=True)
        used = [(place, made) for place, made in pairs if place is not None and made is not None]
        torch._foreach_copy_([place for place, _ in used], [made for _, made in used])
