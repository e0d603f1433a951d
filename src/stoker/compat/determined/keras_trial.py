"""TFKerasTrial, the older dialect's class for Keras: a compiled model and its data, fitted as the file says."""

import sys
from typing import Any

import keras

from stoker.compat.determined.cluster import document_of, run_context
from stoker.compat.determined.keras_callbacks import Callback, DeterminedCallback
from stoker.errors import UsageError

InputData = Any  # a pair of arrays, a tf.data.Dataset, a keras Sequence


class TFKerasTrialContext:
    """What a trial's methods ask. Wrapping changes nothing here: processes of one model are TensorFlow's strategy's."""

    def __init__(self, hparams: dict[str, Any] | None = None) -> None:
        self._run = run_context()
        self._hparams = {**(hparams or {}), **self._run.hparams}
        self.experimental = self  # cache_train_dataset and its kin were below this name
        self.fit_settings: dict[str, Any] = {}
        self.stop_requested = False

    @property
    def is_chief(self) -> bool:
        return self._run.rank == 0

    @property
    def distributed(self) -> Any:
        from stoker.compat.determined.core import DummyDistributedContext  # noqa: PLC0415 - rarely asked

        return DummyDistributedContext()

    def get_hparam(self, name: str) -> Any:
        if name not in self._hparams:
            raise UsageError(f"No hyperparameter {name!r}. There are: {', '.join(self._hparams) or '(none)'}.")
        return self._hparams[name]

    def get_hparams(self) -> dict[str, Any]:
        return self._hparams

    def get_data_config(self) -> dict[str, Any]:
        return dict(self._run.config_data)

    def get_experiment_config(self) -> dict[str, Any]:
        return document_of(self._run)

    def get_global_batch_size(self) -> int:
        return int(self.get_hparam("global_batch_size"))

    def get_per_slot_batch_size(self) -> int:
        return self.get_global_batch_size()  # one process trains, however many there are

    def get_trial_seed(self) -> int:
        return int(self._run.seed)

    def get_tensorboard_path(self) -> str:
        return f"{self._run.run_dir}/tensorboard"

    def set_stop_requested(self, stop_requested: bool) -> None:
        self.stop_requested = stop_requested

    def get_stop_requested(self) -> bool:
        return self.stop_requested

    def configure_fit(
        self, verbose: Any = None, class_weight: Any = None, validation_steps: int | None = None, **more: Any
    ) -> None:
        """Of these, what `fit` is given; workers and queues were for another Keras."""
        given = {"verbose": verbose, "class_weight": class_weight, "validation_steps": validation_steps}
        self.fit_settings |= {name: value for name, value in given.items() if value is not None}

    def wrap_model(self, model: Any) -> Any:
        return model

    def wrap_optimizer(self, optimizer: Any, **settings: Any) -> Any:
        return optimizer

    def wrap_dataset(self, dataset: Any, shard: bool = True) -> Any:
        return dataset

    def cache_train_dataset(self, *args: Any, **kwargs: Any) -> Any:
        return lambda build: build

    cache_validation_dataset = cache_train_dataset


class TFKerasTrial:
    """Write `build_model` and the two data loaders; `keras_callbacks` if wanted."""

    trial_context_class = TFKerasTrialContext

    def __init__(self, context: TFKerasTrialContext) -> None:
        self.context = context

    def build_model(self) -> Any:
        raise NotImplementedError

    def build_training_data_loader(self) -> Any:
        raise NotImplementedError

    def build_validation_data_loader(self) -> Any:
        raise NotImplementedError

    def keras_callbacks(self) -> list[Any]:
        return []


def train_keras(cls: type[Any], settings: dict[str, Any], hparams: dict[str, Any] | None = None) -> None:
    """Fit a TFKerasTrial for the file's max_length; the callback goes on from the latest checkpoint by itself."""
    context = TFKerasTrialContext(hparams)
    if not context.is_chief:
        # Horovod is not here, and one process with the global batch size comes to the same.
        sys.stderr.write("TFKerasTrial: the first process trains, with the global batch size; this one need not.\n")
        return
    trial = cls(context)
    model = trial.build_model()
    training = _fit_arguments(trial.build_training_data_loader(), context)
    validation = trial.build_validation_data_loader()
    fitting = _how_long(training, settings, context)
    callbacks = [*trial.keras_callbacks(), _StopWhenAsked(context), DeterminedCallback(None)]
    model.fit(**{**fitting, **context.fit_settings}, validation_data=validation, callbacks=callbacks)


