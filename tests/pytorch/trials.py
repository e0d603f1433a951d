"""Small trials and data that the tests share."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stoker import pytorch


class Ones(torch.utils.data.Dataset):
    """Data and label are 1."""

    def __init__(self, length: int = 64) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(1), torch.ones(1)


class Numbers(torch.utils.data.Dataset):
    """Sample i is the number i."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index)])


class OneVar(pytorch.PyTorchTrial):
    """One weight, zero at first, that learns to be 1: w = 1 - (1 - 2 lr)^n after n batches."""

    def __init__(self, context: pytorch.PyTorchTrialContext, callbacks: dict[str, Any] | None = None) -> None:
        self.context = context
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        self.model = context.wrap_model(model)
        lr = context.hparams.get("lr", 0.001)
        self.opt = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=lr))
        self.callbacks = callbacks or {}
        self.seen: list[list[float]] = []
        self.weights: list[float] = []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        data, labels = batch
        loss = nn.functional.mse_loss(self.model(data), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.opt)
        self.weights.append(self.model.weight.item())
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        data, labels = batch
        return {"loss": nn.functional.mse_loss(self.model(data), labels)}

    def build_training_data_loader(self) -> Any:
        return pytorch.DataLoader(Ones(), batch_size=1)

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(Ones(4), batch_size=2)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return self.callbacks


class Watched(OneVar):
    """Learns a little from Numbers, and remembers which samples it saw."""

    def __init__(self, context: pytorch.PyTorchTrialContext, length: int = 7, batch_size: int = 2, **more: Any) -> None:
        super().__init__(context, **more)
        self.length = length
        self.batch_size = batch_size
        self.trace: list[str] = []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.trace.append(f"tb({epoch_idx},{batch_idx})")
        self.seen.append(batch.flatten().tolist())
        loss = self.model(batch).pow(2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.opt)
        return {"loss": loss, "n": len(batch)}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        self.trace.append(f"eb({batch_idx})")
        return {"loss": self.model(batch).pow(2).mean(), "n": float(len(batch))}

    def build_training_data_loader(self) -> Any:
        return pytorch.DataLoader(Numbers(self.length), batch_size=self.batch_size)

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(Numbers(5), batch_size=2)


def events(run_dir: Any, kind: str, group: str | None = None) -> list[dict[str, Any]]:
    """What a run wrote to events.jsonl."""
    path = Path(run_dir) / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    return [event for event in found if event["type"] == kind and group in (None, event.get("group"))]


def checkpoint_steps(run_dir: Any) -> list[int]:
    return [event["step"] for event in events(run_dir, "checkpoint")]


def steps(run_dir: Any, group: str) -> list[int]:
    return [event["step"] for event in events(run_dir, "metric", group)]
