"""What users get wrong, and the one sentence that tells them."""

import logging
import math
from typing import Any

import pytest
import torch
from torch import nn

from stoker import pytorch
from stoker.errors import StokerError, UsageError
from stoker.pytorch import Batch, Epoch, LRScheduler
from tests.pytorch.trials import Numbers, OneVar, Watched, checkpoint_steps


def fit(trial_class: type[Any] = Watched, *, init: dict[str, Any] | None = None, **settings: Any) -> Any:
    context = pytorch.init(**(init or {}))
    return context.fit(context.build_trial(trial_class), **{"max_length": Batch(4), **settings})


def returning(value: Any) -> type[Watched]:
    """A trial whose train_batch returns this."""

    class Returning(Watched):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            return value(batch_idx) if callable(value) else value

    return Returning


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "train_batch returned nothing. Expected a dict of metrics"),
        ([1.0], "train_batch returned a list. Expected a dict of metrics"),
        ({"loss": "low"}, "returned str 'low' for metric 'loss': a metric is a number or a tensor"),
        ({3: 1.0}, "a metric named 3: a name is a string"),
        ({"step": 1.0}, "a metric named 'step': .*not 'step' or 'group'"),
        (
            lambda n: {"loss": 1.0} if n < 2 else {"cost": 1.0},
            "metrics cost for one batch and loss for the batches before",
        ),
    ],
)
def test_wrong_returns_of_train_batch(value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fit(returning(value))


def test_wrong_returns_of_evaluate_batch() -> None:
    class Nothing(Watched):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
            return None

    class Changing(Watched):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
            return {f"m{batch_idx}": 1.0}

    with pytest.raises(UsageError, match="evaluate_batch returned nothing"):
        fit(Nothing)
    with pytest.raises(UsageError, match="evaluate_batch returned metrics m1 for one batch and m0"):
        fit(Changing)


def test_both_or_neither_evaluate_method() -> None:
    class Both(Watched):
        def evaluate_full_dataset(self, data_loader: Any) -> Any:
            return {}

    class Neither(Watched):
        evaluate_batch = pytorch.PyTorchTrial.evaluate_batch

    with pytest.raises(UsageError, match="Both has both evaluate_batch and evaluate_full_dataset"):
        fit(Both)
    with pytest.raises(UsageError, match="Neither has neither evaluate_batch nor evaluate_full_dataset"):
        fit(Neither)


def test_a_trial_without_train_batch_and_something_that_is_no_trial() -> None:
    class Empty(pytorch.PyTorchTrial):
        pass

    with pytest.raises(UsageError, match="Empty has no train_batch"):
        fit(Empty, training_data=pytorch.DataLoader(Numbers(3)))
    with pytest.raises(UsageError, match="Trainer got a Linear"):
        pytorch.Trainer(nn.Linear(1, 1), pytorch.init())  # type: ignore[arg-type]


def test_no_data_and_empty_data() -> None:
    class Dataless(Watched):
        build_training_data_loader = pytorch.PyTorchTrial.build_training_data_loader

    with pytest.raises(UsageError, match="No training data: pass fit"):
        fit(Dataless)
    with pytest.raises(UsageError, match="training data"):
        fit(training_data=pytorch.DataLoader(Numbers(0)))
    with pytest.raises(UsageError, match="The validation data is empty"):
        fit(validation_data=pytorch.DataLoader(Numbers(0)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Batch(0), r"Batch\(0\): a length or period is at least 1"),
        (lambda: Epoch(-1), r"Epoch\(-1\): a length or period is at least 1"),
        (lambda: Batch(1.5), r"Batch\(1.5\): expected a whole number"),  # type: ignore[arg-type]
        (lambda: Epoch("1"), r"Epoch\('1'\): expected a whole number"),  # type: ignore[arg-type]
        (lambda: Batch(True), r"Batch\(True\): expected a whole number"),
    ],
)
def test_units_of_nothing(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_length": None}, "How long to train"),
        ({"max_length": 10}, r"max_length=10: expected Batch\(100\) or Epoch\(1\)"),
        ({"max_length": Batch([1, 2])}, "max_length is one length"),
        ({"validation_period": 3}, "validation_period=3: expected Batch"),
        ({"checkpoint_policy": "latest"}, "checkpoint_policy='latest': expected 'best', 'all' or 'none'"),
        ({"metric": "accuracy"}, "is 'accuracy', but validation gave loss, n"),
    ],
)
def test_settings_of_fit(settings: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fit(**settings)


def test_epochs_of_data_without_a_length() -> None:
    class Endless(torch.utils.data.IterableDataset):
        def __iter__(self) -> Any:
            while True:
                yield torch.ones(1)

    loader = torch.utils.data.DataLoader(Endless(), batch_size=2)

    with pytest.raises(UsageError, match=r"max_length=Epoch\(1\), but the training data has no length"):
        fit(training_data=loader, max_length=Epoch(1))
    with pytest.raises(UsageError, match=r"validation_period=Epoch\(2\), but the training data has no length"):
        fit(training_data=loader, validation_period=Epoch(2))


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ({"precision": "int4"}, "precision='int4': expected one of fp32, bf16, fp16"),
        ({"strategy": "zero"}, "strategy='zero': expected one of ddp, fsdp"),
        ({"aggregation_frequency": 0}, "aggregation_frequency=0: expected a whole number of at least 1"),
    ],
)
def test_settings_of_init(init: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pytorch.init(**init)


def test_hyperparameters_that_are_not_there() -> None:
    context = pytorch.init(hparams={"lr": 1, "global_batch_size": "many"})

    with pytest.raises(UsageError, match="No hyperparameter 'layers'. There are: lr, global_batch_size"):
        context.get_hparam("layers")
    with pytest.raises(UsageError, match="global_batch_size is 'many'"):
        context.get_global_batch_size()


def test_asking_for_the_current_batch_before_training() -> None:
    with pytest.raises(StokerError, match="training has not begun"):
        pytorch.init().current_train_batch()


def test_wrapping_twice_or_in_the_wrong_order() -> None:
    context, model = pytorch.init(), nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    each_epoch = LRScheduler.StepMode.STEP_EVERY_EPOCH

    with pytest.raises(UsageError, match="optimizer is not wrapped: call wrap_optimizer before"):
        context.wrap_lr_scheduler(scheduler, each_epoch)
    context.wrap_model(model)
    with pytest.raises(UsageError, match="wrapped already; wrap_model"):
        context.wrap_model(model)
    context.wrap_optimizer(optimizer)
    with pytest.raises(UsageError, match="wrapped already; wrap_optimizer"):
        context.wrap_optimizer(optimizer)
    with pytest.raises(UsageError, match="ReduceLROnPlateau needs a metric"):
        context.wrap_lr_scheduler(plateau, each_epoch)
    with pytest.raises(UsageError, match="frequency is 0"):
        context.wrap_lr_scheduler(scheduler, each_epoch, frequency=0)
    with pytest.raises(UsageError, match="wrap_scaler comes before wrap_model"):
        context.wrap_scaler(torch.amp.GradScaler("cpu"))


def test_horovod_s_arguments_and_aggregation_without_zeroing() -> None:
    context = pytorch.init(aggregation_frequency=2)
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1)

    with pytest.raises(UsageError, match="were Horovod's"):
        context.wrap_optimizer(optimizer, backward_passes_per_step=2)
    with pytest.raises(UsageError, match="auto_zero_grads=False with aggregation_frequency=2"):
        context.step_optimizer(optimizer, auto_zero_grads=False)


