"""What a trial may ask about its run: hyperparameters, batch sizes, ids, and where training stands."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker.context import Context
from stoker.context import InvalidHP as InvalidHP
from stoker.errors import StokerError, UsageError
from stoker.pytorch.distributed import DistributedContext
from stoker.pytorch.precision import Precision
from stoker.pytorch.units import TrainUnit, unit_of
from stoker.run_dir import RunDir


@dataclass(frozen=True, slots=True)
class Settings:
    """How `stoker.pytorch.init` was called."""

    seed: int = 0
    exp_conf: dict[str, Any] = field(default_factory=dict)
    aggregation_frequency: int = 1
    precision: Precision = Precision.FP32
    compile: bool | dict[str, Any] = False  # or torch.compile's options
    strategy: str = "ddp"
    tensorboard: bool = True


@dataclass(slots=True)
class Resuming:
    """The checkpoint this process was started with, and which of its calls of `fit` it belongs to.

    A script may fit twice (first this, then that); restarted in the second, the first must not load its checkpoint.
    """

    path: str | None
    fits: int = 0

    def next_fit(self) -> int:
        self.fits += 1
        return self.fits


@dataclass(frozen=True, slots=True)
class Training:
    """`context.training`: the hyperparameters of this trial."""

    hparams: dict[str, Any]


class RunInfo:
    """The part of the context that only answers."""

    def __init__(
        self, run: Context, distributed: DistributedContext, settings: Settings, resuming: Resuming | None = None
    ) -> None:
        self.run = run
        self.hparams: dict[str, Any] = run.hparams
        self.resuming = resuming or Resuming(run.latest_checkpoint)
        self.distributed = distributed
        self.settings = settings
        self.device = distributed.device
        self._batch_idx: int | None = None  # moved by the trainer
        self._epoch_length: int | None = None
        self._first_batch = 0
        self._stop_requested = False

    def begin_training(self, first_batch: int, epoch_length: int | None) -> None:
        """The trainer's: where it goes on from, and how long an epoch is."""
        self._first_batch = first_batch
        self._epoch_length = epoch_length

    @property
    def training(self) -> Training:
        return Training(self.hparams)

    @property
    def config_data(self) -> dict[str, Any]:
        """The job file's `data`: anything its author put there."""
        return dict(self.run.config_data)

    def get_hparams(self) -> dict[str, Any]:
        return self.hparams

    def get_hparam(self, name: str) -> Any:
        if name not in self.hparams:
            raise UsageError(
                f"No hyperparameter {name!r}. There are: {', '.join(map(str, self.hparams)) or '(none)'}. Set it in"
                f" the job file's hparams, or give a default: init(hparams={{{name!r}: …}})."
            )
        return self.hparams[name]

    def get_global_batch_size(self) -> int:
        """The hyperparameter `global_batch_size`: samples a step, over all ranks."""
        size = self.get_hparam("global_batch_size")
        if not isinstance(size, int) or isinstance(size, bool):
            raise UsageError(f"global_batch_size is {size!r}: expected a whole number.")
        return size

    def get_per_slot_batch_size(self) -> int:
        """This rank's share of the global batch size."""
        return self.distributed.shard_batch_size(self.get_global_batch_size())

    def get_experiment_config(self) -> dict[str, Any]:
        return self.settings.exp_conf

    @property
    def searcher_config(self) -> dict[str, Any]:
        """The experiment config's `searcher`: names the metric to compare by, and which way."""
        return dict(self.settings.exp_conf.get("searcher", {}))

    def told(self, name: str) -> TrainUnit | None:
        """A length or period that the experiment's file gives (`max_length`, `validation_period`, …), if it does."""
        return unit_of(getattr(self.run.origin.trainer, name)) if self.run.origin is not None else None

    def get_data_config(self) -> dict[str, Any]:
        return self.run.config_data or dict(self.settings.exp_conf.get("data", {}))

    def get_experiment_id(self) -> str | None:
        """The job's name; None without a supervisor."""
        return self.run.job

    def get_trial_id(self) -> int:
        return int(self.run.trial_id)

    def get_trial_seed(self) -> int:
        return self.settings.seed

    def get_initial_batch(self) -> int:
        """How many batches were trained before this process went on."""
        return self._first_batch

    def get_tensorboard_path(self) -> Path:
        return RunDir(self.run.run_dir).tensorboard

    def current_train_batch(self) -> int:
        """The index of the batch in training, from 0, counted from the start of the trial."""
        if self._batch_idx is None:
            raise StokerError("No batch is current: training has not begun. Ask inside train_batch or a callback.")
        return self._batch_idx

    def current_train_epoch(self) -> int:
        return self.epoch_of(self.current_train_batch())

    def is_epoch_start(self) -> bool:
        """Whether the current batch is the first of its epoch."""
        return self._epoch_length is not None and self.current_train_batch() % self._epoch_length == 0

    def is_epoch_end(self) -> bool:
        """Whether the current batch is the last of its epoch."""
        return self._epoch_length is not None and (self.current_train_batch() + 1) % self._epoch_length == 0

    def epoch_of(self, batch_idx: int) -> int:
        return 0 if self._epoch_length is None else batch_idx // self._epoch_length

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Ask the trainer to checkpoint and return after this batch."""
        if not isinstance(stop_requested, bool):
            raise UsageError(f"set_stop_requested({stop_requested!r}): expected True or False.")
        self._stop_requested = stop_requested

    def get_stop_requested(self) -> bool:
        return self._stop_requested
