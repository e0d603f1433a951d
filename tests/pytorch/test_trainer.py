"""What `fit` does when: periods, policies, schedules, several models, aggregation, clipping, reproducibility."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from stoker import pytorch
from stoker.pytorch import Batch, Batches, Epoch, Epochs, Keep, LRScheduler
from tests.pytorch.trials import Numbers, OneVar, Watched, checkpoint_steps, events, steps


def fit(trial_class: type[Any] = Watched, *, init: dict[str, Any] | None = None, **settings: Any) -> Any:
    """Train a trial and return it."""
    context = pytorch.init(**(init or {}))
    trial = context.build_trial(trial_class)
    trial.metrics = context.fit(trial, **{"max_length": Batch(8), "keep": None, **settings})
    return trial


def run_of(trial: Any) -> str:
    return str(trial.context.run.run_dir)


def test_the_loop_calls_train_batch_within_three_frames() -> None:
    class Deep(Watched):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            names = [frame.function for frame in inspect.stack()]
            self.depth = names.index("fit")
            return super().train_batch(batch, epoch_idx, batch_idx)

    assert fit(Deep).depth <= 3


def test_a_trial_built_by_the_context_can_be_given_to_a_trainer_too() -> None:
    context = pytorch.init()
    trial = context.build_trial(OneVar)

    pytorch.Trainer(trial, context).fit(max_length=Batch(2))

    (event,) = events(context.run.run_dir, "checkpoint")
    assert pytorch.load_trial_from_checkpoint_path(event["path"]).model.weight.item() == trial.weights[-1]


def test_a_bare_length_gives_one_validation_one_checkpoint_and_one_report() -> None:
    trial = fit(max_length=Epoch(2))

    assert steps(run_of(trial), "training") == steps(run_of(trial), "validation") == [8]
    assert checkpoint_steps(run_of(trial)) == [8]


def test_periods_add_to_what_happens_at_the_end() -> None:
    trial = fit(validation_period=Batch(4), checkpoint_period=Batch(3), checkpoint_policy="none")

    assert steps(run_of(trial), "validation") == [4, 8]
    assert checkpoint_steps(run_of(trial)) == [3, 6, 8]
    assert steps(run_of(trial), "training") == [3, 4, 6, 8]


def test_a_schedule_names_its_moments() -> None:
    trial = fit(validation_period=Batch([1, 5]), checkpoint_period=Epoch({1}), checkpoint_policy="none")

    assert steps(run_of(trial), "validation") == [1, 5, 8]
    assert checkpoint_steps(run_of(trial)) == [4, 8]


def test_step_zero_validation_comes_before_the_first_batch() -> None:
    trial = fit(max_length=Batch(1), step_zero_validation=True)

    assert trial.trace[:4] == ["eb(0)", "eb(1)", "eb(2)", "tb(0,0)"]
    assert steps(run_of(trial), "validation") == [0, 1]


def test_plural_units_are_the_same_and_the_seeds_names_of_periods_too() -> None:
    context = pytorch.init()
    trial = context.build_trial(Watched)

    context.train(
        trial, max_length=Epochs(2), min_validation_period=Batches(4), min_checkpoint_period=Epochs(1), keep=None
    )

    assert steps(run_of(trial), "validation") == [4, 8]
    assert checkpoint_steps(run_of(trial)) == [4, 8]


class Scripted(Watched):
    """Its validation metric follows a script."""

    script = (3.0, 1.0, 2.0, 0.5)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"score": self.script[(len(self.seen) - 1) // 2]}


@pytest.mark.parametrize(
    ("policy", "settings", "expected"),
    [
        ("best", {}, [2, 4, 8]),
        ("best", {"smaller_is_better": False, "metric": "score"}, [2, 8]),
        ("all", {}, [2, 4, 6, 8]),
        ("none", {}, [8]),
    ],
)
def test_the_policy_decides_which_validations_are_kept(policy: str, settings: Any, expected: list[int]) -> None:
    trial = fit(Scripted, validation_period=Batch(2), checkpoint_policy=policy, **settings)

    assert checkpoint_steps(run_of(trial)) == expected


def test_best_is_remembered_when_training_goes_on(run_dir: Any) -> None:
    first = run_dir()
    fit(Scripted, max_length=Batch(4), validation_period=Batch(2))

    class Worse(Scripted):
        script = (2.0, 2.0, 2.0, 2.0)

    second = run_dir(latest_checkpoint=events(first, "checkpoint")[-1]["path"])
    fit(Worse, max_length=Batch(7), validation_period=Batch(2))

    assert checkpoint_steps(second) == [7]


def test_searcher_settings_of_determined_name_the_metric() -> None:
    init = {"exp_conf": {"searcher": {"metric": "score", "smaller_is_better": False, "max_length": {"batches": 4}}}}

    trial = fit(Scripted, init=init, max_length=None, validation_period=Batch(2))

    assert checkpoint_steps(run_of(trial)) == [2, 4]


def test_keep_deletes_what_is_neither_best_nor_latest() -> None:
    trial = fit(Scripted, validation_period=Batch(2), checkpoint_period=Batch(1), keep=Keep(best=1, latest=2))

    kept = sorted(path.name for path in Path(run_of(trial), "checkpoints").iterdir())
    assert checkpoint_steps(run_of(trial)) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert kept == ["step-000000007", "step-000000008"]  # 8 is the best


def test_fit_returns_the_last_validation_or_else_the_last_report() -> None:
    class Blind(Watched):
        build_validation_data_loader = pytorch.PyTorchTrial.build_validation_data_loader

    assert fit().metrics.keys() == {"loss", "n"}
    assert fit(Blind).metrics.keys() == {"loss", "n", "batches", "epochs"}


def test_data_given_to_fit_wins_over_the_trials_own() -> None:
    trial = fit(
        max_length=Epoch(1),
        training_data=torch.utils.data.DataLoader(Numbers(3), batch_size=3),
        validation_data=pytorch.DataLoader(Numbers(1)),
    )

    assert trial.trace == ["tb(0,0)", "eb(0)"]
    assert trial.metrics["n"] == 1


def test_a_tensor_returned_from_train_batch_is_the_loss() -> None:
    class Bare(Watched):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            return super().train_batch(batch, epoch_idx, batch_idx)["loss"]

    assert events(run_of(fit(Bare)), "metric", "training")[0]["values"].keys() == {"loss", "batches", "epochs"}


def test_two_runs_with_one_seed_are_the_same_and_with_another_are_not() -> None:
    class Noisy(OneVar):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            return super().train_batch([part + torch.rand(1) for part in batch], epoch_idx, batch_idx)

    first, second, third = (fit(Noisy, init={"seed": seed}).weights for seed in (1, 1, 2))

    assert first == second
    assert first != third


def test_evaluate_full_dataset_equals_evaluate_batch() -> None:
    class Whole(OneVar):
        evaluate_batch = pytorch.PyTorchTrial.evaluate_batch

        def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
            losses = [OneVar.evaluate_batch(self, batch, 0)["loss"] for batch in data_loader]
            return {"loss": torch.stack(losses).mean(), "confusion": torch.ones(2, 2)}

    whole = fit(Whole)

    assert whole.metrics["loss"] == pytest.approx(fit(OneVar).metrics["loss"], abs=1e-6)
    assert whole.metrics["confusion"].tolist() == [[1, 1], [1, 1]]
    assert events(run_of(whole), "metric", "validation")[0]["values"].keys() == {"loss", "batches", "epochs"}


def test_evaluation_leaves_every_module_in_the_mode_it_found() -> None:
    class Frozen(OneVar):
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            self.body = context.wrap_model(nn.Sequential(nn.Dropout(), nn.BatchNorm1d(1)))
            self.body[1].eval()

        def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
            assert not self.body.training
            assert not torch.is_grad_enabled()
            return super().evaluate_batch(batch, batch_idx)

    body = fit(Frozen).body

    assert body.training
    assert body[0].training
    assert not body[1].training


@pytest.mark.parametrize(
    "clip",
    [
        lambda params: nn.utils.clip_grad_norm_(params, 0.001),
        lambda params: nn.utils.clip_grad_value_(params, 0.001),
    ],
)
def test_gradients_are_clipped_before_the_step(clip: Any) -> None:
    class Clipped(OneVar):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
            self.context.backward(loss)
            self.context.step_optimizer(self.opt, clip_grads=clip)
            self.weights.append(self.model.weight.item())
            return loss

    trial = fit(Clipped, init={"hparams": {"lr": 1.0}}, max_length=Batch(3))

    assert trial.weights == pytest.approx([0.001, 0.002, 0.003], rel=1e-3)


def test_aggregated_gradients_are_averaged() -> None:
    trial = fit(OneVar, init={"aggregation_frequency": 2, "hparams": {"lr": 0.1}}, max_length=Batch(6))

    expected = [1 - 0.8 ** (n // 2) for n in range(1, 7)]
    assert trial.weights == pytest.approx(expected, rel=1e-5)


def test_aggregated_gradients_can_be_summed() -> None:
    class Summed(OneVar):
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            context.optimizers.clear()
            self.opt = context.wrap_optimizer(self.opt, average_aggregated_gradients=False)

    trial = fit(Summed, init={"aggregation_frequency": 2, "hparams": {"lr": 0.1}}, max_length=Batch(2))

    assert trial.weights[-1] == pytest.approx(0.4)


@pytest.mark.parametrize("mode", LRScheduler.StepMode)
def test_several_models_optimizers_and_schedulers_in_one_trial(mode: LRScheduler.StepMode) -> None:
    class Pair(OneVar):
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            self.other = context.wrap_model(nn.Linear(1, 1))
            self.other_opt = context.wrap_optimizer(torch.optim.AdamW(self.other.parameters()))
            for optimizer in (self.opt, self.other_opt):
                context.wrap_lr_scheduler(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5), mode)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            data, labels = batch
            first = nn.functional.mse_loss(self.model(data), labels)
            second = nn.functional.mse_loss(self.other(data), labels)
            self.context.backward(first)
            self.context.step_optimizer(self.opt)
            self.context.backward(second)
            self.context.step_optimizer(self.other_opt)
            return {"first": first, "second": second}

    trial = fit(Pair, max_length=Epoch(1))
    again = fit(Pair, max_length=Epoch(2), latest_checkpoint=events(run_of(trial), "checkpoint")[-1]["path"])

    rates = [optimizer.param_groups[0]["lr"] for optimizer in again.context.optimizers]
    stepped = {"STEP_EVERY_EPOCH": 2, "MANUAL_STEP": 0}.get(mode.name, 128)
    assert rates == pytest.approx([0.001 * 0.5**stepped] * 2)


def test_progress_is_reported_from_first_to_last() -> None:
    trial = fit(OneVar, max_length=Batch(100), reporting_period=Batch(10))

    fractions = [event["fraction"] for event in events(run_of(trial), "progress")]
    assert fractions == pytest.approx([0.1 * n for n in range(1, 11)])


def test_two_fits_in_one_script_do_not_load_each_others_checkpoints(run_dir: Any) -> None:
    def script(**launch: Any) -> list[int]:
        run_dir(**launch)
        context = pytorch.init()
        trials = [context.build_trial(Watched) for _ in range(2)]
        for trial in trials:
            context.train(trial, max_length=Batch(4), checkpoint_period=Batch(2), keep=None)
        return [len(trial.seen) for trial in trials]

    assert script() == [4, 4]
    in_first = script(latest_checkpoint=str(run_dir().parent / "1" / "checkpoints" / "step-000000002"))
    in_second = script(latest_checkpoint=str(run_dir().parent / "1" / "checkpoints" / "step-000000002-2"))

    assert in_first == [2, 4]
    assert in_second == [4, 2]


def test_another_trials_checkpoint_is_a_warm_start(run_dir: Any) -> None:
    first = run_dir(trial_id=1)
    fit(OneVar, max_length=Batch(10))
    run_dir(trial_id=2)

    warm = fit(OneVar, max_length=Batch(5), latest_checkpoint=events(first, "checkpoint")[-1]["path"])

    assert len(warm.weights) == 5
    assert warm.weights[0] == pytest.approx(1 - 0.998**11, rel=1e-4)


def test_the_context_knows_the_current_batch_and_epoch() -> None:
    class Asking(Watched):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            context = self.context
            assert (context.current_train_batch(), context.current_train_epoch()) == (batch_idx, epoch_idx)
            self.marks = [*getattr(self, "marks", []), (context.is_epoch_start(), context.is_epoch_end())]
            return super().train_batch(batch, epoch_idx, batch_idx)

    marks = fit(Asking).marks

    assert marks == [(True, False), (False, False), (False, False), (False, True)] * 2


def test_a_profiler_sees_the_training() -> None:
    seen = []

    class Profiled(OneVar):
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            context.set_profiler(
                activities=[torch.profiler.ProfilerActivity.CPU],
                schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
                on_trace_ready=lambda profiler: seen.append(profiler.step_num),
            )

    fit(Profiled, max_length=Batch(6))

    assert seen == [4]