def test_a_model_that_was_not_wrapped(caplog: pytest.LogCaptureFixture) -> None:
    class Unwrapped(pytorch.PyTorchTrial):
        def __init__(self, context: Any) -> None:
            self.model = nn.Linear(1, 1)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            return self.model(batch).mean()

    with caplog.at_level(logging.WARNING):
        fit(Unwrapped, training_data=pytorch.DataLoader(Numbers(3)))

    assert [record.message for record in caplog.records] == [
        "no model was wrapped with context.wrap_model: checkpoints will hold no weights"
    ]


def test_a_nan_loss_is_reported_with_its_batch(caplog: pytest.LogCaptureFixture) -> None:
    losses = returning(lambda n: {"loss": torch.tensor(math.nan if n == 5 else 1.0)})

    with caplog.at_level(logging.WARNING):
        fit(losses, max_length=Batch(8), reporting_period=Batch(3))

    assert [record.message for record in caplog.records] == [
        "loss is nan at batch 5 (epoch 1); fit(stop_on_nan=True) would end here"
    ]


def test_a_nan_loss_ends_the_training_if_asked_to_without_a_checkpoint_after_it() -> None:
    losses = returning(lambda n: {"loss": torch.tensor(math.inf if n == 5 else 1.0)})
    context = pytorch.init()

    with pytest.raises(StokerError, match=r"loss is inf at batch 5 \(epoch 1\), and fit was told stop_on_nan"):
        context.fit(
            context.build_trial(losses), max_length=Batch(8), checkpoint_period=Batch(3), stop_on_nan=True, keep=None
        )

    assert checkpoint_steps(context.run.run_dir) == [3]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB."),
        RuntimeError("[x] can't allocate memory: y"),
    ],
)
def test_out_of_memory_says_the_batch_and_what_to_try(error: Exception) -> None:
    class Greedy(OneVar):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 2:
                raise error
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytest.raises(StokerError, match="Out of memory on cpu at batch 2, of 1 sample.*smaller batch size") as caught:
        fit(Greedy)

    assert caught.value.__cause__ is error


def test_other_errors_of_user_code_stay_what_they_are() -> None:
    class Broken(OneVar):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="^mine$"):
        fit(Broken)
