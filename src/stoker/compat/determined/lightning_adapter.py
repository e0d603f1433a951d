"""LightningAdapter of 0.15 to 0.23: a LightningModule, trained by a trial's loop instead of Lightning's Trainer.

Lightning itself is not imported, so the module may be of any of its releases and of either of its names.
"""

import contextlib
import inspect
import logging
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from stoker.compat.determined.lightning_optimizers import read_optimizers
from stoker.errors import UsageError
from stoker.pytorch import LRScheduler, PyTorchCallback, PyTorchTrial, Reducer
from stoker.pytorch.metrics import reduce_values
from stoker.pytorch.trial_context import PyTorchTrialContext

logger = logging.getLogger(__name__)

# What these change of the training is the trial's loop's own affair; Determined refused them, too.
_REFUSED = (
    "backward configure_gradient_clipping manual_backward optimizer_step optimizer_zero_grad setup tbptt_split_batch"
    " training_step_end transfer_batch_to_device validation_step_end"
).split()
_NEVER_CALLED = (
    "configure_callbacks on_before_backward on_before_optimizer_step on_fit_end on_fit_start on_train_end"
    " on_train_start on_validation_end on_validation_start teardown training_epoch_end"
).split()


class LightningAdapter(PyTorchTrial):
    """Make the LightningModule in `__init__`, pass it to this one, and write the two data loaders.

    What steps return is reported, and what they log by `self.log`: the mean over the batches of a report.
    """

    def __init__(
        self,
        context: PyTorchTrialContext,
        lightning_module: Any,
        precision: int = 32,
        amp_backend: str = "native",
        amp_level: str = "O2",
    ) -> None:
        if precision not in (16, 32):
            raise UsageError(f"LightningAdapter: precision is {precision!r}; expected 16 or 32.")
        _check(lightning_module)
        # Determined's own name for it, which trials use to get at the module and the optimizers.
        self._pls = SimpleNamespace(context=context, lm=lightning_module, optimizers=[], lr_schedulers=[])
        self._half = precision == 16 and context.device.type != "cpu"
        if precision == 16 and not self._half:
            logger.warning("LightningAdapter: mixed precision is for GPUs; training in full precision here")
        if self._half:
            context.experimental.use_amp()
        self._logged = _Logged(context)
        self._trainer = _stand_in_for_trainer(lightning_module, context, self._logged)
        several = "optimizer_idx" in inspect.signature(lightning_module.training_step).parameters
        self._model = context.wrap_model(lightning_module, find_unused_parameters=several)
        self._pls.optimizers, self._pls.lr_schedulers = self.setup_optimizers_schedulers()
        self._trainer.optimizers = self._pls.optimizers
        if (len(self._pls.optimizers) > 1) != several:
            raise UsageError(
                f"{type(lightning_module).__name__} has {len(self._pls.optimizers)} optimizer(s), and its training_step"
                f" takes {'an' if several else 'no'} optimizer_idx: it does with several, and only then."
            )

    def setup_optimizers_schedulers(self) -> tuple[list[Optimizer], list[Any]]:
        """Wrap what `configure_optimizers` returns."""
        context, lm = self._pls.context, self._pls.lm
        optimizers, schedules = read_optimizers(lm.configure_optimizers())
        for optimizer in optimizers:
            context.wrap_optimizer(optimizer)
            optimizer.register_step_post_hook(lambda own, *_: lm.on_before_zero_grad(own))
        modes = {"epoch": LRScheduler.StepMode.STEP_EVERY_EPOCH, "step": LRScheduler.StepMode.STEP_EVERY_BATCH}
        return optimizers, [
            context.wrap_lr_scheduler(one.scheduler, modes[one.interval], one.frequency) for one in schedules
        ]

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        """Those that call the module's hooks: a trial that has others adds them to these."""
        return {"_lightning_module": _Hooks(self._pls, self._trainer, self._logged)}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        lm, optimizers = self._pls.lm, self._pls.optimizers
        self._trainer.current_epoch, self._trainer.global_step = epoch_idx, batch_idx
        self._logged.begin(weight=self.get_batch_length(batch))
        _call(lm.on_train_batch_start, batch, batch_idx, 0)
        returned, found = None, []
        for index, optimizer in enumerate(optimizers):
            with self._learning(optimizer):
                returned = self._training_step(batch, batch_idx, *([index] if len(optimizers) > 1 else []))
                if returned is None:
                    continue
                self._pls.context.backward(returned["loss"] if isinstance(returned, Mapping) else returned)
                lm.on_after_backward()
                self._pls.context.step_optimizer(optimizer)
            found.append(_numbers(returned))
        _call(lm.on_train_batch_end, returned, batch, batch_idx, 0)
        return _together(found)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        lm = self._pls.lm
        self._logged.begin(weight=self.get_batch_length(batch))
        _call(lm.on_validation_batch_start, batch, batch_idx, 0)
        with self._autocast():
            returned = _call(lm.validation_step, batch, batch_idx)
        _call(lm.on_validation_batch_end, returned, batch, batch_idx, 0)
        if hasattr(lm, "validation_epoch_end"):
            self._logged.outputs.append(returned)
        found = {} if returned is None else _numbers(returned)
        if not found and not self._logged.newest:
            raise UsageError(f"{type(lm).__name__}.validation_step has neither returned nor logged a number.")
        return found or dict(self._logged.newest)

    def _training_step(self, *words: Any) -> Any:
        """Through DDP, where there is one: it exchanges the gradients of what has passed it alone."""
        lm = self._pls.lm
        with self._autocast():
            if self._model is lm:
                return _call(lm.training_step, *words)
            own = lm.__dict__.get("forward")

            def forward(*words: Any) -> Any:
                _put_forward(lm, own)
                return _call(lm.training_step, *words)

            lm.forward = forward
            try:
                return self._model(*words)
            finally:
                _put_forward(lm, own)

    def _autocast(self) -> Any:
        device = self._pls.context.device.type
        return torch.autocast(device, dtype=torch.float16) if self._half else contextlib.nullcontext()

    @contextlib.contextmanager
    def _learning(self, optimizer: Optimizer) -> Iterator[None]:
        """Of several optimizers, the others' weights take no part."""
        own = {id(param) for param in _params(optimizer)}
        every = [param for one in self._pls.optimizers for param in _params(one)]
        others = [param for param in every if id(param) not in own and param.requires_grad]
        for param in others:
            param.requires_grad_(False)
        try:
            yield
        finally:
            for param in others:
                param.requires_grad_(True)


