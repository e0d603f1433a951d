"""Trials out of checkpoints, with and without training around."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker import pytorch
from stoker.errors import NotFoundError, UsageError
from stoker.pytorch import Batch
from tests.pytorch.trials import OneVar, events


class Sized(OneVar):
    """Its model depends on hyperparameters."""

    def __init__(self, context: Any, scale: float = 1.0) -> None:
        self.context = context
        self.scale = scale
        self.callbacks = {}
        self.weights = []
        self.model = context.wrap_model(torch.nn.Linear(1, context.get_hparam("width"), bias=False))
        self.opt = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = self.model(batch[0]).pow(2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.opt)
        return loss

    def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
        return {"loss": self.model(batch[0]).mean()}


@pytest.fixture
def trained(run_dir: Any) -> tuple[str, torch.Tensor]:
    """A checkpoint, and the weights in it."""
    folder = run_dir(hparams={"width": 3})
    context = pytorch.init()
    trial = context.build_trial(Sized)
    context.fit(trial, max_length=Batch(2))
    return events(folder, "checkpoint")[0]["path"], trial.model.weight.detach().clone()


def test_a_trial_is_loaded_with_its_hyperparameters_and_its_class_found(trained: Any) -> None:
    path, weights = trained

    for arguments in ({}, {"trial_class": Sized}, {"torch_load_kwargs": {"weights_only": False}}):
        trial = pytorch.load_trial_from_checkpoint_path(path, **arguments)

        assert isinstance(trial, Sized)
        assert torch.equal(trial.model.weight, weights)
        assert not trial.model.training
    assert pytorch.load_trial_from_checkpoint_path(path, trial_kwargs={"scale": 2.0}).scale == 2.0


@pytest.mark.parametrize("how", ["path", "checkpoint", "trial_id"])
def test_the_trainer_s_context_loads_by_path_or_by_trial(how: str, trained: Any, run_dir: Any) -> None:
    path, weights = trained
    run_dir(trial_id=8, data={"trial_id": 7})
    context = pytorch.init()

    value = context.config_data["trial_id"] if how == "trial_id" else path
    trial = context.load_checkpoint_trial(Sized, **{how: value})

    assert torch.equal(trial.model.weight, weights)
    assert context.predict(trial, pytorch.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 1)), 2)).shape == (
        4,
        3,
    )


def test_the_newest_checkpoint_of_a_trial_is_found_among_its_attempts(run_dir: Any) -> None:
    for steps in (2, 5, 3):
        run_dir(hparams={"width": steps}, trial_id=20)
        context = pytorch.init()
        context.fit(context.build_trial(Sized), max_length=Batch(steps))
    run_dir(trial_id=21)

    trial = pytorch.init().load_checkpoint_trial(Sized, trial_id=20)

    assert trial.model.out_features == 5


def test_what_is_not_there_is_said(trained: Any, run_dir: Any) -> None:
    run_dir()
    context = pytorch.init()

    with pytest.raises(NotFoundError, match="No checkpoint of trial 99 under"):
        context.load_checkpoint_trial(Sized, trial_id=99)
    with pytest.raises(UsageError, match="just one of them"):
        context.load_checkpoint_trial(Sized)
    with pytest.raises(UsageError, match="just one of them"):
        context.load_checkpoint_trial(Sized, trial_id=1, path=trained[0])


SCRIPT = """
import torch
from stoker import pytorch

class InScript(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        self.context = context
    def train_batch(self, batch, epoch_idx, batch_idx):
        return torch.zeros(())

if __name__ == "__main__":
    context = pytorch.init()
    data = pytorch.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 1)), 2)
    context.fit(context.build_trial(InScript), data, max_length=pytorch.Batch(1), progress=False)
    print(context.run.latest_checkpoint)
"""


@pytest.mark.slow
def test_a_class_that_was_defined_in_a_script_is_found_in_its_file(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    path = subprocess.check_output([sys.executable, script], cwd=tmp_path, text=True).strip()

    trial = pytorch.load_trial_from_checkpoint_path(path)

    assert type(trial).__name__ == "InScript"
    script.unlink()
    with pytest.raises(UsageError, match=r"train\.py, which is not there. Pass trial_class=MyTrial"):
        pytorch.load_trial_from_checkpoint_path(path)


def test_a_class_in_a_module_that_is_gone_is_said(trained: Any) -> None:
    description = Path(trained[0]) / "checkpoint.json"
    description.write_text(description.read_text().replace("test_loading", "nowhere").replace(".py", ".gone"))

    with pytest.raises(UsageError, match="cannot be imported .*PYTHONPATH, or pass trial_class"):
        pytorch.load_trial_from_checkpoint_path(trained[0])
