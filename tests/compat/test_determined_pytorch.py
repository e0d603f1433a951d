"""Trials, trainers and checkpoints of Determined's, by the names it had."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from safetensors.torch import save_file

from stoker.pytorch.tree import flatten
from tests.compat.conftest import Ran, events

Script = Callable[..., Ran]
MakeRun = Callable[..., Path]

# In the style of 2020: hyperparameters through the context, loaders as methods, no main.
MODEL_DEF = """
import torch
from torch import nn
from determined.pytorch import DataLoader, LRScheduler, PyTorchTrial, PyTorchTrialContext


class OnesDataset(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.Tensor([1.0]), torch.Tensor([1.0])


class OneVarTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        model = nn.Linear(1, 1, False)
        nn.init.zeros_(model.weight)
        self.model = self.context.wrap_model(model)
        self.opt = self.context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), self.context.get_hparam("learning_rate"))
        )
        self.sched = self.context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.StepLR(self.opt, 1000), step_mode=LRScheduler.StepMode.STEP_EVERY_EPOCH
        )

    def build_training_data_loader(self):
        return DataLoader(OnesDataset(), batch_size=self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self):
        return DataLoader(OnesDataset(), batch_size=self.context.get_per_slot_batch_size())

    def train_batch(self, batch, epoch_idx, batch_idx):
        data, labels = batch
        loss = nn.functional.mse_loss(self.model(data), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.opt)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        data, labels = batch
        return {"validation_loss": nn.functional.mse_loss(self.model(data), labels)}
"""


def test_trial_class_is_trained_as_its_file_says(script: Script, run_dir: MakeRun, tmp_path: Path) -> None:
    (tmp_path / "model_def.py").write_text(MODEL_DEF)
    settings = {
        "max_length": {"batches": 40},
        "validation_period": {"batches": 20},
        "reporting_period": {"batches": 10},
    }
    path = run_dir(
        hparams={"learning_rate": 0.1, "global_batch_size": 16}, origin={"platform": "determined", "trainer": settings}
    )
    ran = script(
        "import sys; from stoker.compat.determined.__main__ import main; sys.exit(main(sys.argv[1:]))",
        "--trial",
        "model_def:OneVarTrial",
        run_dir=path,
    )
    assert ran.returncode == 0, ran.stderr
    reported = [(event["group"], event["step"]) for event in events(path) if event["type"] == "metric"]
    assert [step for group, step in reported if group == "training"] == [10, 20, 30, 40]
    assert [step for group, step in reported if group == "validation"] == [20, 40]
    last = [event["values"] for event in events(path) if event["type"] == "metric" and event["group"] == "validation"][
        -1
    ]
    assert last["validation_loss"] == pytest.approx((0.8**40) ** 2, rel=1e-3)  # w goes 1 - 0.8^n


@pytest.mark.parametrize(
    ("entrypoint", "sentence"),
    [
        ("nowhere:OneVarTrial", "there is no nowhere.py in the package"),
        ("model_def:Missing", "model_def has no class Missing"),
        ("model_def:OnesDataset", "is neither a PyTorchTrial nor a TFKerasTrial"),
    ],
)
def test_wrong_entrypoint_is_one_line(
    script: Script, run_dir: MakeRun, tmp_path: Path, entrypoint: str, sentence: str
) -> None:
    (tmp_path / "model_def.py").write_text(MODEL_DEF)
    ran = script(
        "import sys; from stoker.compat.determined.__main__ import main; sys.exit(main(sys.argv[1:]))",
        "--trial",
        entrypoint,
        run_dir=run_dir(),
    )
    assert ran.returncode == 2
    assert sentence in ran.stderr.splitlines()[-1]


def test_checkpoint_of_determined_gives_its_weights(script: Script, tmp_path: Path) -> None:
    """Written here as 0.38 wrote them: numpy's random state inside, the code beside."""
    folder = tmp_path / "old"
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "model_def.py").write_text(MODEL_DEF)
    weights = {"module.weight": torch.tensor([[0.75]])}
    rng = {
        "np_rng_state": numpy.random.get_state(),
        "cpu_rng_state": torch.get_rng_state(),
        "random_rng_state": (3, (1,), None),
    }
    torch.save(
        {"models_state_dict": [weights], "optimizers_state_dict": [], "rng_state": rng}, folder / "state_dict.pth"
    )
    described = {"trial_cls_spec": "model_def:OneVarTrial", "hparams": {"learning_rate": 0.1, "global_batch_size": 4}}
    (folder / "load_data.json").write_text(json.dumps(described))
    ran = script(
        """
        from determined import pytorch
        trial = pytorch.load_trial_from_checkpoint_path("old", torch_load_kwargs={"weights_only": False})
        print(trial.model.weight.item(), trial.model.training)
        """
    )
    assert ran.stdout == "0.75 False\n", ran.stderr


