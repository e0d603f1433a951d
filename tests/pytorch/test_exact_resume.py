"""A training that is interrupted after any batch and goes on later is the training that was never interrupted.

Compared bit by bit, for every batch that follows: the samples in their order, the loss, what Python, numpy and torch
draw; and at the end the weights, the optimizer's state, the learning rate and the validation metrics.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from stoker import pytorch
from stoker.pytorch import Batch, LRScheduler
from tests.pytorch.ranks import run_ranks
from tests.pytorch.trials import events

SAMPLES, BATCH, EPOCHS = 22, 4, 2  # 6 batches an epoch, the last one short
LAST = 12


@dataclass(frozen=True)
class Scenario:
    """What is different from a plain training."""

    workers: int = 0
    precision: str = "fp32"
    aggregation: int = 1
    schedulers: bool = False
    dropout: float = 0.5
    normalised: bool = True
    augmented: bool = False
    streamed: bool = False


SCENARIOS = {
    "shuffled": Scenario(dropout=0.0),
    "dropout": Scenario(),
    "workers": Scenario(workers=2),
    "augmented": Scenario(augmented=True),
    "augmented by workers": Scenario(augmented=True, workers=2),
    "bf16": Scenario(precision="bf16"),
    "fp16 with its scaler": Scenario(precision="fp16"),
    "aggregation": Scenario(aggregation=3),
    "schedulers": Scenario(schedulers=True),
    "schedulers and aggregation": Scenario(schedulers=True, aggregation=3),
    "streamed": Scenario(streamed=True),
}


@dataclass
class Record:
    """What happened, batch by batch, and what came out."""

    batches: list[dict[str, Any]] = field(default_factory=list)
    outcome: dict[str, Any] = field(default_factory=dict)
    checkpoints: dict[int, str] = field(default_factory=dict)  # by step


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, scenario: Scenario, stop_after: int | None) -> None:
        self.context = context
        self.scenario = scenario
        self.stop_after = stop_after
        self.record = Record()
        norm = nn.BatchNorm1d(8) if scenario.normalised else nn.Identity()
        self.model = context.wrap_model(
            nn.Sequential(nn.Linear(1, 8), norm, nn.ReLU(), nn.Dropout(scenario.dropout), nn.Linear(8, 1))
        )
        self.opt = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))
        if scenario.schedulers:
            mode = LRScheduler.StepMode
            each_batch = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, T_max=20)
            each_epoch = torch.optim.lr_scheduler.StepLR(self.opt, step_size=1, gamma=0.5)
            context.wrap_lr_scheduler(each_batch, mode.STEP_EVERY_BATCH)
            context.wrap_lr_scheduler(each_epoch, mode.STEP_EVERY_EPOCH)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        samples, values = batch
        loss = nn.functional.mse_loss(self.model(values), values.sin())
        self.context.backward(loss)
        self.context.step_optimizer(self.opt)
        self.record.batches.append(
            {
                "epoch": epoch_idx,
                "samples": samples.tolist(),
                "values": values.flatten().tolist(),
                "loss": loss.item(),
                "draws": (random.random(), float(numpy.random.rand()), torch.rand(1).item()),
                "rate": self.opt.param_groups[0]["lr"],
            }
        )
        if batch_idx + 1 == self.stop_after:
            self.context.set_stop_requested(True)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        _, values = batch
        return {"loss": nn.functional.mse_loss(self.model(values), values.sin()), "drawn": torch.rand(1)}


class Points(torch.utils.data.Dataset):
    def __init__(self, augmented: bool) -> None:
        self._augmented = augmented

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        noise = random.random() + numpy.random.rand() + torch.rand(1).item() if self._augmented else 0.0
        return index, torch.tensor([index / 10 + noise])


class Stream(torch.utils.data.IterableDataset):
    """Endless, shuffled by itself, and able to say where it is."""

    def __init__(self) -> None:
        self._position = 0

    def __iter__(self) -> Any:
        while True:
            self._position += 1
            index = self._position * 7 % SAMPLES
            yield index, torch.tensor([index / 10])

    def state_dict(self) -> dict[str, Any]:
        return {"position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._position = state["position"]


def loader(scenario: Scenario, batch_size: int = BATCH) -> Any:
    if scenario.streamed:
        return torch.utils.data.DataLoader(Stream(), batch_size=batch_size)
    return pytorch.DataLoader(
        Points(scenario.augmented), batch_size=batch_size, shuffle=True, num_workers=scenario.workers
    )


def train(
    scenario: Scenario,
    *,
    stop_after: int | None = None,
    save_each_batch: bool = False,
    latest_checkpoint: str | None = None,
    batch_size: int = BATCH,
    distributed: pytorch.DistributedContext | None = None,
) -> Record:
    """Train all that is left to train, or up to the stop."""
    context = pytorch.init(
        seed=3, precision=scenario.precision, aggregation_frequency=scenario.aggregation, distributed=distributed
    )
    trial = Trial(context, scenario, stop_after)
    known = len(events(context.run.run_dir, "checkpoint"))
    metrics = pytorch.Trainer(trial, context).fit(
        max_length=Batch(LAST),
        checkpoint_period=Batch(1) if save_each_batch else None,
        validation_period=Batch(4),
        checkpoint_policy="none",
        latest_checkpoint=latest_checkpoint,
        training_data=loader(scenario, batch_size),
        validation_data=pytorch.DataLoader(Points(augmented=False), batch_size=batch_size),
        keep=None,
        progress=False,
    )
    if stop_after is None:
        trial.record.outcome = {"metrics": metrics, "state": state_of(context)}
    context.distributed.barrier()  # rank 0 has announced its checkpoints
    saved = events(context.run.run_dir, "checkpoint")[known:]
    trial.record.checkpoints = {event["step"]: event["path"] for event in saved}
    return trial.record


def state_of(context: pytorch.PyTorchTrialContext) -> dict[str, Any]:
    """Weights and optimizer state, as plain numbers."""
    state: dict[str, Any] = {}
    for model, optimizer in zip(context.models, context.optimizers, strict=True):
        state.update({name.removeprefix("module."): value.tolist() for name, value in model.state_dict().items()})
        for index, values in optimizer.state_dict()["state"].items():
            state.update({f"{index}.{name}": torch.as_tensor(value).tolist() for name, value in values.items()})
    return state


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_after_any_batch_and_resumed(name: str) -> None:
    scenario = SCENARIOS[name]
    points = range(1, LAST) if scenario.workers == 0 else (1, 6, 8)

    straight = train(scenario)
    saved = train(scenario, save_each_batch=True)

    assert saved.batches == straight.batches  # saving changes nothing
    for step in points:
        resumed = train(scenario, latest_checkpoint=saved.checkpoints[step])
        assert resumed.batches == straight.batches[step:], f"resumed after batch {step}"
        assert resumed.outcome == straight.outcome, f"resumed after batch {step}"


@pytest.mark.parametrize("step", [1, 4, 6, 11])  # in an epoch, where a validation is due, between epochs, near the end
def test_stopped_and_resumed(step: int) -> None:
    straight = train(SCENARIOS["dropout"])

    before = train(SCENARIOS["dropout"], stop_after=step)
    after = train(SCENARIOS["dropout"], latest_checkpoint=before.checkpoints[step])

    assert len(before.batches) == step
    assert before.batches + after.batches == straight.batches
    assert after.outcome == straight.outcome


def test_stopped_again_and_again() -> None:
    straight = train(SCENARIOS["dropout"])

    batches: list[Any] = []
    checkpoint = None
    for step in range(1, LAST + 1):
        part = train(SCENARIOS["dropout"], stop_after=step if step < LAST else None, latest_checkpoint=checkpoint)
        checkpoint = part.checkpoints[step]
        batches += part.batches

    assert batches == straight.batches
    assert part.outcome == straight.outcome


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dropout", "aggregation", "augmented by workers"])
def test_two_ranks_killed_and_resumed(name: str, tmp_path: Path) -> None:
    ranks = run_ranks(killed_and_resumed, 2, tmp_path / "run", SCENARIOS[name])

    for straight, saved, resumed in ranks:
        assert saved.batches == straight.batches
        for step, record in resumed.items():
            assert record.batches == straight.batches[step:], f"resumed after batch {step}"
            assert record.outcome == straight.outcome, f"resumed after batch {step}"
    (first, *_), (second, *_) = ranks
    assert first.outcome == second.outcome
    assert first.batches[0]["draws"] != second.batches[0]["draws"]  # each rank has its own dropout


def killed_and_resumed(scenario: Scenario) -> tuple[Record, Record, dict[int, Record]]:
    distributed = pytorch.DistributedContext.from_env()
    straight = train(scenario, distributed=distributed)
    saved = train(scenario, distributed=distributed, save_each_batch=True)
    resumed = {
        step: train(scenario, distributed=distributed, latest_checkpoint=saved.checkpoints[step]) for step in (2, 3)
    }
    distributed.close()
    return straight, saved, resumed


@pytest.mark.slow
def test_two_ranks_resumed_as_one_and_as_three_see_the_same_samples(tmp_path: Path) -> None:
    plain = Scenario(dropout=0.0, normalised=False)  # both depend on how a batch is divided
    saved = run_ranks(train_ranks, 2, tmp_path / "saved", plain, True, None, 6)
    checkpoint = saved[0].checkpoints[3]  # 12 samples a batch, so in the middle of the second epoch

    alone = run_ranks(train_ranks, 1, tmp_path / "alone", plain, False, checkpoint, 12)
    three = run_ranks(train_ranks, 3, tmp_path / "three", plain, False, checkpoint, 4)

    order = global_samples(saved)
    assert global_samples(alone) == order[3:]
    assert global_samples(three) == order[3:]
    assert sorted(order[0] + order[1]) == list(range(SAMPLES))
    for resumed in (alone, three):
        assert losses(resumed) == pytest.approx(losses(saved)[3:], rel=1e-4)


def global_samples(ranks: list[Record]) -> list[list[int]]:
    """The samples of each batch, over all ranks."""
    return [sum((rank["samples"] for rank in batch), []) for batch in zip(*(r.batches for r in ranks), strict=True)]


def losses(ranks: list[Record]) -> list[float]:
    """The mean loss of each batch, over all samples."""
    return [
        sum(rank["loss"] * len(rank["samples"]) for rank in batch) / sum(len(rank["samples"]) for rank in batch)
        for batch in zip(*(record.batches for record in ranks), strict=True)
    ]


def train_ranks(scenario: Scenario, save_each_batch: bool, latest_checkpoint: str | None, batch_size: int) -> Record:
    distributed = pytorch.DistributedContext.from_env()
    record = train(
        scenario,
        save_each_batch=save_each_batch,
        latest_checkpoint=latest_checkpoint,
        batch_size=batch_size,
        distributed=distributed,
    )
    distributed.close()
    return record
