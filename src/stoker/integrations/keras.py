"""Keras's fit, tied to a run, on any of its backends.

callback = StokerCallback()
model.fit(x, y, epochs=10, callbacks=[callback])
"""

import json
import os
from typing import Any

from stoker.context import Context
from stoker.integrations.link import RunLink

try:
    import keras
except ImportError as error:
    raise ImportError("stoker.integrations.keras needs Keras 3: `pip install keras`.") from error

_WEIGHTS = "model.weights.h5"
_STATE = "training.json"


class StokerCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Reports metrics after every epoch, saves a checkpoint after every `every_n_epochs`, goes on from the newest one.

    With `every_n_epochs=0` there is one checkpoint, at the end. The model must be built before `fit`.
    `every_n_batches` reports the running metrics within an epoch too. The newest `keep` checkpoints stay with the run.
    Told to stop, it saves at the next batch and the process ends; with `exit_on_stop=False`, `fit()` returns instead.
    Keras cannot begin in the middle of an epoch: one that was stopped within is begun again, with the weights it had.
    """

    def __init__(
        self,
        context: Context | None = None,
        *,
        every_n_epochs: int = 1,
        every_n_batches: int | None = None,
        keep: int = 2,
        exit_on_stop: bool = True,
    ) -> None:
        super().__init__()
        self._link = RunLink(context, keep=keep)
        self._every_n_epochs = every_n_epochs
        self._every_n_batches = every_n_batches
        self._exit_on_stop = exit_on_stop
        self._epoch = 0
        self._step = 0  # batches trained, over all epochs and restarts

    @property
    def stopped(self) -> bool:
        return self._link.stopped

    def on_train_begin(self, logs: Any = None) -> None:
        self._link.begin()
        folder = self._link.context.latest_checkpoint
        if folder is None:
            return
        if not self.model.built:
            raise ValueError(
                "The model is not built, so its weights cannot be put back: give it an Input layer, or call"
                " model.build(input_shape) before fit."
            )
        self.read_weights(folder)
        with open(os.path.join(folder, _STATE)) as file:
            state = json.load(file)
        self._step = state["step"]
        self.begin_at(state["epoch"])

    def read_weights(self, folder: str) -> None:
        """Put back what `write_weights` wrote, the optimizer's state with it."""
        self.model.optimizer.build(self.model.trainable_variables)
        self.model.load_weights(os.path.join(folder, _WEIGHTS))

    def begin_at(self, epoch: int) -> None:
        """Have `fit` go on with this epoch."""
        self.model._initial_epoch = epoch  # what Keras's own BackupAndRestore does

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._step += 1
        if self._every_n_batches and self._step % self._every_n_batches == 0:
            self._link.report(self._step, logs or {}, group="training")
        if self._link.should_stop(self._step) and not self.model.stop_training:
            self._save(epoch=self._epoch)
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._link.stopped:
            return  # saved within the epoch
        self.report_epoch(logs or {})
        if self._every_n_epochs and (epoch + 1) % self._every_n_epochs == 0:
            self._save(epoch=epoch + 1)
        if self.params and self.params.get("epochs"):
            self._link.progress((epoch + 1) / self.params["epochs"])

    def report_epoch(self, logs: dict[str, Any]) -> None:
        """What the epoch came to: `val_loss` is the `loss` of `validation`."""
        self._link.report(self._step, logs)

    def on_train_end(self, logs: Any = None) -> None:
        if not self._link.stopped and not self._every_n_epochs:
            self._save(epoch=self._epoch + 1)
        if self._link.stopped and self._exit_on_stop:
            self._link.leave()

    def _save(self, *, epoch: int) -> None:
        if not self._link.is_chief:
            return
        folder = os.path.join(self._link.context.checkpoint_dir, f"step-{self._step:09d}")
        os.makedirs(folder, exist_ok=True)
        self.write_weights(folder)
        with open(os.path.join(folder, _STATE), "w") as file:
            json.dump({"epoch": epoch, "step": self._step}, file)
        self._link.keep(folder, self._step, framework="keras", epoch=epoch)

    def write_weights(self, folder: str) -> None:
        self.model.save_weights(os.path.join(folder, _WEIGHTS), overwrite=True)
