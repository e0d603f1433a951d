"""The trial's context as code of 2020 to 2022 knows it: names that Determined has since dropped, over ours."""

import functools
import logging
from types import SimpleNamespace
from typing import Any, TypeVar

import torch

from stoker import pytorch
from stoker.pytorch.context import TrainerContext
from stoker.pytorch.precision import Precision, autocast_forward
from stoker.pytorch.trial_context import Experimental, PyTorchTrialContext

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=PyTorchTrialContext)


class OldNames(PyTorchTrialContext):
    """The older names, for any of stoker's contexts."""

    def get_data_config(self) -> dict[str, Any]:
        """The file's `data`, as its author wrote it."""
        return {name: value for name, value in super().get_data_config().items() if name != "stoker"}

    def get_distributed_rank(self) -> int:
        return self.distributed.get_rank()

    def get_distributed_size(self) -> int:
        return self.distributed.get_size()

    @property
    def env(self) -> Any:
        """What was known of the trial, before there were methods to ask."""
        return SimpleNamespace(
            trial_seed=self.get_trial_seed(),
            experiment_config=self.get_experiment_config(),
            hparams=self.get_hparams(),
            det_experiment_id=self.get_experiment_id(),
            det_trial_id=self.get_trial_id(),
            managed_training=True,
            on_cluster=self.run.managed,
            test_mode=False,
        )

    @property
    def _epoch_len(self) -> int | None:
        return self._epoch_length

    # Before they were called wrap_…
    def Model(self, model: Any) -> Any:
        return self.wrap_model(model)

    def Optimizer(self, optimizer: Any) -> Any:
        return self.wrap_optimizer(optimizer)

    def LRScheduler(self, lr_scheduler: Any, step_mode: Any, frequency: int = 1) -> Any:
        return self.wrap_lr_scheduler(lr_scheduler, step_mode, frequency)

    def configure_apex_amp(self, models: Any, optimizers: Any = None, enabled: bool = True, **settings: Any) -> Any:
        """Mixed precision by torch's own means, which took apex's place; returns what it was given."""
        if not enabled or settings.get("opt_level") == "O0":
            return models, optimizers
        if self.device.type == "cpu":
            logger.warning("configure_apex_amp: mixed precision is for GPUs; training in full precision here")
            return models, optimizers
        self._precision = Precision.FP16
        for model in models if isinstance(models, list | tuple) else [models]:
            autocast_forward(model, torch.float16, self.device.type)
        self._own_scaler()
        return models, optimizers


class OldExperimental(Experimental):
    """`context.experimental`, where reducers were first."""

    def wrap_reducer(self, *args: Any, **kwargs: Any) -> Any:
        return self._context.wrap_reducer(*args, **kwargs)

    def reset_reducers(self) -> None:
        self._context.reset_reducers()


class OldContext(OldNames, TrainerContext):
    """What `determined.pytorch.init` gives."""


def with_old_names(context: T) -> T:
    """The very same context; objects that hold it find the names, too."""
    old: Any = OldContext if type(context) is TrainerContext else type("OldContext", (OldNames, type(context)), {})
    context.__class__ = old
    context.experimental = OldExperimental(context)
    return context


@functools.wraps(pytorch.init)
def init(**settings: Any) -> TrainerContext:
    return with_old_names(pytorch.init(**settings))
