"""The same work as bench/trainer.py's by other trainers: those that can be imported."""

import importlib.util
import logging
import os
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def available() -> dict[str, Callable[[Any], None]]:
    """Contenders by name. Each is set up as its documentation says a fast run is: no logger, no bar, no checkpoints."""
    peers = {
        "accelerate": ("Accelerate", accelerate_loop),
        "lightning": ("Lightning", lightning_trainer),
        "pytorch_lightning": ("Lightning", lightning_trainer),
        "transformers": ("HF Trainer", hf_trainer),
        "determined": ("Determined", determined_trainer),
    }
    return {name: run for module, (name, run) in peers.items() if importlib.util.find_spec(module) is not None}


def accelerate_loop(work: Any) -> None:
    from accelerate import Accelerator

    torch.manual_seed(0)
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    model = work.make_model()
    optimizer = torch.optim.Adam(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, work.loader())
    step = 0
    while step < work.steps:
        for inputs, targets in loader:
            loss = work.loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step == work.steps:
                break


def lightning_trainer(work: Any) -> None:
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero", "pytorch_lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        from lightning.pytorch import LightningModule, Trainer
    except ImportError:
        from pytorch_lightning import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = work.make_model()

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            inputs, targets = batch
            return work.loss(self.model(inputs), targets)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.model.parameters())

    trainer = Trainer(
        max_steps=work.steps,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), work.loader())


def hf_trainer(work: Any) -> None:
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    from transformers import Trainer, TrainingArguments

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = work.make_model()

        def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            output = self.model(inputs)
            return {"loss": work.loss(output, labels), "logits": output}

    class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(work.inputs)

        def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
            return {"inputs": work.inputs[index], "labels": work.targets[index]}

    arguments = TrainingArguments(
        output_dir="hf",
        max_steps=work.steps,
        per_device_train_batch_size=work.batch_size,
        report_to=[],
        save_strategy="no",
        logging_strategy="steps",
        logging_steps=100,
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        learning_rate=1e-3,
        dataloader_pin_memory=False,
    )
    Trainer(model=Model(), args=arguments, train_dataset=Rows()).train()


def determined_trainer(work: Any) -> None:
    """Its 0.38.1 wants tensorboard and old pins: `pip install determined tensorboard` in an environment beside ours."""
    logging.getLogger("determined").setLevel(logging.ERROR)
    from determined import pytorch

    class Trial(pytorch.PyTorchTrial):  # type: ignore[misc]
        def __init__(self, context: Any) -> None:
            self.context = context
            self.model = context.wrap_model(work.make_model())
            self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))

        def build_training_data_loader(self) -> Any:
            data = torch.utils.data.TensorDataset(work.inputs, work.targets)
            return pytorch.DataLoader(data, batch_size=work.batch_size, shuffle=True)

        def build_validation_data_loader(self) -> Any:
            return pytorch.DataLoader(torch.utils.data.TensorDataset(work.inputs[:1], work.targets[:1]), batch_size=1)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
            inputs, targets = batch
            loss = work.loss(self.model(inputs), targets)
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            return {"loss": loss}

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
            inputs, targets = batch
            return {"loss": work.loss(self.model(inputs), targets)}

    with pytorch.init(enable_tensorboard_logging=False) as context:
        pytorch.Trainer(Trial(context), context).fit(max_length=pytorch.Batch(work.steps), checkpoint_policy="none")