def test_trial_of_another_job_is_loaded_with_the_files_beside_its_own(script: Script, tmp_path: Path) -> None:
    other, folder = tmp_path / "other", tmp_path / "step-1"
    other.mkdir()
    folder.mkdir()
    (other / "nets.py").write_text("which = 'theirs'\n")
    (other / "train.py").write_text("import nets\n" + MODEL_DEF)
    described = {
        "format": 1,
        "step": 1,
        "models": [flatten({}).skeleton],
        "trial_class": {"module": "__main__", "name": "OneVarTrial", "file": str(other / "train.py")},
        "hparams": {"learning_rate": 0.1, "global_batch_size": 4},
    }
    (folder / "checkpoint.json").write_text(json.dumps(described))
    save_file({"weight": torch.tensor([[0.5]])}, folder / "model.safetensors")
    ran = script(
        """
        import sys
        from determined import pytorch
        trial = pytorch.load_trial_from_checkpoint_path("step-1")
        print(trial.model.weight.item(), "nets" in sys.modules)
        """
    )
    assert ran.stdout == "0.5 False\n", ran.stderr


def test_checkpoint_that_runs_code_is_refused(script: Script, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "model_def.py").write_text(MODEL_DEF)

    class Harm:
        def __reduce__(self) -> object:
            return eval, ("print('run')",)

    torch.save({"models_state_dict": [{}], "callbacks": Harm()}, tmp_path / "old" / "state_dict.pth")
    ran = script(
        """
        from determined import pytorch
        from model_def import OneVarTrial
        pytorch.load_trial_from_checkpoint_path("old", trial_class=OneVarTrial)
        """
    )
    assert ran.returncode == 1
    assert "run" not in ran.stdout


def test_transformers_callback_reports_whole_names(script: Script, run_dir: MakeRun) -> None:
    path = run_dir()
    ran = script(
        """
        import torch, transformers
        import determined as det
        from determined.transformers import DetCallback

        class Pairs(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, i): return {"input_ids": torch.tensor([i % 5, 1]), "labels": torch.tensor(i % 2)}

        config = transformers.BertConfig(vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
                                         intermediate_size=8)
        model = transformers.BertForSequenceClassification(config)
        args = transformers.TrainingArguments("out", max_steps=2, logging_steps=1, eval_strategy="steps", eval_steps=2,
                                              save_steps=2, report_to=[], use_cpu=True)
        with det.core.init() as core_context:
            callback = DetCallback(core_context, args)
            trainer = transformers.Trainer(model, args, train_dataset=Pairs(), eval_dataset=Pairs(),
                                           callbacks=[callback])
            trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        """,
        run_dir=path,
    )
    assert ran.returncode == 0, ran.stderr
    metrics = [event for event in events(path) if event["type"] == "metric"]
    validated = [event["values"] for event in metrics if event["group"] == "validation"]
    assert {"eval_loss", "batches", "epochs"} <= set(validated[0])
    assert [event["step"] for event in events(path) if event["type"] == "checkpoint"] == [2]