class _Logged:
    """What the module logs between two reports; a torchmetrics object is asked in the end."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self._values: dict[str, list[tuple[Any, float]]] = {}
        self.begin(weight=1)
        self.outputs: list[Any] = []  # of validation's steps, for validation_epoch_end

    def begin(self, *, weight: float) -> None:
        """A batch begins, of so many samples."""
        self.weight = weight
        self.newest: dict[str, Any] = {}

    def log(self, name: str, value: Any, *args: Any, **settings: Any) -> None:
        if hasattr(value, "compute"):
            self._values[name] = [(value, 1)]
            return
        number = value.detach() if isinstance(value, torch.Tensor) else value
        self.newest[name] = number
        self._values.setdefault(name, []).append((number, self.weight))

    def log_dict(self, values: Mapping[str, Any], *args: Any, **settings: Any) -> None:
        for name, value in values.items():
            self.log(name, value)

    def take(self) -> dict[str, Any]:
        """The means over batches and ranks, once. Collective."""
        mine = {name: self._mean(name, values) for name, values in self._values.items()}
        self._values = {}
        ranks = self._context.distributed.allgather(mine)
        names = dict.fromkeys(name for rank in ranks for name in rank)
        return {name: reduce_values(Reducer.AVG, [rank[name] for rank in ranks if name in rank])[0] for name in names}

    def _mean(self, name: str, values: list[tuple[Any, float]]) -> tuple[Any, float]:
        if hasattr(metric := values[0][0], "compute"):
            number = float(metric.compute())
            metric.reset()
            return number, 1
        return reduce_values(Reducer.AVG, [(float(value), weight) for value, weight in values], name)


class _Hooks(PyTorchCallback):
    """The loop's hooks, which are the module's."""

    def __init__(self, state: Any, trainer: Any, logged: _Logged) -> None:
        self._lm, self._context, self._trainer, self._logged = state.lm, state.context, trainer, logged

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        self._trainer.current_epoch, self._trainer.global_step = epoch_idx, self._context.current_train_batch()
        self._lm.on_train_epoch_start()

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        self._lm.on_train_epoch_end()

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        avg_metrics.update({name: value for name, value in self._logged.take().items() if name not in avg_metrics})

    def on_validation_epoch_start(self) -> None:
        self._lm.on_validation_epoch_start()

    def on_validation_epoch_end(self, outputs: list[dict[str, Any]]) -> None:
        self._logged.begin(weight=1)
        self._lm.on_validation_epoch_end()
        if (end := getattr(self._lm, "validation_epoch_end", None)) is not None:
            returned, self._logged.outputs = end(self._logged.outputs), []
            self._logged.log_dict(_numbers(returned) if isinstance(returned, Mapping) else {})

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        metrics.update(self._logged.take())

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        self._lm.on_load_checkpoint(checkpoint)

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        self._lm.on_save_checkpoint(checkpoint)


def _check(lm: Any) -> None:
    name = type(lm).__name__
    if getattr(lm, "_trainer", None) is not None or lm.__dict__.get("trainer") is not None:
        raise UsageError(f"{name} has a Lightning Trainer already, and LightningAdapter trains it without one.")
    if not lm.automatic_optimization:
        raise UsageError(
            f"{name} optimizes by itself (automatic_optimization = False), which LightningAdapter cannot train. Use"
            " Lightning's own Trainer with stoker.integrations.lightning."
        )
    if found := [hook for hook in _REFUSED if _overrides(lm, hook)]:
        raise UsageError(f"LightningAdapter cannot train {name}: it overrides {', '.join(found)}.")
    if ignored := [hook for hook in _NEVER_CALLED if _overrides(lm, hook)]:
        logger.warning("LightningAdapter never calls %s of %s", ", ".join(ignored), name)


def _overrides(lm: Any, hook: str) -> bool:
    base: Any = next((cls for cls in type(lm).__mro__ if cls.__name__ == "LightningModule"), object)
    return hasattr(lm, hook) and getattr(type(lm), hook, None) is not getattr(base, hook, None)


def _stand_in_for_trainer(lm: Any, context: PyTorchTrialContext, logged: _Logged) -> Any:
    """What a module asks its Trainer: how far it is, and who this rank is. Logging and printing go past it."""
    ranks = context.distributed
    trainer = SimpleNamespace(
        current_epoch=0,
        global_step=0,
        optimizers=[],
        global_rank=ranks.get_rank(),
        local_rank=ranks.get_local_rank(),
        world_size=ranks.get_size(),
        is_global_zero=ranks.get_rank() == 0,
        logger=None,
        loggers=[],
    )
    lm.trainer = trainer
    for module in lm.modules():
        if any(cls.__name__ == "LightningModule" for cls in type(module).__mro__):
            module.log, module.log_dict = logged.log, logged.log_dict
            module.print = print if trainer.is_global_zero else _say_nothing
    return trainer


def _say_nothing(*words: Any, **settings: Any) -> None:
    """The other ranks' print."""


def _call(hook: Any, *words: Any) -> Any:
    """With as many of the words as it takes: releases of Lightning differ in that."""
    parameters = inspect.signature(hook).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters):
        return hook(*words)
    places = [one for one in parameters if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    return hook(*words[: len([one for one in places if one.kind is not inspect.Parameter.VAR_KEYWORD])])


def _numbers(returned: Any) -> dict[str, Any]:
    """The metrics among what a step returned; what it keeps for its own hooks is none."""
    if not isinstance(returned, Mapping):
        return {"loss": returned}
    return {name: value for name, value in returned.items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (hasattr(value, "shape") and value.shape in ((), (1,)))


def _together(found: list[dict[str, Any]]) -> dict[str, Any]:
    """A name that several optimizers' steps have used says of which it is."""
    names = [name for one in found for name in one]
    return {
        f"opt{index}_{name}" if names.count(name) > 1 else name: value
        for index, one in enumerate(found)
        for name, value in one.items()
    }


def _params(optimizer: Optimizer) -> Iterator[nn.Parameter]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _put_forward(lm: Any, own: Any) -> None:
    if own is None:
        lm.__dict__.pop("forward", None)
    else:
        lm.forward = own
