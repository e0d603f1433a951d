"""The ready callbacks, and callbacks' state in checkpoints."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from stoker import pytorch
from stoker.errors import UsageError
from stoker.pytorch import EMA, Batch, EarlyStopping, GradientNormMonitor, LearningRateMonitor, LRFinder
from tests.pytorch.trials import OneVar, checkpoint_steps, events, steps


def fit_with(make: Any, trial_class: type[Any] = OneVar, **settings: Any) -> tuple[Any, Any]:
    """Train with one callback; returns the trial and the callback."""
    context = pytorch.init(hparams={"lr": settings.pop("lr", 0.1)})
    trial = context.build_trial(trial_class)
    callback = make(trial.context)
    trial.callbacks = {"callback": callback}
    context.fit(trial, **{"max_length": Batch(20), "keep": None, **settings})
    return trial, callback


class Scripted(OneVar):
    script: tuple[float, ...] = (3.0, 2.0, 2.5, 2.1, 2.2, 1.0)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"loss": self.script[len(self.weights) - 1]}


def test_early_stopping_stops_after_its_patience() -> None:
    trial, callback = fit_with(
        lambda context: EarlyStopping(context, patience=3), Scripted, max_length=Batch(6), validation_period=Batch(1)
    )

    assert len(trial.weights) == 5
    assert callback.best == 2.0


def test_early_stopping_goes_on_counting_after_a_resume(run_dir: Any) -> None:
    def make(context: Any) -> EarlyStopping:
        return EarlyStopping(context, patience=3)

    first = run_dir()
    fit_with(make, Scripted, max_length=Batch(4), validation_period=Batch(1))

    class Onward(Scripted):
        script = (9.0,) * 8

    run_dir(latest_checkpoint=events(first, "checkpoint")[-1]["path"])
    trial, callback = fit_with(make, Onward, max_length=Batch(8), validation_period=Batch(1))

    assert len(trial.weights) == 1
    assert callback.best == 2.0


def test_early_stopping_says_which_metrics_there_are() -> None:
    with pytest.raises(UsageError, match="watches 'accuracy', but validation gave loss"):
        fit_with(lambda context: EarlyStopping(context, "accuracy"), max_length=Batch(1))


def test_ema_validates_with_the_average_and_trains_on_the_weights() -> None:
    trial, ema = fit_with(lambda context: EMA(context, decay=0.5), max_length=Batch(4), validation_period=Batch(4))

    weights = [1 - 0.8**n for n in range(1, 5)]
    average = 0.0
    for weight in weights:
        average = 0.5 * average + 0.5 * weight
    validation = events(trial.context.run.run_dir, "metric", "validation")[0]["values"]["loss"]
    assert trial.weights == pytest.approx(weights, rel=1e-5)
    assert validation == pytest.approx((1 - average) ** 2, rel=1e-5)
    assert trial.model.weight.item() == pytest.approx(weights[-1], rel=1e-5)
    with ema.applied():
        assert trial.model.weight.item() == pytest.approx(average, rel=1e-5)
    assert trial.model.weight.item() == pytest.approx(weights[-1], rel=1e-5)


def test_ema_goes_on_from_a_checkpoint(run_dir: Any) -> None:
    def make(context: Any) -> EMA:
        return EMA(context, decay=0.5)

    run_dir()
    _, straight = fit_with(make, max_length=Batch(6))
    first = run_dir()
    fit_with(make, max_length=Batch(3))
    run_dir(latest_checkpoint=events(first, "checkpoint")[-1]["path"])
    _, resumed = fit_with(make, max_length=Batch(6))

    assert [average.tolist() for average in resumed.state_dict()["average"]] == [
        average.tolist() for average in straight.state_dict()["average"]
    ]


def test_monitors_add_to_the_training_metrics() -> None:
    both: dict[str, Any] = {}

    class Watched(OneVar):
        def build_callbacks(self) -> Any:
            both.update(lr=LearningRateMonitor(self.context), norm=GradientNormMonitor(self.context))
            return both

    context = pytorch.init(hparams={"lr": 0.25})
    trial = context.build_trial(Watched)
    context.fit(trial, max_length=Batch(2), reporting_period=Batch(1))

    reports = [event["values"] for event in events(context.run.run_dir, "metric", "training")]
    assert [report["lr"] for report in reports] == [0.25, 0.25]
    assert [report["gradient_norm"] for report in reports] == pytest.approx([2.0, 1.0])
    assert [report["gradient_norm_max"] for report in reports] == pytest.approx([2.0, 1.0])


def test_lr_finder_finds_where_the_loss_falls() -> None:
    class Bumpy(OneVar):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            return super().train_batch([torch.ones(4, 1), torch.ones(4, 1)], epoch_idx, batch_idx)

    trial, finder = fit_with(
        lambda context: LRFinder(context, min_lr=1e-5, max_lr=100, num_batches=60),
        Bumpy,
        max_length=Batch(60),
        reporting_period=Batch(5),
    )

    rates = [rate for rate, _ in finder.history]
    assert rates[0] == pytest.approx(1e-5)
    assert rates[1] / rates[0] == pytest.approx((1e7) ** (1 / 59))
    assert 0.005 < finder.suggestion < 1.0  # it diverges above 1
    assert len(trial.weights) < 60
    assert checkpoint_steps(trial.context.run.run_dir)[-1] == len(trial.weights)


def test_callbacks_leave_the_optimizer_when_training_ends_and_training_can_go_on() -> None:
    context = pytorch.init(hparams={"lr": 0.1})
    trial = context.build_trial(OneVar)
    for _ in range(2):
        trial.callbacks = {
            "ema": EMA(trial.context),
            "norm": GradientNormMonitor(trial.context),
            "finder": LRFinder(trial.context),
        }
        trial.context.set_stop_requested(True)
        context.fit(trial, max_length=Batch(3))

    assert len(trial.weights) == 2
    assert not trial.opt._optimizer_step_pre_hooks
    assert not trial.opt._optimizer_step_post_hooks
    assert not trial.context.get_stop_requested()


def test_what_hooks_add_to_metrics_is_reported_and_returned() -> None:
    class Adding(pytorch.PyTorchCallback):
        def on_training_workload_end(self, avg_metrics: Any, batch_metrics: Any) -> None:
            avg_metrics["added"] = 1.0

        def on_validation_end(self, metrics: Any) -> None:
            metrics["added"] = 2.0

    trial, _ = fit_with(lambda context: Adding(), max_length=Batch(1))

    run = trial.context.run.run_dir
    assert events(run, "metric", "training")[0]["values"]["added"] == 1.0
    assert events(run, "metric", "validation")[0]["values"]["added"] == 2.0


def test_hooks_can_add_to_a_checkpoint_and_change_it_when_it_is_loaded(run_dir: Any) -> None:
    class Adding(pytorch.PyTorchCallback):
        def on_checkpoint_save_start(self, checkpoint: Any) -> None:
            checkpoint["vocabulary"] = {"words": ["a", "b"], 3: torch.ones(2)}

        def on_checkpoint_load_start(self, checkpoint: Any) -> None:
            self.found = checkpoint["vocabulary"]
            checkpoint["models_state_dict"][0]["weight"] = torch.full((1, 1), 7.0)

    first = run_dir()
    fit_with(lambda context: Adding(), max_length=Batch(1))
    run_dir(latest_checkpoint=events(first, "checkpoint")[-1]["path"])
    trial, adding = fit_with(lambda context: Adding(), max_length=Batch(2))

    assert adding.found["words"] == ["a", "b"]
    assert adding.found[3].tolist() == [1, 1]
    assert trial.weights == pytest.approx([7.0 - 0.1 * 2 * 6.0])


def test_shutdown_is_called_after_an_error_too() -> None:
    called = []

    class Last(pytorch.PyTorchCallback):
        def on_training_workload_end(self, avg_metrics: Any, batch_metrics: Any) -> None:
            raise ValueError("in a hook")

        def on_trial_shutdown(self) -> None:
            called.append(True)

    with pytest.raises(ValueError, match="in a hook"):
        fit_with(lambda context: Last(), max_length=Batch(1))

    assert called == [True]


def test_a_frozen_batch_of_hooks_sees_losses_as_floats() -> None:
    rows: list[Any] = []

    class Collect(pytorch.PyTorchCallback):
        def on_training_workload_end(self, avg_metrics: Any, batch_metrics: Any) -> None:
            rows.extend(batch_metrics)

    fit_with(lambda context: Collect(), max_length=Batch(3))

    assert all(type(row["loss"]) is float and math.isfinite(row["loss"]) for row in rows)


def test_plateau_steps_by_hand_in_a_callback() -> None:
    class Plateau(OneVar):
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.opt, patience=0, threshold=10.0)
            context.wrap_lr_scheduler(self.scheduler, pytorch.LRScheduler.StepMode.MANUAL_STEP)

        def build_callbacks(self) -> Any:
            trial = self

            class Step(pytorch.PyTorchCallback):
                def on_validation_end(self, metrics: Any) -> None:
                    trial.scheduler.step(metrics["loss"])

            return {"step": Step()}

    context = pytorch.init(hparams={"lr": 0.1})
    trial = context.build_trial(Plateau)
    context.fit(trial, max_length=Batch(3), validation_period=Batch(1))

    assert trial.opt.param_groups[0]["lr"] == pytest.approx(0.1 * 0.1**3)
    assert steps(context.run.run_dir, "validation") == [1, 2, 3]
    assert isinstance(trial.model, nn.Linear)
