"""Keep the weights of the best validation, so that they and not the last ones are exported."""

import math
from typing import Any

import torch
from torch import nn

from stoker import pytorch


class BestWeights(pytorch.PyTorchCallback):
    """The weights and metrics of the best validation, and the course of all of them; also over a restart.

    The weights are copied to the host: a GPU may have no room for them twice.
    """

    def __init__(self, net: nn.Module, *, metric: str = "loss", smaller_is_better: bool = True) -> None:
        self._net = net
        self._metric = metric
        self._sign = 1.0 if smaller_is_better else -1.0
        self._best: dict[str, torch.Tensor] = {}
        self._score = math.inf
        self.metrics: dict[str, Any] = {}
        self.history: list[dict[str, float]] = []

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.history.append({name: float(value) for name, value in metrics.items() if isinstance(value, int | float)})
        score = self._sign * float(metrics[self._metric])
        score = math.inf if math.isnan(score) else score  # any number is better
        if not self._best or score < self._score:
            self._score = score
            self.metrics = dict(metrics)
            self._best = {name: value.detach().cpu().clone() for name, value in self._net.state_dict().items()}

    def put_in_place(self) -> None:
        if self._best:
            self._net.load_state_dict(self._best)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best, "score": self._score, "metrics": self.metrics, "history": self.history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._best, self._score = dict(state_dict["best"]), float(state_dict["score"])
        self.metrics, self.history = dict(state_dict["metrics"]), list(state_dict["history"])
