"""What a trial wraps its parts with: models, optimizers, schedulers, reducers; and how it learns from a loss."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from stoker.context import Context
from stoker.errors import UsageError
from stoker.pytorch import parallel
from stoker.pytorch.data.loader import to_device
from stoker.pytorch.distributed import DistributedContext
from stoker.pytorch.metrics import FunctionReducer, MetricReducer, WrappedReducers
from stoker.pytorch.precision import Precision, autocast_forward, use_fused_kernels
from stoker.pytorch.run_info import Resuming, RunInfo, Settings
from stoker.pytorch.schedulers import LRScheduler, TorchScheduler

ClipGrads = Callable[[Iterator[nn.Parameter]], Any]


class PyTorchTrialContext(RunInfo):
    """Given to a trial's `__init__`. Every wrapped thing is moved, parallelised and kept in checkpoints."""

    def __init__(
        self, run: Context, distributed: DistributedContext, settings: Settings, resuming: Resuming | None = None
    ) -> None:
        super().__init__(run, distributed, settings, resuming)
        self.models: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.lr_schedulers: list[LRScheduler] = []
        self.reducers = WrappedReducers()
        self.experimental = Experimental(self)
        self.scaler: Any = None
        self.profiler: Any = None
        self.auto_to_device = True
        self.loss_weight = 1.0  # the trainer's: of this rank's batch among those of all ranks
        self._owns_scaler = False  # then backward, step_optimizer and the trainer use it; else the user does
        self._precision = settings.precision
        self._tensorboard_writer: Any = None
        self._tensorboard_enabled = settings.tensorboard
        self._unaveraged: set[int] = set()
        self._aggregation = settings.aggregation_frequency
        self.updates = True  # whether the current batch ends with an optimizer step
        self._scaled_step = False
        self._warned_types: set[type] = set()
        if self._precision is Precision.FP16:
            self._own_scaler()

    def wrap_model(
        self,
        model: nn.Module,
        *,
        fsdp: bool | None = None,
        compile: bool | dict[str, Any] | None = None,
        find_unused_parameters: bool = False,
    ) -> Any:
        """Move a model to the device, and make it one of all ranks. Use what this returns; make optimizers after it."""
        if any(parallel.unwrap(known) is model for known in self.models):
            raise UsageError(f"This {type(model).__name__} is wrapped already; wrap_model takes each model once.")
        model = model.to(self.device)
        sharded = self.distributed.size > 1 and (self.settings.strategy == "fsdp" if fsdp is None else fsdp)
        if self._precision is not Precision.FP32 and not (sharded and self._precision is Precision.BF16):
            autocast_forward(model, self._precision.dtype, self.device.type)
        if sharded:
            model = parallel.shard(model, self.distributed, self._precision)
        elif self.distributed.size > 1:
            model = parallel.replicate(model, self.distributed, find_unused_parameters=find_unused_parameters)
        compile = self.settings.compile if compile is None else compile
        if compile is not False:
            # In place, so that names in checkpoints stay as they are.
            model.compile(**(compile if isinstance(compile, dict) else {}))
        self.models.append(model)
        return model

    def wrap_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        backward_passes_per_step: int = 1,
        fp16_compression: bool | None = None,
        average_aggregated_gradients: bool | None = None,
        *,
        fused: bool | None = None,
    ) -> torch.optim.Optimizer:
        """Keep an optimizer in checkpoints; returns it.

        Adam, AdamW and SGD use torch's fused kernels unless made with fused= or foreach=, or `fused=False` here.
        """
        if backward_passes_per_step != 1 or fp16_compression:
            raise UsageError(
                "backward_passes_per_step and fp16_compression were Horovod's. For several batches a step, use"
                " init(aggregation_frequency=…)."
            )
        if any(optimizer is known for known in self.optimizers):
            raise UsageError(f"This {type(optimizer).__name__} is wrapped already; wrap_optimizer takes each one once.")
        if fused is not False and not any(map(parallel.is_sharded, self.models)):
            use_fused_kernels(optimizer, self.models)
        if average_aggregated_gradients is False:
            self._unaveraged.add(id(optimizer))
        self.optimizers.append(optimizer)
        return optimizer

    def wrap_lr_scheduler(
        self, lr_scheduler: TorchScheduler, step_mode: LRScheduler.StepMode, frequency: int = 1
    ) -> TorchScheduler:
        """Keep a scheduler in checkpoints and step it as `step_mode` says; returns it. Its optimizer comes first."""
        if not any(lr_scheduler.optimizer is known for known in self.optimizers):
            raise UsageError("The scheduler's optimizer is not wrapped: call wrap_optimizer before wrap_lr_scheduler.")
        self.lr_schedulers.append(LRScheduler(lr_scheduler, step_mode, frequency))
        return lr_scheduler

    def wrap_reducer(
        self,
        reducer: MetricReducer | Callable[[list[Any]], Any],
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> Any:
        """A metric over a whole window or validation. A function becomes a reducer with `.update(value)`."""
        if not isinstance(reducer, MetricReducer):
            reducer = FunctionReducer(reducer)
        return self.reducers.wrap(reducer, name, for_training=for_training, for_validation=for_validation)

    def wrap_scaler(self, scaler: Any) -> Any:
        """Keep a GradScaler of the trial's own in checkpoints; scaling and updating it stay the trial's."""
        if self._owns_scaler:
            raise UsageError("precision='fp16' scales losses by itself. Drop wrap_scaler, or use another precision.")
        if self.models:
            raise UsageError("wrap_scaler comes before wrap_model.")
        self.scaler = scaler
        return scaler

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool = False,
        create_graph: bool = False,
    ) -> None:
        """Gradients of a loss, scaled when the precision needs it.

        The last batch of an epoch may be of different length on each rank; the loss is then weighted so that the
        ranks' average is the mean over all samples.
        """
        if self.loss_weight != 1.0:
            loss = loss * self.loss_weight
        if self._owns_scaler:
            loss = self.scaler.scale(loss)
        loss.backward(gradient, retain_graph=retain_graph, create_graph=create_graph)  # type: ignore[no-untyped-call]

    def step_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grads: ClipGrads | None = None,
        auto_zero_grads: bool = True,
        scaler: Any = None,
    ) -> None:
        """Average the gradients of the aggregated batches, clip, step, zero: or nothing, between two such steps."""
        if self._aggregation > 1:
            if not auto_zero_grads:
                raise UsageError(
                    f"auto_zero_grads=False with aggregation_frequency={self._aggregation}: the trainer must know when"
                    " a sum of gradients begins. Leave auto_zero_grads on."
                )
            if not self.updates:
                return
            if id(optimizer) not in self._unaveraged:
                _divide_gradients(optimizer, self._aggregation)
        if self._owns_scaler:
            scaler = self.scaler
            if clip_grads is not None:
                scaler.unscale_(optimizer)
        if clip_grads is not None:
            clip_grads(_params(optimizer))
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            self._scaled_step = True
        if auto_zero_grads:
            optimizer.zero_grad()

    def to_device(self, data: Any) -> Any:
        """The data on this rank's device. Batches from the loaders are there already."""
        return to_device(data, self.device, self._warned_types)

    def reset_reducers(self) -> None:
        self.reducers.reset()

    def reduce_metrics(self, for_training: bool) -> dict[str, Any]:
        """The wrapped reducers' metrics now. Collective."""
        return self.reducers.reduce(for_training=for_training, allgather=self.distributed.allgather)

    def set_profiler(self, *args: Any, **kwargs: Any) -> None:
        """Profile the training with `torch.profiler.profile(*args, **kwargs)`; TensorBoard's folder is the default."""
        kwargs.setdefault("on_trace_ready", torch.profiler.tensorboard_trace_handler(str(self.get_tensorboard_path())))
        self.profiler = torch.profiler.profile(*args, **kwargs)

    def set_enable_tensorboard_logging(self, enable: bool) -> None:
        """Whether metrics are written as TensorBoard event files too."""
        self._tensorboard_enabled = enable

    def get_enable_tensorboard_logging(self) -> bool:
        return self._tensorboard_enabled

    def get_tensorboard_writer(self) -> Any:
        """A SummaryWriter for images, histograms and the like. Metrics are written without it."""
        if self._tensorboard_writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - takes a second, rarely wanted
            except ImportError as error:
                raise UsageError(
                    "A TensorBoard writer needs TensorBoard: `pip install tensorboard`. (The metrics themselves are"
                    " written without it.)"
                ) from error
            self._tensorboard_writer = SummaryWriter(str(self.get_tensorboard_path()))
        return self._tensorboard_writer

    def context_of(self, trial: Any) -> "PyTorchTrialContext":
        """The context a trial was built with, as far as this one knows."""
        return self

    def begin_batch(self, batch_idx: int) -> None:
        """The trainer's: a batch begins."""
        self._batch_idx = batch_idx
        if self._aggregation > 1:
            self.updates = (batch_idx + 1) % self._aggregation == 0
            for model in self.models:
                parallel.set_gradient_sync(model, enabled=self.updates)

    def end_batch(self, batch_idx: int) -> None:
        """The trainer's: a batch was learned from."""
        if self._owns_scaler and self._scaled_step:
            self.scaler.update()
            self._scaled_step = False
        for scheduler in self.lr_schedulers:
            for _ in range(scheduler.steps_after(batch_idx, aggregation=self._aggregation, epoch_of=self.epoch_of)):
                scheduler.step()
        if self.profiler is not None:
            self.profiler.step()

    def _own_scaler(self) -> None:
        self.scaler = torch.amp.GradScaler(self.device.type)
        self._owns_scaler = True


class Experimental:
    """`context.experimental`: names kept for code that comes from Determined."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context

    def use_amp(self) -> None:
        """The same as `init(precision="fp16")`; call it before wrap_model."""
        if self._context.models:
            raise UsageError("use_amp comes before wrap_model.")
        self._context._precision = Precision.FP16
        self._context._own_scaler()

    def disable_dataset_reproducibility_checks(self) -> None:
        """Nothing to disable: any torch DataLoader is taken, and resumed exactly where that is possible."""

    def disable_auto_to_device(self) -> None:
        """Leave batches on the host."""
        self._context.auto_to_device = False


def _params(optimizer: torch.optim.Optimizer) -> Iterator[nn.Parameter]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _divide_gradients(optimizer: torch.optim.Optimizer, by: int) -> None:
    gradients: Iterable[Any] = [param.grad for param in _params(optimizer) if param.grad is not None]
    if gradients:
        torch._foreach_div_(list(gradients), by)
