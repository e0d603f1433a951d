"""Process every batch of a dataset once, on all ranks, in a class of the user's: Determined's `torch_batch_process`."""

import json
import logging
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.utils.data as torch_data
from torch import nn

import stoker.context
from stoker.context import Context
from stoker.errors import UsageError
from stoker.pytorch.data.device import to_device
from stoker.pytorch.data.loader import DataLoader, ValidationStream, open_validation
from stoker.pytorch.distributed import DistributedContext
from stoker.pytorch.metrics import FunctionReducer, MetricReducer, WrappedReducers, scalars
from stoker.pytorch.stops import StopSignals
from stoker.run_dir import RunDir

logger = logging.getLogger(__name__)

_STATE = "batch_process.json"
_OURS = ("shuffle", "sampler", "batch_sampler")


class TorchBatchProcessorContext:
    """What a processor may ask for and use."""

    def __init__(self, run: Context, distributed: DistributedContext, output: Path) -> None:
        self.device = distributed.device
        self.reducers: dict[str, WrappedReducers] = {}
        self.used: dict[str, str] = {}
        self._run = run
        self._distributed = distributed
        self._output = output
        self._warned_types: set[type] = set()

    def get_hparams(self) -> dict[str, Any]:
        return self._run.hparams

    def to_device(self, data: Any) -> Any:
        """The data on this rank's device. Batches come from the loader as they are."""
        return to_device(data, self.device, self._warned_types)

    def prepare_model_for_inference(self, model: nn.Module) -> nn.Module:
        """The model on the device, in eval mode."""
        return model.to(self.device).eval()

    @contextmanager
    def upload_path(self) -> Iterator[Path]:
        """A folder to write results to; when the block ends well, they appear among the job's results, whole.

        All ranks share the results, so give files names of their own (a rank and a batch index will do).
        """
        partial = self._output / f".partial-{self._distributed.rank}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        for source in [path for path in partial.rglob("*") if path.is_file()]:
            target = self._output / source.relative_to(partial)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(source, target)
        shutil.rmtree(partial)

    def get_tensorboard_path(self) -> Path:
        return RunDir(self._run.run_dir).tensorboard

    def report_metrics(self, group: str, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        self._run.report(steps_completed, group, **scalars(metrics))

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Write down, with this run's checkpoints, which model was used."""
        self.used["model_version"] = str(model_version)

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Write down, with this run's checkpoints, which checkpoint was used."""
        self.used["checkpoint"] = str(checkpoint)

    def get_distributed_rank(self) -> int:
        return self._distributed.rank

    def get_distributed_size(self) -> int:
        return self._distributed.size

    def wrap_reducer(
        self,
        reducer: MetricReducer | Callable[[list[Any]], Any],
        name: str | None = None,
        group: str = "inference",
    ) -> Any:
        """A metric over the batches between two checkpoints, reported at each. A function gets `.update(value)`."""
        if not isinstance(reducer, MetricReducer):
            reducer = FunctionReducer(reducer)
        wrapped = self.reducers.setdefault(group, WrappedReducers())
        return wrapped.wrap(reducer, name, for_training=False, for_validation=True)


class TorchBatchProcessor(ABC):
    """Write `__init__` (load a model) and `process_batch`; results go to `context.upload_path()`."""

    @abstractmethod
    def __init__(self, context: TorchBatchProcessorContext) -> None: ...

    @abstractmethod
    def process_batch(self, batch: Any, batch_idx: int) -> None:
        """Do the work for one batch; `batch_idx` is counted on this rank."""

    def on_checkpoint_start(self) -> None:  # noqa: B027 - for those who need it
        """Write down what is not written yet: batches up to here will not come again."""

    def on_finish(self) -> None:  # noqa: B027 - for those who need it
        """All batches are done."""


def get_default_device(distributed: DistributedContext | None = None) -> torch.device:
    """This rank's GPU, or the CPU."""
    return (distributed or DistributedContext.from_env()).device


def torch_batch_process(  # noqa: PLR0913 - Determined's signature
    batch_processor_cls: type[TorchBatchProcessor],
    dataset: torch_data.Dataset[Any],
    batch_size: int | None = None,
    max_batches: int | None = None,
    checkpoint_interval: int = 5,
    dataloader_kwargs: dict[str, Any] | None = None,
    distributed_context: DistributedContext | None = None,
) -> None:
    """Call `process_batch` for every batch of the dataset, dealt out in turn to the ranks. Works without a supervisor.

    Every `checkpoint_interval` batches a rank, `on_checkpoint_start` is called and the position is kept: a restarted
    run goes on after it, on any number of ranks. `max_batches` is for each rank. A stop is obeyed at a checkpoint,
    by ending the process before `on_finish`.
    """
    loader = _loader(dataset, batch_size, dataloader_kwargs or {})
    _check_counts(max_batches=max_batches, checkpoint_interval=checkpoint_interval)
    distributed = distributed_context or DistributedContext.from_env()
    try:
        with stoker.context.init() as run:
            work = _Work(run, distributed)
            work.processor = batch_processor_cls(work.context)
            stream = open_validation(loader, rank=distributed.rank, size=distributed.size, device="cpu")
            work.through(stream, total=len(loader), limit=max_batches, interval=checkpoint_interval)
    finally:
        if distributed_context is None:
            distributed.close()


class _Work:
    """The batches' way through a processor, from where an earlier run left it."""

    processor: TorchBatchProcessor

    def __init__(self, run: Context, distributed: DistributedContext) -> None:
        self._run = run
        self._distributed = distributed
        state = distributed.broadcast(_read_state(run))
        self._done = int(state["batches"])  # over all ranks
        self._output = Path(state["output"] or _output(run)).absolute()
        self.context = TorchBatchProcessorContext(run, distributed, self._output)

    def through(self, stream: ValidationStream, *, total: int, limit: int | None, interval: int) -> None:
        size = self._distributed.size
        first = -(-self._done // size)  # batches of this rank, if the number of ranks has not changed
        last = -(-total // size) if limit is None else min(-(-total // size), limit)
        step = first
        with torch.no_grad(), StopSignals(self._run) as signals:
            for step, batch in zip(range(first + 1, last + 1), stream.rounds(self._done), strict=False):
                if batch is not None:
                    self.processor.process_batch(batch=batch, batch_idx=step - 1)
                if (step - first) % interval == 0 and step < last:
                    self._checkpoint(step, first, share=step / last)
                    if self._distributed.all_reduce_any(signals.asked):
                        signals.leave(step, None)
            self._checkpoint(step, first, share=1.0)
            self.processor.on_finish()
            self._distributed.barrier()

    def _checkpoint(self, step: int, first: int, *, share: float) -> None:
        """Keep the position, once all ranks have written what they must."""
        self.processor.on_checkpoint_start()
        for group, reducers in self.context.reducers.items():
            metrics = reducers.reduce(for_training=False, allgather=self._distributed.allgather)
            reducers.reset()
            if metrics and self._distributed.rank == 0:
                self.context.report_metrics(group, step, metrics)
        self._distributed.barrier()
        if self._distributed.rank == 0:
            self._write_state(step, batches=self._done + (step - first) * self._distributed.size)
            self._run.progress(share)

    def _write_state(self, step: int, *, batches: int) -> None:
        folder = Path(self._run.checkpoint_dir) / f"batches-{batches:09d}"
        folder.mkdir(exist_ok=True)
        state = {"batches": batches, "output": str(self._output)}
        (folder / _STATE).write_text(json.dumps(state))
        self._run.save_checkpoint(folder, step, steps_completed=step, output=str(self._output), **self.context.used)


def _read_state(run: Context) -> dict[str, Any]:
    path = Path(run.latest_checkpoint) / _STATE if run.latest_checkpoint else None
    if path is None or not path.exists():
        return {"batches": 0, "output": None}
    state: dict[str, Any] = json.loads(path.read_text())
    logger.info("going on after %d batches", state["batches"])
    return state


def _output(run: Context) -> Path:
    """Where results go: beside the job's other results if it has a place for them here, else into the run."""
    here = run.job_dir is not None and "://" not in run.job_dir
    return Path(run.job_dir or "") / "output" if here else Path(run.run_dir) / "output"


def _loader(dataset: Any, batch_size: int | None, options: dict[str, Any]) -> DataLoader[Any]:
    if not hasattr(dataset, "__len__") or isinstance(dataset, torch_data.IterableDataset):
        raise UsageError(
            f"torch_batch_process needs a dataset with a length, to divide it; {type(dataset).__name__} has none."
        )
    refused = [name for name in _OURS if name in options]
    if refused:
        raise ValueError(
            f"dataloader_kwargs has {', '.join(refused)}: every sample is processed once, in order, so there is nothing"
            " to choose."
        )
    if batch_size is not None and "batch_size" in options:
        raise ValueError("batch_size is given twice: as an argument and in dataloader_kwargs.")
    return DataLoader(dataset, **{"batch_size": batch_size or 1, **options})


def _check_counts(*, max_batches: int | None, checkpoint_interval: int) -> None:
    if max_batches is not None and max_batches < 1:
        raise ValueError(f"max_batches is {max_batches}: expected at least 1, or None for all.")
    if checkpoint_interval < 1:
        raise ValueError(f"checkpoint_interval is {checkpoint_interval}: expected at least 1.")
