"""Keras's fit in a run, by Determined's callbacks."""

from typing import Any

import keras

from stoker.integrations.keras import StokerCallback


class DeterminedCallback(StokerCallback):
    """Reports, keeps checkpoints, goes on from the run's latest one.

    Metrics keep their names whole ("val_accuracy"), because a search's file names its metric so. A checkpoint of
    another trial (`continue_id` differs) gives its weights, and training begins at the first epoch.
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

    def report_epoch(self, logs: dict[str, Any]) -> None:
        validation = {name: value for name, value in logs.items() if name.startswith("val_")}
        training = {name: value for name, value in logs.items() if name not in validation}
        counted = {"batches": self._step, "epochs": self._epoch + 1}
        self._link.report(self._step, {**training, **counted}, group="training")
        if validation:
            self._link.report(self._step, {**validation, **counted}, group="validation")


class TensorBoard(keras.callbacks.TensorBoard):  # type: ignore[misc]
    """Keras's own, writing to the run's folder."""

    def __init__(self, core_context: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("log_dir", str(core_context.train.get_tensorboard_path()))
        super().__init__(*args, **kwargs)
