"""Golden cases: what Determined 0.38.1 was measured to do, as our tests; where we differ, it says so.

G16 (ASHA tables) belongs to stoker.search.
"""

import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import pytorch
from stoker.pytorch import Batch, Epoch, LRScheduler
from tests.pytorch.ranks import run_ranks
from tests.pytorch.trials import Numbers, OneVar, Watched, checkpoint_steps, events, steps


def test_g1_one_variable_follows_its_closed_form() -> None:
    with pytorch.init() as context:
        trial = OneVar(context)
        rows: list[dict[str, Any]] = []

        class Collect(pytorch.PyTorchCallback):
            def on_training_workload_end(self, avg_metrics: Any, batch_metrics: Any) -> None:
                rows.extend(batch_metrics)

        trial.callbacks = {"collect": Collect()}
        pytorch.Trainer(trial, context).fit(max_length=Batch(100))

    assert trial.weights == pytest.approx([1 - 0.998**n for n in range(1, 101)], rel=1e-4)
    assert [row["loss"] for row in rows] == pytest.approx([0.998 ** (2 * n) for n in range(100)], rel=1e-4)


class Trace(pytorch.PyTorchCallback):
    """Writes down every hook."""

    def __init__(self, trace: list[str]) -> None:
        self.trace = trace

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        self.trace.append(f"startup({first_batch_idx},{checkpoint_uuid})")

    def on_trial_shutdown(self) -> None:
        self.trace.append("shutdown")

    def on_training_start(self) -> None:
        self.trace.append("training_start")

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        self.trace.append(f"epoch_start({epoch_idx})")

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        self.trace.append(f"epoch_end({epoch_idx})")

    def on_training_workload_end(self, avg_metrics: Any, batch_metrics: Any) -> None:
        self.trace.append("workload_end")

    def on_validation_start(self) -> None:
        self.trace.append("val_start")

    def on_validation_epoch_start(self) -> None:
        self.trace.append("val_epoch_start")

    def on_validation_epoch_end(self, outputs: Any) -> None:
        self.trace.append("val_epoch_end")

    def on_validation_end(self, metrics: Any) -> None:
        self.trace.append("val_end")

    def on_checkpoint_save_start(self, checkpoint: Any) -> None:
        self.trace.append("save_start")

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        self.trace.append("ckpt_end")

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        assert Path(checkpoint_dir, "checkpoint.json").exists()
        self.trace.append("write_end")

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        self.trace.append("upload_end")

    def state_dict(self) -> dict[str, Any]:
        self.trace.append("state_dict")
        return {}


VALIDATION = "val_start val_epoch_start eb(0) eb(1) eb(2) val_epoch_end val_end"
CHECKPOINT = "state_dict save_start ckpt_end write_end upload_end"


def traced(**settings: Any) -> str:
    with pytorch.init() as context:
        trial = Watched(context)
        trial.callbacks = {"trace": Trace(trial.trace)}
        pytorch.Trainer(trial, context).fit(**settings)
    return " ".join(trial.trace)


def test_g2_hooks_are_called_in_the_golden_order() -> None:
    trace = traced(
        max_length=Epoch(2), checkpoint_policy="none", validation_period=Epoch(1), checkpoint_period=Batch(3)
    )

    assert trace == (
        "startup(0,None) training_start"
        f" epoch_start(0) tb(0,0) tb(0,1) tb(0,2) workload_end {CHECKPOINT}"
        f" tb(0,3) epoch_end(0) workload_end {VALIDATION}"
        f" epoch_start(1) tb(1,4) tb(1,5) workload_end {CHECKPOINT}"
        f" tb(1,6) tb(1,7) epoch_end(1) workload_end {VALIDATION} {CHECKPOINT} shutdown"
    )


def test_g2_test_mode_trains_and_validates_one_batch() -> None:
    assert traced(max_length=Epoch(2), test_mode=True) == (
        "startup(0,None) training_start epoch_start(0) tb(0,0) workload_end"
        f" val_start val_epoch_start eb(0) val_epoch_end val_end {CHECKPOINT} shutdown"
    )


