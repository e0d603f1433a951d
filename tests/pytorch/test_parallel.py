"""Several ranks: DDP and FSDP learn what one rank learns, and their checkpoints are the same."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from stoker import pytorch
from stoker.errors import StokerError, UsageError
from stoker.pytorch import Batch, Epoch
from stoker.pytorch.stops import StopVote
from tests.pytorch.ranks import run_ranks
from tests.pytorch.trials import events, steps

pytestmark = pytest.mark.slow

SAMPLES = 22  # 12 a batch: the second batch of an epoch is short and divides neither by 2 nor by 3 evenly


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
        self.head = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context: Any) -> None:
        self.context = context
        self.model = context.wrap_model(Blocks())
        self.opt = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))
        self.ema = pytorch.EMA(context, decay=0.9)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.opt, clip_grads=lambda params: nn.utils.clip_grad_norm_(params, 1.0))
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        return {"loss": nn.functional.mse_loss(self.model(x), y)}

    def build_callbacks(self) -> Any:
        return {"ema": self.ema}


def data(batch_size: int) -> Any:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 3, generator=generator)
    return pytorch.DataLoader(
        torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=batch_size, shuffle=True
    )


def train(max_length: int, latest_checkpoint: str | None, **init: Any) -> dict[str, Any]:
    context = pytorch.init(seed=2, **init)
    trial = context.build_trial(Trial)
    batch_size = context.distributed.shard_batch_size(12)
    metrics = context.fit(
        trial,
        data(batch_size),
        data(batch_size),
        max_length=Batch(max_length),
        validation_period=Epoch(1),
        latest_checkpoint=latest_checkpoint,
        progress=False,
    )
    weights = {}
    for name, value in trial.model.state_dict().items():
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        weights[name.removeprefix("module.")] = whole.tolist()
    if "distributed" not in init:
        context.close()
    return {
        "weights": weights,
        "metrics": metrics,
        "kind": type(trial.model).__name__,
        "attribute": type(trial.model.head).__name__,
        "checkpoint": events(context.run.run_dir, "checkpoint")[-1]["path"] if context.distributed.rank == 0 else None,
        "training": [e["values"]["loss"] for e in events(context.run.run_dir, "metric", "training")],
        "steps": steps(context.run.run_dir, "validation"),
    }


def assert_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first["metrics"] == pytest.approx(second["metrics"], rel=1e-4)
    for name, values in second["weights"].items():
        assert torch.allclose(torch.tensor(first["weights"][name]), torch.tensor(values), atol=1e-5), name


def test_ddp_and_fsdp_learn_what_one_rank_learns_and_go_on_from_each_other(tmp_path: Path) -> None:
    (half,) = run_ranks(train_ddp, 1, tmp_path / "half", 5, None)
    (alone,) = run_ranks(train_ddp, 1, tmp_path / "alone", 8, None)

    ddp = run_ranks(train_ddp, 2, tmp_path / "ddp", 8, None)
    fsdp = run_ranks(train_fsdp, 2, tmp_path / "fsdp", 5, None)
    ddp_after_fsdp = run_ranks(train_ddp, 2, tmp_path / "ddp after", 8, fsdp[0]["checkpoint"])
    fsdp_after_alone = run_ranks(train_fsdp, 3, tmp_path / "fsdp after", 8, half["checkpoint"])

    assert (ddp[0]["kind"], fsdp[0]["kind"]) == ("_DDP", "FSDPBlocks")
    assert ddp[0]["attribute"] == "Linear"  # through the wrapper
    assert ddp[0]["metrics"] == ddp[1]["metrics"]
    assert ddp[0]["training"] == pytest.approx(alone["training"], rel=1e-4)
    for result in (*ddp, *ddp_after_fsdp, *fsdp_after_alone):
        assert_same(result, alone)


def train_ddp(max_length: int, latest_checkpoint: str | None) -> dict[str, Any]:
    return train(max_length, latest_checkpoint)


def train_fsdp(max_length: int, latest_checkpoint: str | None) -> dict[str, Any]:
    return train(max_length, latest_checkpoint, strategy="fsdp")


def test_fsdp_goes_on_in_the_middle_of_an_optimizer_step(tmp_path: Path) -> None:
    for result in run_ranks(train_fsdp_aggregated, 2, tmp_path):
        assert result["resumed"]["weights"] == result["straight"]["weights"]


def train_fsdp_aggregated() -> dict[str, Any]:
    settings: Any = {
        "strategy": "fsdp",
        "aggregation_frequency": 2,
        "distributed": pytorch.DistributedContext.from_env(),
    }
    straight = train(6, None, **settings)
    part = train(3, None, **settings)
    (checkpoint,) = filter(None, settings["distributed"].allgather(part["checkpoint"]))
    resumed = train(6, checkpoint, **settings)
    settings["distributed"].close()
    return {"straight": straight, "resumed": resumed}


def test_ranks_stop_after_the_same_batch_when_one_is_told(tmp_path: Path) -> None:
    first, second = run_ranks(stop_one_rank, 2, tmp_path)

    assert first == second
    assert 3 <= first["step"] < 10_000


def stop_one_rank() -> dict[str, Any]:
    class Stopping(Trial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 2 and self.context.distributed.rank == 1:
                self.context.set_stop_requested(True)
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytorch.init() as context:
        trial = context.build_trial(Stopping)
        context.fit(trial, data(6), max_length=Batch(10_000), progress=False)
        step = trial.context.current_train_batch() + 1
    return {"step": step, "checkpoints": [event["step"] for event in events(context.run.run_dir, "checkpoint")]}


def test_an_error_on_one_rank_ends_the_others(tmp_path: Path) -> None:
    of_rank_0, of_rank_1 = run_ranks(fail_on_rank_1, 2, tmp_path)

    assert of_rank_1 == "ValueError: mine"
    assert "closed by peer" in of_rank_0 or "reset by peer" in of_rank_0


def fail_on_rank_1() -> str:
    class Failing(Trial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 2 and self.context.distributed.rank == 1:
                raise ValueError("mine")
            return super().train_batch(batch, epoch_idx, batch_idx)

    try:
        with pytorch.init() as context:
            context.fit(context.build_trial(Failing), data(6), max_length=Batch(100), progress=False)
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def test_a_nan_on_one_rank_ends_all_with_the_same_words(tmp_path: Path) -> None:
    first, second = run_ranks(nan_on_rank_1, 2, tmp_path)

    assert first == second
    assert "loss is nan at batch 2 (epoch 1)" in first


def nan_on_rank_1() -> str:
    class Failing(Trial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            metrics = super().train_batch(batch, epoch_idx, batch_idx)
            wrong = batch_idx == 2 and self.context.distributed.rank == 1
            return {"loss": metrics["loss"] * float("nan") if wrong else metrics["loss"]}

    context = pytorch.init()
    try:
        context.fit(
            context.build_trial(Failing),
            data(6),
            max_length=Batch(100),
            reporting_period=Batch(4),
            stop_on_nan=True,
            progress=False,
        )
    except StokerError as error:
        return str(error)
    return "no error"


def test_a_model_with_parts_that_get_no_gradient_needs_to_say_so(tmp_path: Path) -> None:
    assert run_ranks(train_unused, 2, tmp_path) == [3, 3]


def train_unused() -> int:
    class Unused(Trial):
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            self.spare = context.wrap_model(
                nn.ModuleDict({"used": nn.Linear(3, 1), "unused": nn.Linear(3, 1)}), find_unused_parameters=True
            )
            self.frozen = context.wrap_model(nn.Linear(1, 1).requires_grad_(False))

    with pytorch.init() as context:
        trial = context.build_trial(Unused)
        context.fit(trial, data(6), max_length=Batch(3), progress=False)
    return trial.context.current_train_batch() + 1


def test_full_dataset_evaluation_runs_on_rank_0_and_its_metrics_are_everyones(tmp_path: Path) -> None:
    results = run_ranks(evaluate_full, 2, tmp_path)

    assert [result["evaluated"] for result in results] == [1, 0]
    assert results[0]["metrics"] == results[1]["metrics"] == {"samples": SAMPLES}
    assert [result["refused"] for result in results] == [True, True]


def evaluate_full() -> dict[str, Any]:
    class Whole(Trial):
        evaluate_batch = pytorch.PyTorchTrial.evaluate_batch
        evaluated = 0

        def __init__(self, context: Any, **wrap: Any) -> None:
            super().__init__(context)
            # Buffers would be exchanged in each forward, and rank 0 would wait for ever.
            self.norm = context.wrap_model(nn.BatchNorm1d(3), **wrap)

        def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
            self.evaluated += 1
            return {"samples": sum(len(self.norm(x)) for x, _ in data_loader)}

    with pytorch.init() as context:
        trial = context.build_trial(Whole)
        metrics = context.fit(trial, data(6), data(6), max_length=Batch(1), progress=False)
        try:
            context.fit(context.build_trial(Whole, fsdp=True), data(6), data(6), max_length=Batch(1), progress=False)
            refused = False
        except UsageError:
            refused = True
    return {"evaluated": trial.evaluated, "metrics": metrics, "refused": refused}


def test_ranks_vote_about_once_a_second_and_not_every_batch() -> None:
    votes = []

    class Ranks:
        size = 2

        def allgather(self, mine: Any) -> list[Any]:
            votes.append(mine)
            return [mine, (False, 10**6)]

    now = 0.0
    vote = StopVote(Ranks(), clock=lambda: now)  # type: ignore[arg-type]
    stopped_at = None
    for step in range(1, 1000):
        now += 0.01
        if vote.any_asked(step, step >= 500):
            stopped_at = step
            break

    assert len(votes) <= 7
    assert stopped_at is not None
    assert 500 <= stopped_at <= 602
