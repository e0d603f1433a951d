"""Models of tables: linear, deep, wide and deep, and a modern one. Each takes (numbers, codes) and gives logits,
or for a regression the target in standard deviations from its mean.

The modern one is an MLP whose numbers are first embedded by periodic functions ("PLR", Gorishniy et al., "On
Embeddings for Numerical Features in Tabular Deep Learning", 2022). It was chosen because it is the simplest model
that keeps up with boosted trees there: it bends with thresholds and bumps in single columns, on which plain MLPs
fail, at a few times their cost.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from stoker.errors import UsageError
from stoker.recipes.tabular.columns import FIRST
from stoker.recipes.tabular.features import FeatureLayer, Features
from stoker.recipes.tabular.lookup import look_up, sum_up

Build = Callable[..., nn.Module]  # (features, hidden=, dropout=) -> module
B = TypeVar("B", bound=Build)


def own_model(build: B) -> B:
    """Mark a function of yours that builds models. A bundle names it, and what is not so marked is not called."""
    build.builds_models = True  # type: ignore[attr-defined]
    return build


def embedding_size(num_values: int) -> int:
    """Grows slowly with the vocabulary: 2 values 3, 40 values 13, 10,000 values 50."""
    return min(50, math.ceil(1.6 * math.pow(num_values, 0.56)))


class Wide(nn.Module):
    """A weight for every bucket, category and cross, and one for each number; all begin at 0."""

    def __init__(self, layer: FeatureLayer, num_outputs: int) -> None:
        super().__init__()
        self.num_wide = layer.num_wide
        # One table, because the optimizer's few operations on it cost the same for one row as for a thousand. Behind
        # the rows of the wide columns come those of the numbers, and the bias.
        self.table = nn.Parameter(torch.zeros(layer.num_wide + layer.num_dense + 1, num_outputs))

    def forward(self, dense: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
        summed = sum_up(self.table, wide) if wide.shape[1] else 0.0
        return summed + torch.addmm(self.table[-1], dense, self.table[self.num_wide : -1])


class Embeddings(nn.Module):
    """Codes to vectors, side by side. "Missing" and "unseen" begin at 0: what was never learnt says nothing."""

    def __init__(self, layer: FeatureLayer) -> None:
        super().__init__()
        given = {item.name: item.embedding for item in layer.features.metadata.categorical}
        sizes = layer.features.code_sizes
        widths = {name: given.get(name) or embedding_size(size) for name, size in sizes.items()}
        self.tables = nn.ParameterList(_embedding(size, widths[name]) for name, size in sizes.items())
        self.width = sum(widths.values())

    def forward(self, dense: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        return torch.cat([dense, *(look_up(table, codes[:, at]) for at, table in enumerate(self.tables))], dim=1)


def _embedding(size: int, width: int) -> nn.Parameter:
    table = torch.randn(size, width) * 0.1
    table[:FIRST] = 0.0
    return nn.Parameter(table)


class LinearModel(nn.Module):
    def __init__(self, features: Features) -> None:
        super().__init__()
        self.layer = FeatureLayer(features)
        self.wide = Wide(self.layer, features.metadata.num_outputs)

    def forward(self, numbers: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        inputs = self.layer(numbers, codes)
        return self.wide(inputs.dense, inputs.wide)  # type: ignore[no-any-return]


class DeepModel(nn.Module):
    """Embeddings and numbers through hidden layers; with `wide`, a linear model's answer is added."""

    def __init__(self, features: Features, *, hidden: Sequence[int], dropout: float, wide: bool) -> None:
        super().__init__()
        self.layer = FeatureLayer(features)
        self.embed = Embeddings(self.layer)
        outputs = features.metadata.num_outputs
        self.hidden = mlp(self.layer.num_dense + self.embed.width, hidden, outputs, dropout=dropout)
        self.wide = Wide(self.layer, outputs) if wide else None

    def forward(self, numbers: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        inputs = self.layer(numbers, codes)
        deep: torch.Tensor = self.hidden(self.embed(inputs.dense, inputs.codes))
        return deep if self.wide is None else deep + self.wide(inputs.dense, inputs.wide)


class Periodic(nn.Module):
    """A number as sines and cosines of learnt frequencies, mixed: the PLR embedding, one for each column."""

    def __init__(self, columns: int, *, frequencies: int = 24, width: int = 8, sigma: float = 0.3) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(torch.randn(columns, frequencies) * sigma)
        bound = 1 / math.sqrt(2 * frequencies)
        self.weight = nn.Parameter(torch.empty(columns, 2 * frequencies, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(columns, 1, width))

    def forward(self, dense: torch.Tensor) -> torch.Tensor:
        angle = 2 * math.pi * dense.t()[:, :, None] * self.frequencies[:, None, :]
        waves = torch.cat([angle.cos(), angle.sin()], dim=2)  # columns, rows, waves
        mixed = torch.baddbmm(self.bias, waves, self.weight).relu()
        return mixed.permute(1, 0, 2).flatten(1)


class PeriodicModel(nn.Module):
    def __init__(self, features: Features, *, hidden: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.layer = FeatureLayer(features)
        self.columns = len(features.numeric)
        self.periodic = Periodic(self.columns) if self.columns else None
        self.embed = Embeddings(self.layer)
        width = self.layer.num_dense + self.embed.width + (8 * self.columns)
        self.hidden = mlp(width, hidden, features.metadata.num_outputs, dropout=dropout)

    def forward(self, numbers: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        inputs = self.layer(numbers, codes)
        embedded = self.embed(inputs.dense, inputs.codes)
        if self.periodic is not None:
            embedded = torch.cat([embedded, self.periodic(inputs.dense[:, : self.columns])], dim=1)
        return self.hidden(embedded)  # type: ignore[no-any-return]


def mlp(width: int, hidden: Sequence[int], outputs: int, *, dropout: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def linear(features: Features, **_: Any) -> nn.Module:
    return LinearModel(features)


def deep(features: Features, *, hidden: Sequence[int] = (64, 32), dropout: float = 0.0, **_: Any) -> nn.Module:
    return DeepModel(features, hidden=hidden, dropout=dropout, wide=False)


def wide_deep(features: Features, *, hidden: Sequence[int] = (64, 32), dropout: float = 0.0, **_: Any) -> nn.Module:
    return DeepModel(features, hidden=hidden, dropout=dropout, wide=True)


def periodic(features: Features, *, hidden: Sequence[int] = (64, 32), dropout: float = 0.0, **_: Any) -> nn.Module:
    return PeriodicModel(features, hidden=hidden, dropout=dropout)


def DNNLinearCombinedClassifier(features: Features, **settings: Any) -> nn.Module:  # noqa: N802 - the sample's name
    """Wide and deep, for classes."""
    _expect(features, "DNNLinearCombinedClassifier", is_classifier=True)
    return wide_deep(features, **settings)


def DNNLinearCombinedRegressor(features: Features, **settings: Any) -> nn.Module:  # noqa: N802 - the sample's name
    """Wide and deep, for a number."""
    _expect(features, "DNNLinearCombinedRegressor", is_classifier=False)
    return wide_deep(features, **settings)


MODELS: dict[str, Build] = {
    "linear": linear,
    "deep": deep,
    "wide_deep": wide_deep,
    "periodic": periodic,
    "DNNLinearCombinedClassifier": DNNLinearCombinedClassifier,
    "DNNLinearCombinedRegressor": DNNLinearCombinedRegressor,
}


def build_named(name: str) -> Build:
    if name not in MODELS:
        raise UsageError(f"No model {name!r}. There are: {', '.join(MODELS)}; or give a function of your own.")
    return MODELS[name]


def _expect(features: Features, name: str, *, is_classifier: bool) -> None:
    task = features.metadata.task
    if (task != "regression") != is_classifier:
        other = name.replace("Classifier", "Regressor") if is_classifier else name.replace("Regressor", "Classifier")
        raise UsageError(f"{name}: the metadata's task is {task!r}. Use {other}.")