EVERY_BATCH = list(range(1, 16))
EVEN = [2, 4, 6, 8, 10, 12, 14]
G3 = {
    (1, "BATCH"): (EVERY_BATCH, EVEN),
    (1, "OPTIMIZER_STEP"): (EVERY_BATCH, EVEN),
    (1, "EPOCH"): ([5, 10, 15], [10]),
    (2, "BATCH"): (sorted(EVEN * 2), EVEN),
    # Determined stepped after 2, 4, 6 … here, against its documentation: every 2nd optimizer step is after 4, 8, 12.
    (2, "OPTIMIZER_STEP"): (EVEN, [4, 8, 12]),
    (2, "EPOCH"): ([4, 10, 14], [10]),
    (3, "BATCH"): (sorted([3, 6, 9, 12, 15] * 3), [3, 6, 6, 9, 12, 12, 15]),
    (3, "OPTIMIZER_STEP"): ([3, 6, 9, 12, 15], [6, 12]),
    (3, "EPOCH"): ([3, 9, 15], [9]),
}


@pytest.mark.parametrize("aggregation", [1, 2, 3])
@pytest.mark.parametrize("mode", ["BATCH", "OPTIMIZER_STEP", "EPOCH"])
@pytest.mark.parametrize("frequency", [1, 2])
def test_g3_schedulers_step_after_these_batches(aggregation: int, mode: str, frequency: int) -> None:
    stepped: list[int] = []

    class Counting(torch.optim.lr_scheduler.ConstantLR):
        def step(self, *args: Any) -> None:
            super().step(*args)
            stepped.append(context.current_train_batch() + 1)

    with pytorch.init(aggregation_frequency=aggregation) as context:
        context.current_train_batch = lambda: -1  # type: ignore[method-assign]  # it steps once when it is made
        trial = Watched(context, length=10)
        context.wrap_lr_scheduler(Counting(trial.opt), LRScheduler.StepMode[f"STEP_EVERY_{mode}"], frequency)
        del context.current_train_batch
        pytorch.Trainer(trial, context).fit(max_length=Batch(15))

    assert stepped[1:] == G3[aggregation, mode][frequency - 1]


def test_g4_average_is_over_samples_and_the_old_one_over_batches_has_a_name() -> None:
    class Old(Watched):
        def evaluation_reducer(self) -> Any:
            return {"loss": pytorch.Reducer.AVG, "n": pytorch.Reducer.MEAN_OF_BATCHES}

    with pytorch.init() as context:
        ours = context.train(context.build_trial(Watched), max_length=Batch(1))
        old = context.train(context.build_trial(Old), max_length=Batch(1))

    assert ours["n"] == pytest.approx((2 * 2 + 2 * 2 + 1 * 1) / 5)
    assert old["n"] == pytest.approx(1.6667, abs=1e-4)


def test_g5_reports_hold_averages_counts_and_each_batch() -> None:
    rows: list[int] = []

    class Count(pytorch.PyTorchCallback):
        def on_training_workload_end(self, avg_metrics: Any, batch_metrics: Any) -> None:
            rows.append(len(batch_metrics))

    with pytorch.init() as context:
        trial = Watched(context, callbacks={"count": Count()})
        pytorch.Trainer(trial, context).fit(max_length=Batch(4), reporting_period=Batch(3))

    reports = events(context.run.run_dir, "metric", "training")
    assert [report["step"] for report in reports] == [3, 4]
    assert [report["values"]["n"] for report in reports] == [2.0, 1.0]
    assert [report["values"]["batches"] for report in reports] == [3, 4]
    assert [report["values"]["epochs"] for report in reports] == [0, 1]
    assert rows == [3, 1]


def test_g6_every_boundary_reports() -> None:
    with pytorch.init() as context:
        trial = Watched(context, length=20)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(12), validation_period=Batch(3), reporting_period=Batch(2), checkpoint_policy="none"
        )

    reports = events(context.run.run_dir, "metric", "training")
    assert [report["step"] for report in reports] == [2, 3, 4, 6, 8, 9, 10, 12]
    assert [report["values"]["epochs"] for report in reports] == [0, 0, 0, 0, 0, 0, 1, 1]
    assert steps(context.run.run_dir, "validation") == [3, 6, 9, 12]


