"""CUDA graphs leave the very gradients, losses and random draws that the same steps have without them."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from stoker.recipes.text import TextSettings, TextTrial, fine_tune
from stoker.recipes.text.graphs import GraphedGradients


class Replayed:
    """What a graph does, on a CPU: gradients always at the same place, overwritten by each batch."""

    def __init__(self, trial: TextTrial) -> None:
        self._params = list(trial.model.parameters())
        self._loss_of = trial._loss
        for param in self._params:
            param.grad = torch.full_like(param, torch.nan)

    def prepare(self, batch: dict[str, torch.Tensor]) -> None:
        pass

    def __call__(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss = self._loss_of(batch)
        for param, made in zip(self._params, torch.autograd.grad(loss, self._params), strict=True):
            assert param.grad is not None
            param.grad.copy_(made)
        return loss.detach()

    def release(self) -> None:
        for param in self._params:
            param.grad = None


class Refusing(Replayed):
    def __call__(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nand so on")


@pytest.mark.parametrize("graphs", [Replayed, Refusing])
def test_steps_by_graphs_or_without_those_a_gpu_refused_learn_the_same(
    graphs: Any, encoder_dir: Path, reviews_csv: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = TextSettings(str(reviews_csv), str(encoder_dir), learning_rate=1e-3, batch_size=16)
    plain = fine_tune(settings, progress=False)
    monkeypatch.setattr(TextTrial, "_graphed", lambda self: graphs(self))

    with caplog.at_level(logging.WARNING):
        found = fine_tune(settings, progress=False)

    assert found.metrics["loss"] == plain.metrics["loss"]
    for mine, theirs in zip(found.encoder.model.parameters(), plain.encoder.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    told = [record.message for record in caplog.records if "CUDA graphs" in record.message]
    assert (graphs is Refusing) == (len(told) == 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
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
