"""Against the real Hugging Face Trainer."""

import os

import pytest
import torch
from torch import nn

transformers = pytest.importorskip("transformers", reason="pip install transformers accelerate, to test against it")
pytest.importorskip("accelerate", reason="pip install transformers accelerate, to test against it")

from stoker.integrations.transformers import StokerCallback  # noqa: E402
from tests.integrations.conftest import Run, tell_to_stop  # noqa: E402
from tests.pytorch.ranks import run_ranks  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ROWS = [{"x": torch.tensor([i / 10, 1.0]), "labels": torch.tensor([i / 5])} for i in range(20)]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 1)

    def forward(self, x, labels):
        predicted = self.layer(x)
        return {"loss": nn.functional.mse_loss(predicted, labels), "logits": predicted}


class StopAt(transformers.TrainerCallback):
    def __init__(self, step) -> None:
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step + 1 == self.step:
            tell_to_stop()


def train(folder, *, stop_at=None, exit_on_stop=True, save_strategy="steps"):
    """What a user writes, and a way to be stopped."""
    args = transformers.TrainingArguments(
        output_dir=str(folder / "out"),
        num_train_epochs=4,
        per_device_train_batch_size=4,
        logging_steps=2,
        save_strategy=save_strategy,
        save_steps=5,
        eval_strategy="epoch",
        learning_rate=0.05,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo" if "RANK" in os.environ else None,
    )
    callback = StokerCallback(exit_on_stop=exit_on_stop)
    callbacks = [callback, StopAt(stop_at)]
    trainer = transformers.Trainer(Model(), args, train_dataset=ROWS, eval_dataset=ROWS[:4], callbacks=callbacks)
    trainer.train(resume_from_checkpoint=callback.latest_checkpoint)
    return trainer, callback


def test_what_the_trainer_logs_and_saves_goes_to_the_run(start_run, tmp_path):
    run = start_run()

    train(tmp_path)

    assert run.steps("training", "loss") == list(range(2, 21, 2))
    assert run.steps("validation", "loss") == [5, 10, 15, 20]
    assert run.checkpoints() == [5, 10, 15, 20]
    assert len(list((run.folder / "checkpoints").iterdir())) == 2
    assert run.events("progress")[-1]["fraction"] == 1.0


@pytest.mark.parametrize("save_strategy", ["steps", "no"])
def test_a_stopped_run_saves_leaves_and_goes_on_as_if_it_had_not_stopped(start_run, tmp_path, save_strategy):
    straight, _ = train(tmp_path / "straight")
    expected = straight.model.layer.weight.clone()
    first = start_run()
    with pytest.raises(SystemExit) as stopped:
        train(tmp_path / "first", stop_at=8, save_strategy=save_strategy)

    second = start_run()
    resumed, _ = train(tmp_path / "second", save_strategy=save_strategy)

    assert stopped.value.code == 0
    assert first.checkpoints()[-1] == 8
    assert second.steps("training", "loss")[0] == 10
    assert resumed.state.global_step == 20
    assert torch.equal(resumed.model.layer.weight, expected)


def test_train_returns_after_a_stop_if_asked_to(start_run, tmp_path):
    start_run()

    trainer, callback = train(tmp_path, stop_at=3, exit_on_stop=False)

    assert callback.stopped
    assert trainer.state.global_step == 3


def train_on_a_rank(folder, stop_at):
    """The exit code of this rank."""
    try:
        train(folder, stop_at=stop_at)
    except SystemExit as stopped:
        return stopped.code
    return None


def test_two_ranks_report_once_and_stop_together(tmp_path):
    ended = run_ranks(train_on_a_rank, 2, tmp_path / "1", tmp_path / "out", 2)

    run = Run(tmp_path / "1")
    assert ended == [0, 0]
    assert run.checkpoints() == [2]
    assert {event["replica"] for event in run.events("checkpoint") + run.events("metric")} == {"chief-0"}