def test_g7_a_stop_checkpoints_at_the_next_batch_and_the_next_run_goes_on(run_dir: Any) -> None:
    """Determined saw it at the next window boundary, batch 6; we see it at the next batch."""

    class Preempted(Watched):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 4:
                (first / "stop").write_text("preempt")
                os.kill(os.getpid(), signal.SIGTERM)
            return super().train_batch(batch, epoch_idx, batch_idx)

    first = run_dir()
    context = pytorch.init()
    before = Preempted(context, length=24)
    with pytest.raises(SystemExit) as left:
        pytorch.Trainer(before, context).fit(max_length=Batch(12), reporting_period=Batch(6))
    run_dir(latest_checkpoint=events(first, "checkpoint")[-1]["path"])
    with pytorch.init() as context:
        after = Watched(context, length=24)
        after.callbacks = {"trace": Trace(after.trace)}
        pytorch.Trainer(after, context).fit(max_length=Batch(12), reporting_period=Batch(6))

    assert left.value.code == 0
    assert checkpoint_steps(first) == [5]
    assert steps(first, "validation") == []
    assert after.trace[0].startswith("startup(5,/")
    assert before.seen + after.seen == [[2.0 * n, 2.0 * n + 1] for n in range(12)]


def test_g8_a_crash_goes_on_from_the_last_checkpoint(run_dir: Any) -> None:
    class Crashing(Watched):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 5:
                raise ValueError("crash")
            return super().train_batch(batch, epoch_idx, batch_idx)

    settings: Any = {"max_length": Batch(8), "checkpoint_period": Batch(3), "checkpoint_policy": "none"}
    first = run_dir()
    with pytest.raises(ValueError, match="crash"), pytorch.init() as context:
        pytorch.Trainer(Crashing(context), context).fit(**settings)
    run_dir(latest_checkpoint=events(first, "checkpoint")[-1]["path"])
    with pytorch.init() as context:
        after = Watched(context)
        pytorch.Trainer(after, context).fit(**settings)

    assert checkpoint_steps(first) == [3]
    assert [entry for entry in after.trace if entry.startswith("tb")] == [f"tb({n // 4},{n})" for n in range(3, 8)]


def test_g10_a_requested_stop_ends_with_a_checkpoint_and_without_validation() -> None:
    """Determined trained a whole window first; we stop after one batch."""
    with pytorch.init() as context:
        trial = Watched(context)
        context.set_stop_requested(True)
        pytorch.Trainer(trial, context).fit(max_length=Batch(8))

    assert len(trial.seen) == 1
    assert checkpoint_steps(context.run.run_dir) == [1]
    assert steps(context.run.run_dir, "validation") == []


def test_g11_invalid_hp_ends_politely_when_building() -> None:
    class Impossible(Watched):
        def __init__(self, context: Any) -> None:
            raise pytorch.InvalidHP("too many layers")

    context = pytorch.init()
    with pytest.raises(SystemExit) as left:
        context.build_trial(Impossible)
    with pytest.raises(SystemExit) as left_too, pytorch.init() as same:
        Impossible(same)

    assert left.value.code == left_too.value.code == 0
    assert len(events(context.run.run_dir, "invalid_hp")) >= 1


def test_g11_invalid_hp_in_training_checkpoints_first() -> None:
    class Impossible(Watched):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 2:
                raise pytorch.InvalidHP("diverges")
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytest.raises(SystemExit) as left, pytorch.init() as context:
        pytorch.Trainer(Impossible(context), context).fit(max_length=Batch(8))

    assert left.value.code == 0
    assert checkpoint_steps(context.run.run_dir) == [2]
    assert len(events(context.run.run_dir, "invalid_hp")) == 1


def test_g12_nan_and_infinities_travel_as_strings() -> None:
    class Odd(Watched):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
            return {"nan": torch.tensor(math.nan), "up": math.inf, "down": torch.tensor(-math.inf)}

    with pytorch.init() as context:
        metrics = context.train(context.build_trial(Odd), max_length=Batch(1))

    values = events(context.run.run_dir, "metric", "validation")[-1]["values"]
    assert (values["nan"], values["up"], values["down"]) == ("NaN", "Infinity", "-Infinity")
    assert math.isnan(metrics["nan"])
    assert (metrics["up"], metrics["down"]) == (math.inf, -math.inf)


def test_g13_a_checkpoint_cannot_be_reported_without_its_step(tmp_path: Path) -> None:
    """Determined looked for steps_completed in free-form metadata (ValueError); here it is an argument."""
    with pytest.raises(TypeError, match="step"):
        stoker.init().save_checkpoint(tmp_path)  # type: ignore[call-arg]


