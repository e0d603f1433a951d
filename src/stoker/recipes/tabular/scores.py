"""What people ask of a model: AUC, log-loss, accuracy, RMSE, MAE, and whether its probabilities can be believed."""

from dataclasses import dataclass
from typing import Any

import torch

from stoker.recipes.tabular.metadata import Task

_BINS = 10


@dataclass(frozen=True, slots=True)
class Reliability:
    """Predictions of about one probability: what was said, what came true, and how many they are."""

    confidence: float
    accuracy: float
    weight: float


def scores(task: Task, predicted: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> dict[str, float]:
    """All metrics of a task. `predicted`: [rows] values (regression), [rows, classes] probabilities (else)."""
    weight = torch.ones(len(target), dtype=torch.float64) if weight is None else weight.double()
    target = target.double()
    if task == "regression":
        error = predicted.double() - target
        return {"rmse": _mean(error.square(), weight) ** 0.5, "mae": _mean(error.abs(), weight)}
    classes = target.long()
    probabilities = predicted.double()
    chosen = probabilities.gather(1, classes[:, None])[:, 0]
    found = {
        "log_loss": _mean(-chosen.clamp(min=1e-15).log(), weight),
        "accuracy": _mean((probabilities.argmax(1) == classes).double(), weight),
        "auc": _auc_of_classes(probabilities, classes, weight),
        "ece": calibration_error(reliability(task, probabilities, classes, weight)),
    }
    return found


def auc(score: torch.Tensor, positive: torch.Tensor, weight: torch.Tensor | None = None) -> float:
    """The chance that a positive row is ranked above a negative one; ties count half. NaN when one kind is absent."""
    weight = torch.ones(len(score), dtype=torch.float64) if weight is None else weight.double()
    values, place = torch.unique(score.double(), return_inverse=True)
    above = torch.zeros(len(values), dtype=torch.float64).index_add_(0, place, weight * positive)
    below = torch.zeros(len(values), dtype=torch.float64).index_add_(0, place, weight * ~positive)
    wins = (above * (below.cumsum(0) - below / 2)).sum()
    return float(wins / (above.sum() * below.sum()))


def reliability(
    task: Task, probabilities: torch.Tensor, classes: torch.Tensor, weight: torch.Tensor
) -> tuple[Reliability, ...]:
    """Ten bins of equal width: of the positive class's probability, or of the likeliest of several classes'."""
    if task == "binary":
        said, came = probabilities[:, 1], (classes == 1).double()
    else:
        said, likeliest = probabilities.max(1)
        came = (likeliest == classes).double()
    place = (said * _BINS).long().clamp(0, _BINS - 1)

    def summed(values: torch.Tensor) -> list[float]:
        totals = torch.zeros(_BINS, dtype=torch.float64).index_add_(0, place, values)
        return [float(total) for total in totals]

    rows = zip(summed(weight), summed(weight * said), summed(weight * came), strict=True)
    return tuple(Reliability(confidence / w, accuracy / w, w) for w, confidence, accuracy in rows if w > 0)


def calibration_error(bins: tuple[Reliability, ...]) -> float:
    """ECE: by how much, on average, what was said differs from what came true."""
    total = sum(each.weight for each in bins)
    return sum(each.weight * abs(each.confidence - each.accuracy) for each in bins) / total if total else float("nan")


def roc_points(score: torch.Tensor, positive: torch.Tensor, *, points: int = 200) -> list[tuple[float, float]]:
    """(false positive rate, true positive rate) along the curve, thinned for drawing."""
    order = score.argsort(descending=True)
    hits = positive[order].double()
    rising, falling = hits.cumsum(0) / hits.sum(), (1 - hits).cumsum(0) / (1 - hits).sum()
    chosen = torch.linspace(0, len(hits) - 1, min(points, len(hits))).long()
    return [(0.0, 0.0), *((float(falling[at]), float(rising[at])) for at in chosen)]


def _auc_of_classes(probabilities: torch.Tensor, classes: torch.Tensor, weight: torch.Tensor) -> float:
    """Of the second of two classes; of several, the mean of each against the rest."""
    if probabilities.shape[1] == 2:
        return auc(probabilities[:, 1], classes == 1, weight)
    found = [auc(probabilities[:, each], classes == each, weight) for each in range(probabilities.shape[1])]
    known = [value for value in found if value == value]
    return sum(known) / len(known) if known else float("nan")


def _mean(values: torch.Tensor, weight: torch.Tensor) -> float:
    return float((values * weight).sum() / weight.sum())


def plain(value: Any) -> float:
    return round(float(value), 6)