def _how_long(training: dict[str, Any], settings: dict[str, Any], context: TFKerasTrialContext) -> dict[str, Any]:
    """What `fit` is given: the data, epochs, their steps, and which of them end with a validation."""
    length = settings.get("max_length") or {"epochs": 1}
    period = settings.get("validation_period") or {}
    if settings.get("test_mode"):
        return {**_repeated(training, steps=1), "epochs": 1, "validation_steps": 1}
    if "epochs" not in length:  # an epoch is then what lies between two validations
        batches = _batches(length, context)
        steps = min(_batches(period, context) or batches, batches)
        return {**_repeated(training, steps=steps), "epochs": -(-batches // steps)}
    epochs, every = int(length["epochs"]), int(period.get("epochs") or 1)
    found: dict[str, Any] = {"epochs": epochs}
    if every > 1:
        found["validation_freq"] = sorted({*range(every, epochs, every), epochs})
    is_endless = _is_endless(training["x"])
    return {**(_repeated(training, steps=_epoch_length(context)) if is_endless else training), **found}


def _batches(length: dict[str, Any], context: TFKerasTrialContext) -> int:
    if "records" in length:
        return max(int(length["records"]) // context.get_global_batch_size(), 1)
    return int(length.get("batches") or 0)


def _is_endless(data: Any) -> bool:
    """A tf.data.Dataset that repeats: then the file says how long an epoch is, as it did."""
    return hasattr(data, "cardinality") and int(data.cardinality()) == -1


def _epoch_length(context: TFKerasTrialContext) -> int:
    records = context.get_experiment_config().get("records_per_epoch")
    if not records:
        raise UsageError(
            "The training data repeats without end, and max_length is in epochs: how long is one? Say so with"
            " records_per_epoch, or give max_length in batches."
        )
    return _batches({"records": records}, context)


class _StopWhenAsked(Callback):  # type: ignore[misc]
    """Ends the fit after an epoch, where the trial's own code has asked for it."""

    def __init__(self, context: TFKerasTrialContext) -> None:
        super().__init__()
        self._context = context

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._context.stop_requested:
            self.model.stop_training = True


def _fit_arguments(data: Any, context: TFKerasTrialContext) -> dict[str, Any]:
    """Arrays come as a pair; datasets and sequences bring their own batches."""
    if isinstance(data, tuple):
        names = ("x", "y", "sample_weight")
        return {**dict(zip(names, data, strict=False)), "batch_size": context.get_per_slot_batch_size()}
    return {"x": data}


def _repeated(training: dict[str, Any], *, steps: int) -> dict[str, Any]:
    """An epoch of so many batches, whatever the data's own length: it goes on where the epoch before has ended."""
    data = training["x"]
    if hasattr(data, "repeat") and hasattr(data, "element_spec"):
        return {"x": data if _is_endless(data) else data.repeat(), "steps_per_epoch": steps}
    if "batch_size" not in training:
        return {"x": _over_and_over(data, steps)} if hasattr(data, "__getitem__") else {"x": data}
    import tensorflow as tf  # noqa: PLC0415 - takes seconds

    arrays = tuple(training[name] for name in ("x", "y", "sample_weight") if name in training)
    batches = tf.data.Dataset.from_tensor_slices(arrays).batch(training["batch_size"])
    return {"x": batches.repeat(), "steps_per_epoch": steps}


def _over_and_over(sequence: Any, steps: int) -> Any:
    """A sequence rather than a generator, whose thread would keep Keras 3 from ending."""
    base = getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence

    class Repeated(base):  # type: ignore[misc, valid-type]
        begun = 0

        def __len__(self) -> int:
            return steps

        def __getitem__(self, place: int) -> Any:
            return sequence[(self.begun + place) % len(sequence)]

        def on_epoch_end(self) -> None:
            self.begun += steps

    return Repeated()
