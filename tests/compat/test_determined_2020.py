"""Code of Determined's first years: trials whose trainer steps for them, and names that have since gone."""

import subprocess
from collections.abc import Callable

import pytest

from stoker.compat.determined import tuning
from stoker.compat.determined.checks import CHECKS, CheckFailedError
from stoker.errors import UsageError
from tests.compat.conftest import events

Script = Callable[..., "subprocess.CompletedProcess[str]"]

OLD_TRIAL = """
    import sys

    import determined as det
    import torch
    from determined.pytorch import ClipGradsL2Norm, DataLoader, LRScheduler, PyTorchTrial, reset_parameters
    from determined_common import check

    class Squares(PyTorchTrial):
        def __init__(self, context: det.TrialContext) -> None:
            self.context = context
            check.gt_eq(context.distributed.get_rank(), 0)
            assert context.get_data_config() == {"rows": 8} and context.env.trial_seed == 11
            context.experimental.wrap_reducer(lambda values: 1.0, name="ones")

        def build_model(self):
            model = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False))
            reset_parameters(model)
            torch.nn.init.zeros_(model[0].weight)
            return model

        def optimizer(self, model):
            return torch.optim.SGD(model.parameters(), lr=self.context.get_hparam("lr"))

        def create_lr_scheduler(self, optimizer):
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)
            return LRScheduler(schedule, step_mode=LRScheduler.StepMode.STEP_EVERY_BATCH)

        def build_callbacks(self):
            return {"clip": ClipGradsL2Norm(0.5)}

        def train_batch(self, batch, model, epoch_idx, batch_idx):
            return {"loss": (1 - model(batch)).pow(2).mean()}

        def evaluate_batch(self, batch, model):
            return {"weight": model[0].weight.item()}

        def build_training_data_loader(self):
            return DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 1)), batch_size=4, collate_fn=_stack)

        build_validation_data_loader = build_training_data_loader

    def _stack(rows):
        return torch.stack([row[0] for row in rows])

    if __name__ == "__main__":
        from stoker.compat.determined.legacy import train_class

        train_class(Squares)
"""


@pytest.mark.slow
def test_trial_with_a_model_of_its_own_method_is_stepped_for(script: Script, run_dir) -> None:
    trainer = {"max_length": {"batches": 4}, "validation_period": {"batches": 2}}
    run = run_dir(hparams={"lr": 0.1}, data={"rows": 8}, origin={"platform": "determined", "trainer": trainer})

    ran = script(OLD_TRIAL, run_dir=run)

    assert ran.returncode == 0, ran.stderr
    validations = [event for event in events(run) if event.get("group") == "validation"]
    # The gradient is 2 (1 - w), clipped to 0.5: each of the 4 steps moves the weight by 0.05.
    assert [round(event["values"]["weight"], 4) for event in validations] == [0.1, 0.2]
    assert validations[0]["values"]["ones"] == 1.0


@pytest.mark.slow
def test_script_tries_its_class_with_one_batch_here(script: Script) -> None:
    text = OLD_TRIAL.replace(
        "train_class(Squares)",
        'det.experimental.create(Squares, {"hyperparameters": {"lr": det.Constant(0.1)}}, local=True, test=True)',
    ).replace("assert context.get_data_config()", "assert True or context.get_data_config()")

    ran = script(text)

    assert ran.returncode == 0, ran.stderr
    assert "batch 1/1" in ran.stdout + ran.stderr


@pytest.mark.slow
def test_what_is_gone_says_so_at_import(script: Script) -> None:
    ran = script(
        """
        for name in ("estimator", "searcher", "tensorpack", "pytorch.deepspeed"):
            try:
                __import__(f"determined.{name}")
            except ImportError as error:
                print(error)
        from determined.common import util
        from determined.common.experimental.experiment import ExperimentReference, ExperimentState
        from determined.experimental import Checkpoint, Determined, ModelSortBy
        from determined.pytorch import dsat
        print(util.safe_load_yaml_with_exceptions("a: [1, 2]"))
        """
    )

    assert ran.stdout.count("removed from Determined") == 3, ran.stderr
    assert ran.stdout.endswith("{'a': [1, 2]}\n"), ran.stderr


def test_checks_say_what_is_not_so() -> None:
    CHECKS["gt_eq"](1, 1)
    CHECKS["check_eq"](1, 1, "same")
    CHECKS["check_none"](None)
    with pytest.raises(CheckFailedError, match="2 is not less than 1: order"):
        CHECKS["lt"](2, 1, "order")


def test_overwritten_settings_reach_the_arguments_and_the_file(tmp_path) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{"gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 0}}')
    words = ["--deepspeed", str(file), "--per_device_train_batch_size", "4"]
    hparams = {"overwrite_deepspeed_args": {"train_micro_batch_size_per_gpu": 16, "zero_optimization": {"stage": 2}}}

    assert tuning.get_hf_args_with_overwrites(words, {}) is words
    assert tuning.get_hf_args_with_overwrites(words, hparams)[-1] == "16"
    assert tuning.get_ds_config_from_hparams({"deepspeed_config": file})["zero_optimization"] == {"stage": 2}
    with pytest.raises(UsageError, match="no --deepspeed FILE"):
        tuning.get_hf_args_with_overwrites([], hparams)
