"""TFKerasTrial, the older dialect's class for Keras: a compiled model and its data, fitted as the file says."""

from typing import Any

from stoker.compat.determined.cluster import run_context
from stoker.compat.determined.keras_callbacks import DeterminedCallback
from stoker.errors import UsageError

InputData = Any  # a pair of arrays, a tf.data.Dataset, a keras Sequence


class TFKerasTrialContext:
    """What a trial's methods ask. Wrapping changes nothing here: processes of one model are TensorFlow's strategy's."""

    def __init__(self) -> None:
        self._run = run_context()

    def get_hparam(self, name: str) -> Any:
        if name not in self._run.hparams:
            raise UsageError(f"No hyperparameter {name!r}. There are: {', '.join(self._run.hparams) or '(none)'}.")
        return self._run.hparams[name]

    def get_hparams(self) -> dict[str, Any]:
        return self._run.hparams

    def get_data_config(self) -> dict[str, Any]:
        return {name: value for name, value in self._run.config_data.items() if name != "stoker"}

    def get_experiment_config(self) -> dict[str, Any]:
        return dict(self._run.config_data.get("stoker", {}).get("experiment", {}))

    def get_global_batch_size(self) -> int:
        return int(self.get_hparam("global_batch_size"))

    def get_per_slot_batch_size(self) -> int:
        return self.get_global_batch_size() // max(self._run.world_size, 1)

    def get_trial_seed(self) -> int:
        return int(self._run.seed)

    def wrap_model(self, model: Any) -> Any:
        return model

    def wrap_optimizer(self, optimizer: Any) -> Any:
        return optimizer

    def wrap_dataset(self, dataset: Any, shard: bool = True) -> Any:
        return dataset

    def cache_train_dataset(self, *args: Any, **kwargs: Any) -> Any:
        return lambda build: build

    cache_validation_dataset = cache_train_dataset


class TFKerasTrial:
    """Write `build_model` and the two data loaders; `keras_callbacks` if wanted."""

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


def train_keras(cls: type[Any], settings: dict[str, Any]) -> None:
    """Fit a TFKerasTrial for the file's max_length; the callback goes on from the latest checkpoint by itself."""
    context = TFKerasTrialContext()
    trial = cls(context)
    model = trial.build_model()
    training = _fit_arguments(trial.build_training_data_loader(), context)
    validation = trial.build_validation_data_loader()
    length = settings.get("max_length") or {"epochs": 1}
    if "epochs" in length:
        epochs = int(length["epochs"])
    else:  # an epoch is then what lies between two validations
        batches = int(length.get("batches") or max(int(length["records"]) // context.get_global_batch_size(), 1))
        period = int((settings.get("validation_period") or {}).get("batches", 0)) or batches
        epochs, training["steps_per_epoch"] = -(-batches // period), min(period, batches)
        training["x"] = _repeated(training["x"])
    callbacks = [*trial.keras_callbacks(), DeterminedCallback(None)]
    model.fit(**training, validation_data=validation, epochs=epochs, callbacks=callbacks)


def _fit_arguments(data: Any, context: TFKerasTrialContext) -> dict[str, Any]:
    """Arrays come as a pair; datasets and sequences bring their own batches."""
    if isinstance(data, tuple):
        return {"x": data[0], "y": data[1], "batch_size": context.get_per_slot_batch_size()}
    return {"x": data}


def _repeated(data: Any) -> Any:
    return data.repeat() if hasattr(data, "repeat") and hasattr(data, "element_spec") else data
