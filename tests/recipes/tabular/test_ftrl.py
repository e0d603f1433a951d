"""FTRL follows the published rule, coordinate by coordinate."""

import math

import pytest
import torch

from stoker.errors import UsageError
from stoker.recipes.tabular import FTRL


def published(gradients: list[float], *, a: float, b: float, l1: float, l2: float) -> list[float]:
    """Algorithm 1 of McMahan et al. (2013), written down for one coordinate."""
    z = n = w = 0.0
    weights = []
    for g in gradients:
        sigma = (math.sqrt(n + g * g) - math.sqrt(n)) / a
        z += g - sigma * w
        n += g * g
        w = 0.0 if abs(z) <= l1 else -(z - math.copysign(l1, z)) / ((b + math.sqrt(n)) / a + l2)
        weights.append(w)
    return weights


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.5, 0.0), (0.3, 0.2)])
def test_weights_are_those_of_the_published_rule(l1: float, l2: float) -> None:
    gradients = torch.randn(30, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = FTRL([weights], lr=0.3, beta=0.7, l1=l1, l2=l2)

    seen = []
    for gradient in gradients:
        weights.grad = gradient.clone()
        optimizer.step()
        seen.append(weights.detach().clone())

    for column in range(4):
        wanted = published(gradients[:, column].tolist(), a=0.3, b=0.7, l1=l1, l2=l2)
        assert torch.stack(seen)[:, column].tolist() == pytest.approx(wanted, abs=1e-12)
    assert l1 == 0 or any(w == 0 for w in torch.stack(seen)[:, 0].tolist() + torch.stack(seen)[:, 1].tolist())


def test_sparse_gradients_give_what_dense_ones_do() -> None:
    dense, sparse = (torch.zeros(6, 2, requires_grad=True) for _ in range(2))
    optimizers = FTRL([dense], lr=0.1, l2=0.01), FTRL([sparse], lr=0.1, l2=0.01)
    chance = torch.Generator().manual_seed(1)

    for _ in range(10):
        rows = torch.randint(0, 5, (4,), generator=chance)  # the last row is never touched
        for weights, is_sparse in ((dense, False), (sparse, True)):
            loss = (torch.nn.functional.embedding(rows, weights, sparse=is_sparse) - 1.0).square().sum()
            loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    torch.testing.assert_close(sparse, dense)
    assert dense[5].tolist() == [0.0, 0.0]
    assert dense[:5].abs().sum() > 0


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="lr must be above 0"):
        FTRL([torch.zeros(1, requires_grad=True)], lr=0.0)
