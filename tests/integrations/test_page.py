"""What docs/integrations.md shows is run against the real libraries, and is no longer than it promises."""

import os
import re
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn

os.environ.setdefault("KERAS_BACKEND", "torch")  # read when keras is first imported
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
EXAMPLES = dict(re.findall(r"^## (.*?)\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE))

X = torch.arange(16.0).reshape(8, 2) / 16


def for_hugging_face() -> dict[str, Any]:
    transformers = pytest.importorskip("transformers", reason="pip install transformers accelerate")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x, labels):
            return {"loss": nn.functional.mse_loss(self.layer(x), labels)}

    options = {"output_dir": "out", "num_train_epochs": 1, "logging_steps": 1, "save_steps": 1}
    args = transformers.TrainingArguments(**options, report_to="none", disable_tqdm=True, use_cpu=True)
    return {"model": Model(), "args": args, "train_data": [{"x": row, "labels": row[:1]} for row in X]}


def for_lightning() -> dict[str, Any]:
    lightning = pytest.importorskip("lightning", reason="pip install lightning")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def training_step(self, batch, batch_idx):
            loss = self.layer(batch).square().mean()
            self.log("loss", loss, on_step=False, on_epoch=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return {"module": Module(), "loader": torch.utils.data.DataLoader(X, batch_size=4)}


def for_keras() -> dict[str, Any]:
    keras = pytest.importorskip("keras", reason="pip install keras")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    return {"model": model, "x": X.numpy(), "y": numpy.ones((8, 1))}


def for_anything_else() -> dict[str, Any]:
    return {}


MAKERS = {
    "Hugging Face": for_hugging_face,
    "Lightning": for_lightning,
    "Keras": for_keras,
    "Anything else": for_anything_else,
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_example_runs_and_reports(start_run, name):
    names = MAKERS[name]()
    run = start_run()

    exec(compile(EXAMPLES[name], f"{PAGE}: {name}", "exec"), names)  # noqa: S102 - our own page

    assert run.steps("training", "loss")
    assert bool(run.checkpoints()) == (name != "Anything else")


def test_every_example_is_run_and_short():
    assert set(EXAMPLES) == set(MAKERS)
    assert all(len(code.splitlines()) <= 10 for code in EXAMPLES.values())
