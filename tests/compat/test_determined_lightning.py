"""LightningAdapter: modules of Lightning's first years, trained by a trial's loop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.host.home import Home
from tests.compat.conftest import Ran, events, follow_experiment
from tests.e2e.conftest import home

__all__ = ["home"]  # a fixture, for the tests here

Script = Callable[..., Ran]
MakeRun = Callable[..., Path]

# In the style of 2021: a LightningModule, and beside it a trial with the two loaders.
MODEL_DEF = """
import pytorch_lightning as pl
import torch
import torchmetrics
from determined.pytorch import DataLoader, PyTorchTrialContext
from determined.pytorch.lightning import LightningAdapter


class Ones(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.ones(1), torch.ones(1)


class OneWeight(pl.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.save_hyperparameters()
        self.model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(self.model.weight)
        self.seen = torchmetrics.MeanMetric()
        self.hooks = []

    def forward(self, x):
        return self.model(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = (y - self(x)).pow(2).mean()
        if batch_idx % 2 == 1:
            self.log("odd_loss", loss, on_step=True, prog_bar=True)
        return {"loss": loss, "epoch": float(self.current_epoch), "rate": self.optimizer.param_groups[0]["lr"]}

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.seen.update(self(x).mean())
        self.log("val_loss", (y - self(x)).pow(2).mean())
        return {"x": x}

    def validation_epoch_end(self, outputs):
        self.log_dict({"rows": sum(len(one["x"]) for one in outputs), "seen": self.seen.compute()})
        self.seen.reset()

    def configure_optimizers(self):
        self.optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.5)
        return {"optimizer": self.optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "INTERVAL"}}

    def on_train_epoch_start(self):
        self.hooks.append(self.global_step)

    def on_save_checkpoint(self, checkpoint):
        checkpoint["hooks"] = self.hooks

    def on_load_checkpoint(self, checkpoint):
        self.hooks = checkpoint["hooks"]
        print("went on after epochs at", self.hooks)


class OneWeightTrial(LightningAdapter):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        super().__init__(context, lightning_module=OneWeight(lr=context.get_hparam("lr")))

    def build_training_data_loader(self):
        return DataLoader(Ones(), batch_size=self.context.get_per_slot_batch_size())

    build_validation_data_loader = build_training_data_loader
"""
TRAIN = "import sys; from stoker.compat.determined.__main__ import main; sys.exit(main(sys.argv[1:]))"


def _settings(batches: int, **more: Any) -> dict[str, Any]:
    trainer = {"max_length": {"batches": batches}, "reporting_period": {"batches": 2}, **more}
    return {"hparams": {"lr": 0.1, "global_batch_size": 4}, "origin": {"platform": "determined", "trainer": trainer}}


def _reported(run: Path, group: str) -> list[dict[str, Any]]:
    return [event["values"] for event in events(run) if event.get("group") == group]


@pytest.mark.slow
def test_module_is_trained_logged_and_gone_on_with(script: Script, run_dir: MakeRun, tmp_path: Path) -> None:
    (tmp_path / "model_def.py").write_text(MODEL_DEF.replace("INTERVAL", "epoch"))
    first = run_dir(**_settings(4))

    ran = script(TRAIN, "--trial", "model_def:OneWeightTrial", run_dir=first)

    assert ran.returncode == 0, ran.stderr
    training, validation = _reported(first, "training"), _reported(first, "validation")
    # Two steps of 0.1 and two of 0.05 towards 1: what is left of the way is 0.8, 0.64, then 0.576, 0.5184.
    assert [one["loss"] for one in training] == pytest.approx([(1 + 0.64) / 2, (0.4096 + 0.331776) / 2])
    assert [one["odd_loss"] for one in training] == pytest.approx([0.64, 0.331776])
    assert [one["rate"] for one in training] == pytest.approx([0.1, 0.05])
    assert [one["epoch"] for one in training] == [0, 1]
    assert validation[-1]["val_loss"] == pytest.approx(0.5184**2)
    assert validation[-1]["rows"] == 8
    assert validation[-1]["seen"] == pytest.approx(1 - 0.5184)

    saved = [event["path"] for event in events(first) if event["type"] == "checkpoint"]
    second = run_dir(**_settings(6), latest_checkpoint=saved[-1])
    ran = script(TRAIN, "--trial", "model_def:OneWeightTrial", run_dir=second)

    assert ran.returncode == 0, ran.stderr
    assert "went on after epochs at [0, 2]" in ran.stdout
    assert [one["rate"] for one in _reported(second, "training")] == pytest.approx([0.025])


TWO_OPTIMIZERS = """
import pytorch_lightning as pl
import torch
from determined.pytorch import DataLoader
from determined.pytorch.lightning import LightningAdapter


class TwoWeights(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Parameter(torch.zeros(1))
        self.second = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch, batch_idx, optimizer_idx):
        assert self.second.requires_grad == (optimizer_idx == 1)
        return {"loss": ((self.first + self.second) * batch).mean() * (optimizer_idx + 1)}

    def validation_step(self, batch, batch_idx):
        return {"first": self.first, "second": self.second}

    def configure_optimizers(self):
        rates = torch.optim.SGD([self.first], lr=1.0), torch.optim.SGD([self.second], lr=1.0)
        return list(rates), [torch.optim.lr_scheduler.StepLR(rates[0], step_size=100)]


class TwoWeightsTrial(LightningAdapter):
    def __init__(self, context):
        super().__init__(context, TwoWeights())

    def build_training_data_loader(self):
        return DataLoader(torch.tensor([[0.0], [2.0], [0.0], [2.0]]), batch_size=1)

    build_validation_data_loader = build_training_data_loader
"""
CONFIG = """
name: two
entrypoint: model_def:TwoWeightsTrial
hyperparameters: {global_batch_size: 2}
resources: {slots_per_trial: 2}
searcher: {name: single, metric: first, max_length: {batches: 2}}
max_restarts: 0
"""


@pytest.mark.slow
def test_several_optimizers_learn_in_turn_from_all_ranks_batches(tmp_path: Path, home: Home) -> None:
    ran = follow_experiment(tmp_path / "code", {"model_def.py": TWO_OPTIMIZERS, "const.yaml": CONFIG})

    assert "SUCCEEDED" in ran.out + ran.err, ran.out + ran.err
    # One rank has the zeros and one the twos: only their mean moves the weights by 1 a batch, and by 2 a batch.
    assert "validation  first -2  second -4" in ran.out
    assert "opt0_loss" in ran.out
    assert "opt1_loss" in ran.out