@pytest.mark.slow
def test_g9_g14_two_ranks_share_batches_agree_on_metrics_and_rank_0_alone_writes(tmp_path: Path) -> None:
    """Shards differ from Determined's on purpose: 10 samples are seen once an epoch, in one order at any world size."""
    first, second = run_ranks(two_ranks, 2, tmp_path)

    assert first["batch_size"] == second["batch_size"] == 2
    assert first["seen"] == [[0, 1], [4, 5], [8], [0, 1]]
    assert second["seen"] == [[2, 3], [6, 7], [9], [2, 3]]
    assert first["metrics"] == second["metrics"]
    assert first["metrics"]["n"] == pytest.approx(9 / 5)
    assert first["files"] == ["checkpoints", "events.jsonl", "run.json", "tensorboard"]
    assert first["writers"] == {"chief-0"}
    assert first["weight"] == second["weight"]


def two_ranks() -> dict[str, Any]:
    with pytorch.init(hparams={"global_batch_size": 4}) as context:
        trial = Watched(context, length=10, batch_size=context.get_per_slot_batch_size())
        metrics = pytorch.Trainer(trial, context).fit(max_length=Batch(4), checkpoint_period=Batch(2))
    folder = Path(context.run.run_dir)
    return {
        "batch_size": trial.batch_size,
        "seen": trial.seen,
        "metrics": metrics,
        "files": sorted(path.name for path in folder.iterdir()),
        "writers": {event["replica"] for event in events(folder, "metric") + events(folder, "checkpoint")},
        "weight": trial.model.weight.item(),
    }


def test_g15_a_finished_trial_trains_and_validates_no_more(run_dir: Any) -> None:
    first = run_dir()
    with pytorch.init() as context:
        pytorch.Trainer(Watched(context), context).fit(max_length=Batch(8))
    second = run_dir(latest_checkpoint=events(first, "checkpoint")[-1]["path"])
    with pytorch.init() as context:
        trial = Watched(context)
        pytorch.Trainer(trial, context).fit(max_length=Batch(6))
        again = Watched(pytorch.init())
        pytorch.Trainer(again, again.context).fit(max_length=Batch(8))

    assert trial.trace == again.trace == []
    assert checkpoint_steps(second) == []


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_g17_shuffled_data_goes_on_exactly_where_it_was(dropout: float, num_workers: int, run_dir: Any) -> None:
    """Determined: 1 of these 4."""

    class Shuffled(Watched):
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            self.dropout = nn.Dropout(dropout)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.dropout(batch)
            if batch_idx == stop_after:
                self.context.set_stop_requested(True)
            return super().train_batch(batch, epoch_idx, batch_idx)

        def build_training_data_loader(self) -> Any:
            return pytorch.DataLoader(Numbers(12), batch_size=2, shuffle=True, num_workers=num_workers)

    def train(latest_checkpoint: str | None = None) -> tuple[list[list[float]], str]:
        run_dir()
        with pytorch.init() as context:
            trial = Shuffled(context)
            pytorch.Trainer(trial, context).fit(max_length=Epoch(2), latest_checkpoint=latest_checkpoint)
        return trial.seen, events(context.run.run_dir, "checkpoint")[-1]["path"]

    stop_after = -1
    straight, _ = train()
    stop_after = 3
    before, checkpoint = train()
    after, _ = train(checkpoint)

    assert before + after == straight
    assert len(before) == 4
    assert sorted(n for batch in (before + after)[:6] for n in batch) == list(range(12))


def test_g18_a_local_resume_trains_only_what_is_left() -> None:
    """Determined trained 12 more batches, from sample 0 on."""
    with pytorch.init() as context:
        pytorch.Trainer(Watched(context, length=24), context).fit(max_length=Batch(7))
    checkpoint = events(context.run.run_dir, "checkpoint")[-1]["path"]
    with pytorch.init() as context:
        trial = Watched(context, length=24)
        pytorch.Trainer(trial, context).fit(max_length=Batch(12), latest_checkpoint=checkpoint)

    assert [entry for entry in trial.trace if entry.startswith("tb")] == [f"tb(0,{n})" for n in range(7, 12)]
    assert trial.seen == [[2.0 * n, 2.0 * n + 1] for n in range(7, 12)]
