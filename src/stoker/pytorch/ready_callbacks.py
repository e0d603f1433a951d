"""Callbacks ready to use: early stopping, weight averaging, a learning-rate finder, and two monitors."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from stoker.errors import UsageError
from stoker.pytorch import parallel
from stoker.pytorch.callbacks import PyTorchCallback
from stoker.pytorch.trial_context import PyTorchTrialContext


class EarlyStopping(PyTorchCallback):
    """Stop when a validation metric has not improved by `min_delta` for `patience` validations in a row."""

    def __init__(
        self,
        context: PyTorchTrialContext,
        metric: str = "loss",
        *,
        patience: int = 3,
        min_delta: float = 0.0,
        smaller_is_better: bool = True,
    ) -> None:
        self._context = context
        self._metric = metric
        self._patience = patience
        self._min_delta = min_delta
        self._sign = 1.0 if smaller_is_better else -1.0
        self.best: float | None = None
        self.waited = 0

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        if self._metric not in metrics:
            raise UsageError(
                f"EarlyStopping watches {self._metric!r}, but validation gave {', '.join(sorted(metrics))}."
            )
        value = float(metrics[self._metric])
        if self.best is None or self._sign * (self.best - value) > self._min_delta:
            self.best = value
            self.waited = 0
        else:
            self.waited += 1
        if self.waited >= self._patience:
            self._context.set_stop_requested(True)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.waited = state_dict["best"], state_dict["waited"]


class EMA(PyTorchCallback):
    """Keep an exponential moving average of the wrapped models' weights, and validate with it.

    The averaged weights are in checkpoints as this callback's state; `with ema.applied():` puts them in place.
    """

    def __init__(self, context: PyTorchTrialContext, decay: float = 0.999) -> None:
        if not 0 < decay < 1:
            raise UsageError(f"EMA(decay={decay}): expected a number between 0 and 1, like 0.999.")
        self._context = context
        self._decay = decay
        self._average: list[torch.Tensor] = []
        self._hooks: list[Any] = []

    def on_training_start(self) -> None:
        if not self._average:
            self._average = [param.detach().clone() for param in self._params()]
        # After the last optimizer of a step: one update a step, also with several optimizers.
        self._hooks = [self._context.optimizers[-1].register_step_post_hook(lambda *_: self._update())]

    def on_trial_shutdown(self) -> None:
        _remove(self._hooks)

    def on_validation_start(self) -> None:
        self._swap()

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self._swap()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The models have the averaged weights inside."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state_dict(self) -> dict[str, Any]:
        return {"average": parallel.whole(self._average)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        params = self._params()
        self._average = [
            parallel.share_of(saved, param.detach()).to(param.device, copy=True)
            for saved, param in zip(state_dict["average"], params, strict=True)
        ]

    def _params(self) -> list[torch.Tensor]:
        return [param for model in self._context.models for param in model.parameters()]

    @torch.no_grad()
    def _update(self) -> None:
        torch._foreach_lerp_(self._average, [param.detach() for param in self._params()], 1 - self._decay)

    @torch.no_grad()
    def _swap(self) -> None:
        for average, param in zip(self._average, self._params(), strict=True):
            kept = param.detach().clone()
            param.copy_(average)
            average.copy_(kept)


class LearningRateMonitor(PyTorchCallback):
    """Report the learning rate with the training metrics: `lr`, or `lr_0`, `lr_1` … when there are several."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        rates = [float(group["lr"]) for optimizer in self._context.optimizers for group in optimizer.param_groups]
        for index, rate in enumerate(rates):
            avg_metrics["lr" if len(rates) == 1 else f"lr_{index}"] = rate


class GradientNormMonitor(PyTorchCallback):
    """Report the mean and the largest norm of the gradients (as the optimizer got them) with the training metrics."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self._norms: list[torch.Tensor] = []
        self._hooks: list[Any] = []

    def on_training_start(self) -> None:
        self._hooks = _before_steps(self._context, self._measure)

    def on_trial_shutdown(self) -> None:
        _remove(self._hooks)

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        if self._norms:
            norms = torch.stack(self._norms)
            self._norms = []
            avg_metrics["gradient_norm"], avg_metrics["gradient_norm_max"] = norms.mean().item(), norms.max().item()

    def _measure(self, optimizer: Any) -> None:
        params = (param for group in optimizer.param_groups for param in group["params"])
        gradients = [param.grad for param in params if param.grad is not None]
        if gradients:
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            self._norms.append(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)


class LRFinder(PyTorchCallback):
    """Raise the learning rate from batch to batch and see where the loss falls fastest: a short fit of its own.

    Give it to a fresh trial and fit `max_length=Batch(num_batches)`; it stops early when the loss explodes. Afterwards
    `suggestion` is the rate to try, and `history` has all (rate, loss) pairs.
    """

    def __init__(
        self,
        context: PyTorchTrialContext,
        *,
        min_lr: float = 1e-7,
        max_lr: float = 1.0,
        num_batches: int = 100,
        metric: str = "loss",
    ) -> None:
        if not 0 < min_lr < max_lr or num_batches < 2:
            raise UsageError("LRFinder needs 0 < min_lr < max_lr and at least 2 batches.")
        self._context = context
        self._min_lr = min_lr
        self._factor = (max_lr / min_lr) ** (1 / (num_batches - 1))
        self._metric = metric
        self._rates: list[float] = []
        self._hooks: list[Any] = []
        self.history: list[tuple[float, float]] = []

    def on_training_start(self) -> None:
        self._hooks = _before_steps(self._context, self._set_rate)

    def on_trial_shutdown(self) -> None:
        _remove(self._hooks)

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        for row in batch_metrics[: len(self._rates) - len(self.history)]:
            self.history.append((self._rates[len(self.history)], float(row[self._metric])))
        lowest = min((loss for _, loss in self.history if math.isfinite(loss)), default=math.inf)
        if not math.isfinite(self.history[-1][1]) or self.history[-1][1] > 4 * abs(lowest):
            self._context.set_stop_requested(True)

    @property
    def suggestion(self) -> float | None:
        """The rate at which the smoothed loss fell fastest."""
        smooth, points = 0.0, []
        for index, (rate, loss) in enumerate(self.history, start=1):
            if not math.isfinite(loss):
                break
            smooth = 0.9 * smooth + 0.1 * loss
            points.append((rate, smooth / (1 - 0.9**index)))
        slopes = [(later[1] - earlier[1], earlier[0]) for earlier, later in zip(points, points[1:], strict=False)]
        return min(slopes)[1] if slopes else None

    def _set_rate(self, optimizer: Any) -> None:
        step = self._context.current_train_batch() - self._context.get_initial_batch()
        rate = self._min_lr * self._factor**step
        if len(self._rates) <= step:
            self._rates.append(rate)
        for group in optimizer.param_groups:
            group["lr"] = rate


def _before_steps(context: PyTorchTrialContext, do: Callable[[Any], None]) -> list[Any]:
    """Call `do(optimizer)` before each optimizer step; returns what `_remove` takes."""
    return [optimizer.register_step_pre_hook(lambda stepping, *_: do(stepping)) for optimizer in context.optimizers]


def _remove(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()
    hooks.clear()
