"""The weights of the best validation are those that stay."""

import math

import pytest
import torch
from torch import nn

from stoker.recipes.best_weights import BestWeights


def validated(best: BestWeights, net: nn.Linear, values: list[float], *, metric: str) -> None:
    """Validation after validation; the net's bias is the number of each."""
    for number, value in enumerate(values):
        with torch.no_grad():
            net.bias.fill_(float(number))
        best.on_validation_end({metric: value, "confusion": torch.eye(2)})


@pytest.mark.parametrize(
    ("metric", "smaller", "values", "chosen"),
    [
        ("loss", True, [0.5, 0.2, 0.3], 1),
        ("f1", False, [0.5, 0.9, 0.6], 1),
        ("loss", True, [math.nan, 0.9, math.nan], 1),
        ("f1", False, [0.5, 0.5], 0),
    ],
)
def test_the_best_validation_is_kept(metric: str, smaller: bool, values: list[float], chosen: int) -> None:
    net = nn.Linear(1, 1)
    best = BestWeights(net, metric=metric, smaller_is_better=smaller)

    validated(best, net, values, metric=metric)
    best.put_in_place()

    assert net.bias.item() == chosen
    assert best.metrics[metric] == values[chosen]
    assert len(best.history) == len(values)
    assert "confusion" not in best.history[0]


def test_the_best_validation_is_known_after_a_restart() -> None:
    before, after = nn.Linear(1, 1), nn.Linear(1, 1)
    first, second = BestWeights(before), BestWeights(after)
    validated(first, before, [0.1, 0.4], metric="loss")

    second.load_state_dict(first.state_dict())
    second.on_validation_end({"loss": 0.2})
    second.put_in_place()

    assert after.bias.item() == 0
    assert [row["loss"] for row in second.history] == [0.1, 0.4, 0.2]
