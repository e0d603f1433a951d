"""Hooks into the training loop. `Trainer.fit`'s docstring draws where each one is called."""

from collections.abc import Iterator, Mapping
from typing import Any


class PyTorchCallback:
    """Override what you need. Every hook runs on every rank, but for the three marked "rank 0".

    Metrics are passed before they are reported: what a hook changes or adds in them is reported too.
    """

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Before anything else; `checkpoint_uuid` is the checkpoint gone on from, if there is one."""

    def on_trial_shutdown(self) -> None:
        """At the very end, also after an error."""

    def on_training_start(self) -> None:
        """Models, optimizers and data are as training will find them."""

    def on_training_epoch_start(self, epoch_idx: int) -> None: ...

    def on_training_epoch_end(self, epoch_idx: int) -> None: ...

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        """Training metrics are about to be reported: their averages, and this rank's own by batch."""

    def on_validation_start(self) -> None: ...

    def on_validation_epoch_start(self) -> None: ...

    def on_validation_epoch_end(self, outputs: list[dict[str, Any]]) -> None:
        """What `evaluate_batch` returned, by batch, on this rank."""

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        """Validation metrics of all ranks are about to be reported."""

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        """A checkpoint was read and is about to be put in place; change what does not fit."""

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """Rank 0. Add what you want kept: tensors, numbers, strings, and lists and dicts of them."""

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """Rank 0. The older name of `on_checkpoint_write_end`."""

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        """Rank 0. The checkpoint is whole on disk. A callback with this hook makes the loop wait for the write."""

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        """The checkpoint is announced; `uuid` names it. Makes the loop wait for the write, too."""

    def state_dict(self) -> dict[str, Any]:
        """What to keep in checkpoints: tensors, numbers, strings, and lists and dicts of them."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


_AFTER_WRITE = ("on_checkpoint_end", "on_checkpoint_write_end", "on_checkpoint_upload_end")


class Callbacks:
    """A trial's callbacks by name, called in the order the user gave."""

    def __init__(self, callbacks: Mapping[str, PyTorchCallback]) -> None:
        self._callbacks = dict(callbacks)

    def __iter__(self) -> Iterator[PyTorchCallback]:
        return iter(self._callbacks.values())

    @property
    def watch_writes(self) -> bool:
        """Whether some callback wants to know when a checkpoint is on disk."""
        return any(
            getattr(type(callback), hook) is not getattr(PyTorchCallback, hook)
            for callback in self
            for hook in _AFTER_WRITE
        )

    def wrote(self, path: str, *, is_chief: bool) -> None:
        """A checkpoint is on disk and announced; its path is also its name."""
        for callback in self:
            if is_chief:
                callback.on_checkpoint_end(path)
                callback.on_checkpoint_write_end(path)
            callback.on_checkpoint_upload_end(path)

    def state_dict(self) -> dict[str, dict[str, Any]]:
        return {name: callback.state_dict() for name, callback in self._callbacks.items()}

    def load_state_dict(self, state: Mapping[str, dict[str, Any]]) -> list[str]:
        """Give each its state back; returns the names that had none."""
        for name, callback in self._callbacks.items():
            if name in state:
                callback.load_state_dict(state[name])
        return [name for name in self._callbacks if name not in state]
