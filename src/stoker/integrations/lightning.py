"""Lightning's Trainer, tied to a run.

callback = StokerCallback()
trainer = lightning.Trainer(max_epochs=10, callbacks=[callback])
trainer.fit(model, data, ckpt_path=callback.latest_checkpoint)
"""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any

from stoker.context import Context
from stoker.integrations.link import RunLink

try:
    from lightning.pytorch import Callback
    from lightning.pytorch.loggers import Logger
    from lightning.pytorch.utilities import rank_zero_only
except ImportError as error:
    raise ImportError("stoker.integrations.lightning needs Lightning: `pip install lightning`.") from error


class StokerLogger(Logger):  # type: ignore[misc]
    """Reports what a LightningModule logs. The callback brings one along; it is for those who want nothing else."""

    def __init__(self, context: Context | None = None) -> None:
        super().__init__()
        self._link = RunLink(context, keep=1)
        self._stage: Callable[[], str | None] = lambda: None

    @property
    def name(self) -> str:
        return "stoker"

    @property
    def version(self) -> str:
        return self._link.context.run_id or "0"

    @rank_zero_only  # type: ignore[untyped-decorator]
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        numbers = {name: value for name, value in metrics.items() if name != "epoch"}
        self._link.report(int(step or 0), numbers, group=self._stage())

    @rank_zero_only  # type: ignore[untyped-decorator]
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """The run has its hyperparameters already."""


class StokerCallback(Callback):  # type: ignore[misc]
    """Reports what is logged, saves a checkpoint after every `every_n_epochs`, and saves and ends when told to stop.

    Metrics are grouped by the loop they come from. The newest `keep` checkpoints stay with the run. After a stop the
    process ends; with `exit_on_stop=False`, `fit()` returns instead, and `callback.stopped` says why.
    """

    def __init__(
        self,
        context: Context | None = None,
        *,
        every_n_epochs: int = 1,
        keep: int = 2,
        exit_on_stop: bool = True,
    ) -> None:
        self._link = RunLink(context, keep=keep)
        self._every_n_epochs = every_n_epochs
        self._exit_on_stop = exit_on_stop
        self._saved_step = -1
        # The run's handler only remembers SIGTERM. Lightning's would end the process without a checkpoint.
        self._on_sigterm = signal.getsignal(signal.SIGTERM) if self._link.context.managed else None

    @property
    def latest_checkpoint(self) -> str | None:
        """Pass it to `fit(ckpt_path=…)`: None at the first start, a file at a restart."""
        return self._link.context.latest_checkpoint

    @property
    def stopped(self) -> bool:
        return self._link.stopped

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if any(isinstance(logger, StokerLogger) for logger in trainer.loggers):
            return
        logger = StokerLogger(self._link.context)
        logger._stage = lambda: _group_of(trainer)
        trainer.loggers = [*trainer.loggers, logger]

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        self._handle_sigterm()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._handle_sigterm()
        self._link.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if not self._link.should_stop(trainer.fit_loop.total_batch_idx):
            return
        self._save(trainer)
        if self._exit_on_stop:
            self._link.leave()
        trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if (trainer.current_epoch + 1) % self._every_n_epochs == 0:
            self._save(trainer)
        if trainer.max_epochs and trainer.max_epochs > 0:
            self._link.progress((trainer.current_epoch + 1) / trainer.max_epochs)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._save(trainer)

    def _save(self, trainer: Any) -> None:
        """On all ranks: strategies may need them all."""
        step = trainer.global_step
        if step == self._saved_step:
            return
        path = os.path.join(trainer.strategy.broadcast(self._link.context.checkpoint_dir), f"step-{step:09d}.ckpt")
        trainer.save_checkpoint(path)
        self._link.keep(path, step, framework="lightning", epoch=trainer.current_epoch)
        self._saved_step = step

    def _handle_sigterm(self) -> None:
        if self._on_sigterm is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)


def _group_of(trainer: Any) -> str:
    if trainer.validating or trainer.sanity_checking:
        return "validation"
    return "test" if trainer.testing else "training"
