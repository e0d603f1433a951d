"""CUDA graphs leave the very gradients, losses and random draws that the same steps have without them."""

import pytest
import torch
from torch import nn

from stoker.recipes.text.graphs import GraphedGradients

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_graphs_of_several_shapes_give_what_plain_steps_give() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 32), nn.Dropout(0.5), nn.Linear(32, 2)).cuda()
    unused = nn.Linear(2, 2).cuda()
    both = nn.ModuleList([model, unused])

    def loss_of(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch["ids"]).mean(1), batch["labels"])

    def batch(length: int, seed: int) -> dict[str, torch.Tensor]:
        chance = torch.Generator("cuda").manual_seed(seed)
        ids = torch.randint(0, 50, (4, length), generator=chance, device="cuda")
        return {"ids": ids, "labels": ids[:, 0] % 2}

    graphed = GraphedGradients(both, loss_of)
    batches = [batch(length, seed) for seed, length in enumerate((16, 8, 16, 8, 24))]
    torch.cuda.manual_seed(3)
    found = []
    for each in batches:
        loss = graphed(each).item()
        found.append((loss, [param.grad.clone() for param in model.parameters() if param.grad is not None]))
    assert all(param.grad is None for param in unused.parameters())

    graphed.release()
    torch.cuda.manual_seed(3)
    for (loss, gradients), each in zip(found, batches, strict=True):
        model.zero_grad()
        plain = loss_of(each)
        plain.backward()
        assert loss == pytest.approx(plain.item(), abs=1e-6)
        for param, gradient in zip(model.parameters(), gradients, strict=True):
            torch.testing.assert_close(param.grad, gradient)
