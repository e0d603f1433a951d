"""The metrics are those of scikit-learn."""

import pytest
import torch
from sklearn import metrics

from stoker.recipes.tabular.scores import auc, calibration_error, reliability, scores

CHANCE = torch.Generator().manual_seed(0)
ROWS = 500


def probabilities(classes: int) -> torch.Tensor:
    return torch.randn(ROWS, classes, generator=CHANCE, dtype=torch.float64).softmax(1)


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_of_two_classes(weighted: bool) -> None:
    said, target = probabilities(2), torch.randint(0, 2, (ROWS,), generator=CHANCE).float()
    weight = torch.rand(ROWS, generator=CHANCE) if weighted else None

    found = scores("binary", said, target, weight)

    assert found["auc"] == pytest.approx(metrics.roc_auc_score(target, said[:, 1], sample_weight=weight))
    assert found["log_loss"] == pytest.approx(metrics.log_loss(target, said, sample_weight=weight))
    assert found["accuracy"] == pytest.approx(
        metrics.accuracy_score(target, said.argmax(1), sample_weight=weight), abs=1e-6
    )


def test_scores_of_many_classes() -> None:
    said, target = probabilities(4), torch.randint(0, 4, (ROWS,), generator=CHANCE).float()

    found = scores("multiclass", said, target, None)

    assert found["auc"] == pytest.approx(metrics.roc_auc_score(target, said, multi_class="ovr"))
    assert found["log_loss"] == pytest.approx(metrics.log_loss(target, said))


def test_scores_of_a_regression() -> None:
    said, target = torch.randn(ROWS, generator=CHANCE), torch.randn(ROWS, generator=CHANCE)

    found = scores("regression", said, target, None)

    assert found["rmse"] == pytest.approx(metrics.root_mean_squared_error(target, said), rel=1e-6)
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(target, said), rel=1e-6)


def test_calibration_error_is_the_distance_between_said_and_come_true() -> None:
    said = torch.tensor([0.9] * 10 + [0.2] * 10, dtype=torch.float64)
    came = torch.tensor([1] * 5 + [0] * 5 + [1] * 2 + [0] * 8)

    bins = reliability("binary", torch.stack([1 - said, said], 1), came, torch.ones(20, dtype=torch.float64))

    assert [(round(b.confidence, 3), b.accuracy, b.weight) for b in bins] == [(0.2, 0.2, 10), (0.9, 0.5, 10)]
    assert calibration_error(bins) == pytest.approx(0.2)


def test_auc_counts_ties_half_and_knows_when_there_is_none() -> None:
    assert auc(torch.tensor([0.5, 0.5]), torch.tensor([True, False])) == 0.5
    assert str(auc(torch.tensor([0.5, 0.7]), torch.tensor([True, True]))) == "nan"
