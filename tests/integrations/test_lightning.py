"""Against the real Lightning Trainer."""

import os

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

lightning = pytest.importorskip("lightning", reason="pip install lightning, to test against it")

from stoker.integrations.lightning import StokerCallback, StokerLogger  # noqa: E402
from tests.integrations.conftest import Run, tell_to_stop  # noqa: E402
from tests.pytorch.ranks import run_ranks  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

X = torch.arange(40.0).reshape(20, 2) / 40
LOADER = DataLoader(TensorDataset(X, X.sum(1, keepdim=True)), batch_size=4)


class Model(lightning.LightningModule):
    def __init__(self, stop_at=None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 1)
        self.stop_at = stop_at

    def training_step(self, batch, batch_idx):
        if self.global_step + 1 == self.stop_at:
            tell_to_stop()
        loss = nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("accuracy", nn.functional.l1_loss(self.layer(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


def quiet(folder, **options):
    return lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("WORLD_SIZE", "1")),
        default_root_dir=str(folder),
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=2,
        **options,
    )


def train(folder, *, stop_at=None, exit_on_stop=True, **options):
    """What a user writes, and a way to be stopped."""
    callback = StokerCallback(exit_on_stop=exit_on_stop)
    trainer = quiet(folder, callbacks=[callback], max_epochs=4, **options)
    model = Model(stop_at)
    trainer.fit(model, LOADER, LOADER, ckpt_path=callback.latest_checkpoint)
    return trainer, model, callback


@pytest.mark.parametrize("logger", [None, False])
def test_what_is_logged_and_saved_goes_to_the_run(start_run, tmp_path, logger):
    run = start_run()

    train(tmp_path, logger=logger)

    assert run.steps("training", "loss") == [1, 3, 5, 7, 9, 11, 13, 15, 17, 19]
    assert run.steps("validation", "accuracy") == [4, 9, 14, 19]
    assert run.checkpoints() == [5, 10, 15, 20]
    assert len(list((run.folder / "checkpoints").iterdir())) == 2
    assert [e["fraction"] for e in run.events("progress")] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("stop_at", [5, 8, 10])
def test_a_stopped_run_saves_leaves_and_goes_on(start_run, tmp_path, stop_at):
    first = start_run()
    with pytest.raises(SystemExit) as stopped:
        train(tmp_path / "first", stop_at=stop_at, min_epochs=4)

    second = start_run()
    trainer, _, _ = train(tmp_path / "second", min_epochs=4)

    assert stopped.value.code == 0
    assert first.checkpoints()[-1] == stop_at
    assert second.steps("training", "loss")[0] >= stop_at
    assert trainer.global_step == 20


def test_from_the_end_of_an_epoch_it_goes_on_as_if_it_had_not_stopped(start_run, tmp_path):
    _, straight, _ = train(tmp_path / "straight")
    start_run()
    with pytest.raises(SystemExit):
        train(tmp_path / "first", stop_at=10)

    start_run()
    _, resumed, _ = train(tmp_path / "second")

    assert torch.equal(resumed.layer.weight, straight.layer.weight)


def test_fit_returns_after_a_stop_if_asked_to(start_run, tmp_path):
    start_run()

    trainer, _, callback = train(tmp_path, stop_at=3, exit_on_stop=False)

    assert callback.stopped
    assert trainer.global_step == 3


def test_the_logger_alone_sorts_metrics_by_name(start_run, tmp_path):
    class Named(Model):
        def validation_step(self, batch, batch_idx):
            self.log("val_loss", nn.functional.l1_loss(self.layer(batch[0]), batch[1]))

    run = start_run()

    trainer = quiet(tmp_path, max_epochs=1, logger=StokerLogger(), enable_checkpointing=False)
    trainer.fit(Named(), LOADER, LOADER)

    assert run.steps("training", "loss") == [1, 3]
    assert run.steps("validation", "loss") == [4]
    assert run.checkpoints() == []


def train_on_a_rank(folder, stop_at):
    """The exit code of this rank."""
    os.environ.update(TORCHELASTIC_RUN_ID="none", GROUP_RANK="0")  # as torchrun and the supervisor do
    try:
        train(folder, stop_at=stop_at, strategy="ddp")
    except SystemExit as stopped:
        return stopped.code
    finally:
        torch.distributed.destroy_process_group()
    return None


def test_two_ranks_report_once_and_stop_together(tmp_path):
    ended = run_ranks(train_on_a_rank, 2, tmp_path / "1", tmp_path / "out", 2)

    run = Run(tmp_path / "1")
    assert ended == [0, 0]
    assert run.checkpoints() == [2]
    assert {event["replica"] for event in run.events("checkpoint") + run.events("metric")} == {"chief-0"}
