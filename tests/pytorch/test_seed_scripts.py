"""The two scripts that proposed the Trainer API run: only their import is changed, and their slips are mended."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.pytorch.trials import checkpoint_steps, events, steps

SCRIPTS = Path(__file__).parent / "seed_scripts"


def test_the_scripts_train_and_predict(run_dir: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    training = run_dir(trial_id=777, hparams={"global_batch_size": 16, "learning_rate": 0.1})

    runpy.run_path(str(SCRIPTS / "train.py"), run_name="__main__")
    run_dir(trial_id=778, data={"trial_id": 777, "batch_size": 64})
    runpy.run_path(str(SCRIPTS / "batch_inference.py"), run_name="__main__")

    losses = [event["values"]["loss"] for event in events(training, "metric", "validation")]
    assert steps(training, "validation") == [4 * n for n in range(1, 11)]
    assert checkpoint_steps(training) == [4 * n for n in range(1, 11)]
    assert losses == sorted(losses, reverse=True)
    assert len(list(training.glob("checkpoints/step-*"))) == 1  # the last is the best and the latest
    predictions = torch.load(tmp_path / "predictions.pt")
    assert predictions.shape == (64, 1)
    assert (1 - predictions).pow(2).mean().item() == pytest.approx(losses[-1], rel=1e-4)


BARE = """
import sys

sys.modules.update(dict.fromkeys({absent}))  # None: importing it fails
import torch
from torch import nn
from stoker import pytorch

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(nn.Linear(1, 1))
        self.opt = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))
    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.model(batch[0]).pow(2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.opt)
        return loss
    def evaluate_batch(self, batch, batch_idx):
        return {{"loss": self.model(batch[0]).pow(2).mean()}}

def train(length, latest_checkpoint=None):
    context = pytorch.init()
    data = pytorch.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 1)), 2, shuffle=True)
    length = pytorch.Batch(length)
    context.fit(context.build_trial(Trial), data, data, max_length=length, latest_checkpoint=latest_checkpoint)
    try:
        context.get_tensorboard_writer()
    except Exception as error:
        assert "pip install tensorboard" in str(error), error
    return context.run.latest_checkpoint

train(5, train(3))
print("trained")
"""
ABSENT = {"pydantic", "typer", "yaml", "platformdirs", "safetensors", "tensorboard", "numpy", "rich", "fsspec"}


@pytest.mark.slow
def test_torch_is_all_that_training_and_resuming_need(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BARE.format(absent=ABSENT)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert result.stdout.splitlines()[-1:] == ["trained"], result.stderr
    shutil.rmtree(tmp_path / "stoker-runs")
