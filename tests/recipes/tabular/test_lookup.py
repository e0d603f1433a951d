"""Looking up and summing up give torch's own values and gradients."""

import pytest
import torch

from stoker.recipes.tabular.lookup import look_up, sum_up

CHANCE = torch.Generator().manual_seed(0)


@pytest.mark.parametrize("size", [7, 2000])
def test_look_up_is_embedding(size: int) -> None:
    rows = torch.randint(0, 7, (50,), generator=CHANCE)
    ours, theirs = (torch.ones(size, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    pull = torch.randn(50, 3, generator=CHANCE, dtype=torch.float64)

    found, wanted = look_up(ours, rows), torch.nn.functional.embedding(rows, theirs)
    (found * pull).sum().backward()
    (wanted * pull).sum().backward()

    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("outputs", [1, 3])
def test_sum_up_is_embedding_bag(outputs: int) -> None:
    rows = torch.randint(0, 20, (50, 4), generator=CHANCE)
    start = torch.randn(20, outputs, generator=CHANCE)
    ours, theirs = (start.clone().requires_grad_() for _ in range(2))
    pull = torch.randn(50, outputs, generator=CHANCE)

    found, wanted = sum_up(ours, rows), torch.nn.functional.embedding_bag(rows, theirs, mode="sum")
    (found * pull).sum().backward()
    (wanted * pull).sum().backward()

    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(ours.grad, theirs.grad)
