"""Keras's fit in a run, by Determined's callbacks: with the Keras of TensorFlow's time (2) and with today's (3)."""

import os
from typing import Any

import keras

from stoker.compat.determined.cluster import checkpoint_name, run_context
from stoker.integrations.keras import StokerCallback
from stoker.run_dir import RunDir

IS_KERAS_2 = keras.__version__.startswith("2.")
_TF_WEIGHTS = "model_checkpoint"  # Determined's own name for it

Callback = keras.callbacks.Callback
EarlyStopping = keras.callbacks.EarlyStopping
ReduceLROnPlateau = keras.callbacks.ReduceLROnPlateau


class DeterminedCallback(StokerCallback):
    """Reports, keeps checkpoints, goes on from the run's latest one.

    Metrics keep their names whole ("val_accuracy"), because a search's file names its metric so. `checkpoint` may
    name another than the run's latest: its weights are taken, and training begins at the first epoch. `save_model` and
    `load_model` may be overridden, as there.
    """

    def __init__(
        self,
        core_context: Any,
        checkpoint: str | None = None,
        continue_id: "str | int | None" = None,
        *,
        train_metrics_report_period: "int | str" = "epoch",
        checkpoint_epochs: int = 1,
    ) -> None:
        period = train_metrics_report_period if isinstance(train_metrics_report_period, int) else None
        super().__init__(every_n_epochs=checkpoint_epochs, every_n_batches=period)
        self.core_context = core_context
        self._checkpoint = checkpoint

    def save_model(self, model: Any, path: str, distributed: Any) -> None:
        """Keras 2 keeps the optimizer's state only in TensorFlow's own format."""
        if IS_KERAS_2:
            model.save_weights(os.path.join(path, _TF_WEIGHTS))
        else:
            super().write_weights(path)

    def load_model(self, model: Any, path: str, distributed: Any) -> None:
        if IS_KERAS_2:
            model.load_weights(os.path.join(path, _TF_WEIGHTS)).expect_partial()
        else:
            super().read_weights(path)

    def on_train_begin(self, logs: Any = None) -> None:
        is_built = self.model.built
        # A model that is built by its first batch gets its weights then, from TensorFlow's own format.
        self.model.built = is_built or IS_KERAS_2
        super().on_train_begin(logs)
        self.model.built = is_built
        latest = checkpoint_name(self._link.context.latest_checkpoint)
        if self._checkpoint and self._checkpoint != latest and self.core_context is not None:
            with self.core_context.checkpoint.restore_path(self._checkpoint) as path:
                self.read_weights(str(path))

    def write_weights(self, folder: str) -> None:
        self.save_model(self.model, folder, getattr(self.core_context, "distributed", None))

    def read_weights(self, folder: str) -> None:
        self.load_model(self.model, folder, getattr(self.core_context, "distributed", None))

    def begin_at(self, epoch: int) -> None:
        super().begin_at(epoch)
        if IS_KERAS_2:
            self.model._training_state = _Begun(epoch)

    def report_epoch(self, logs: dict[str, Any]) -> None:
        validation = {name: value for name, value in logs.items() if name.startswith("val_")}
        training = {name: value for name, value in logs.items() if name not in validation}
        counted = {"batches": self._step, "epochs": self._epoch + 1}
        self._link.report(self._step, {**training, **counted}, group="training")
        if validation:
            self._link.report(self._step, {**validation, **counted}, group="validation")


class TensorBoard(keras.callbacks.TensorBoard):  # type: ignore[misc]
    """Keras's own, writing to the run's folder. The older dialect gives no context."""

    def __init__(self, core_context: Any = None, *args: Any, **kwargs: Any) -> None:
        if isinstance(core_context, str):  # Keras's first argument is the folder
            core_context, args = None, ()
        own = core_context.train.get_tensorboard_path() if core_context is not None else _folder_of_run()
        kwargs["log_dir"] = str(own)
        super().__init__(*args, **kwargs)


def load_model_from_checkpoint_path(path: str, tags: list[str] | None = None) -> Any:
    """The weights of a checkpoint need their model: say so, as Determined did for those of `DeterminedCallback`."""
    raise RuntimeError(
        f"{path} holds weights without their model. Build the model as for training, and call"
        f" model.load_weights({os.path.join(path, _TF_WEIGHTS)!r})."
    )


class _Begun:
    """What Keras 2 asks where to begin, and tells when it is done."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: Any, initial_epoch: int, mode: Any = None
    ) -> tuple[int, int]:
        return max(self._epoch, initial_epoch), 0

    # Before 2.13 it was this.
    def maybe_load_initial_epoch_from_ckpt(self, initial_epoch: int, mode: Any = None) -> int:
        return max(self._epoch, initial_epoch)


def _folder_of_run() -> str:
    return str(RunDir(run_context().run_dir).tensorboard)
