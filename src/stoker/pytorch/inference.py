"""Predictions for all samples of some data, in the data's order: shared among ranks, gone on with after a stop.

batches    0 1 2 3 4 5 6          two ranks: rank 0 takes 0, 2, 4, 6 and rank 1 takes 1, 3, 5
kept       parts/000000-rank0.pt, … and progress.json: {"batches": 4, …}, all of the first four are done
"""

import inspect
import json
import os
import pickle
import shutil
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.utils.data as torch_data
from torch import nn

from stoker.atomic import replace_file
from stoker.context import Context
from stoker.errors import UsageError
from stoker.pytorch.batch_process import TorchBatchProcessor, TorchBatchProcessorContext, torch_batch_process
from stoker.pytorch.data.loader import open_validation
from stoker.pytorch.distributed import DistributedContext
from stoker.pytorch.parallel import evaluating, is_sharded
from stoker.pytorch.stops import StopSignals, StopVote
from stoker.pytorch.trial import PyTorchTrial
from stoker.pytorch.trial_context import PyTorchTrialContext
from stoker.run_dir import RunDir

try:
    import numpy
except ImportError:  # torch works without it
    numpy = None  # type: ignore[assignment]

__all__ = ["TorchBatchProcessor", "TorchBatchProcessorContext", "predict", "torch_batch_process"]

Output = Any  # a tensor, an array, a list with an entry a sample, or a dict or tuple of those
_LABELS = {"label", "labels", "target", "targets"}
_ON_DEVICE = 4  # outputs left on the device before they are fetched, so that a GPU is not waited for each batch

_calls: "weakref.WeakKeyDictionary[Context, int]" = weakref.WeakKeyDictionary()


def predict(
    trial: PyTorchTrial,
    data: Any,
    *,
    context: PyTorchTrialContext,
    checkpoint_period: int = 100,
    folder: "str | os.PathLike[str] | None" = None,
) -> Output:
    """What the trial says about each sample, in the data's order, on every rank. Collective.

    The trial's `predict_batch(self, batch)` decides. Without one, its only model is called: on the batch if that is a
    tensor, on the first of a tuple or list (the rest are labels), or with the entries of a dict that its forward has
    parameters for (labels left out). Outputs of batches are joined: tensors and arrays along their first dimension,
    lists by appending, dicts and tuples entry by entry. All end up on the CPU.

    Every `checkpoint_period` batches what is done so far is written to `folder`, which all ranks must share; called
    again with the same folder, only the rest is predicted. Under a supervisor the folder is the run's own, and a
    restarted run goes on by itself.
    """
    _check_order(data)
    if checkpoint_period < 1:
        raise UsageError(f"checkpoint_period is {checkpoint_period}: expected a number of batches, at least 1.")
    distributed = context.distributed
    make = _predictor(trial, context)
    device = context.device if context.auto_to_device else "cpu"
    stream = open_validation(data, rank=distributed.rank, size=distributed.size, device=device)
    kept = _open_kept(context.run, distributed, folder, samples=stream.num_samples)
    done = distributed.broadcast(kept.batches if kept else 0)
    if kept:
        kept.batches = done  # every rank must agree, also one that sees the folder late
    with evaluating(context.models), StopSignals(context.run) as signals:
        vote = StopVote(distributed)
        mine: list[tuple[int, Output]] = []
        step = 0
        for step, batch in enumerate(stream.rounds(done), start=1):
            if batch is not None:
                mine.append((done + (step - 1) * distributed.size + distributed.rank, make(batch)))
            elif any(map(is_sharded, context.models)):
                make(_first_batch(data, device))  # a sharded model works only if all ranks take part
            if step % _ON_DEVICE == 0:
                _fetch(mine)
            due = kept is not None and step % checkpoint_period == 0
            stopping = vote.any_asked(step, signals.asked) or (due and distributed.all_reduce_any(signals.asked))
            if kept and (stopping or due):
                kept.add(_fetch(mine), batches=done + step * distributed.size)
                mine.clear()
            if stopping:
                signals.leave(step, None)
    if kept and kept.batches < (all_done := done + step * distributed.size):
        kept.add(_fetch(mine), batches=all_done)  # the script may yet fail, and be restarted
        mine.clear()
    return _assembled(kept, _fetch(mine), distributed)


def _check_order(data: Any) -> None:
    if isinstance(data, torch_data.DataLoader) and isinstance(data.sampler, torch_data.RandomSampler):
        raise UsageError(
            "The data to predict is shuffled, so nobody could tell which prediction is whose. Use shuffle=False."
        )


def _predictor(trial: PyTorchTrial, context: PyTorchTrialContext) -> Callable[[Any], Output]:
    if callable(own := getattr(trial, "predict_batch", None)):
        return lambda batch: own(batch=batch)
    if len(context.models) != 1:
        raise UsageError(
            f"{type(trial).__name__} has no predict_batch and {len(context.models)} wrapped models, so there is no"
            " telling what to predict with. Write predict_batch(self, batch) in the trial."
        )
    model = context.models[0]
    return lambda batch: _forward(model, batch)


def _forward(model: nn.Module, batch: Any) -> Output:
    if isinstance(batch, Mapping):
        return model(**_arguments(model, batch))
    if isinstance(batch, list | tuple):
        return model(**_arguments(model, batch[0])) if isinstance(batch[0], Mapping) else model(batch[0])
    return model(batch)


def _arguments(model: nn.Module, batch: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(getattr(model, "module", model).forward).parameters.values()
    anything = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    names = {parameter.name for parameter in parameters}
    chosen = {k: v for k, v in batch.items() if k not in _LABELS and (anything or k in names)}
    if not chosen:
        raise UsageError(
            f"The batch has {', '.join(map(str, batch))} and the model's forward takes {', '.join(names)}: nothing in"
            " common. Write predict_batch(self, batch) in the trial."
        )
    return chosen


def _first_batch(data: Any, device: torch.device | str) -> Any:
    batch, _ = next(iter(open_validation(data, rank=0, size=1, device=device)))
    return batch


def _fetch(outputs: list[tuple[int, Output]]) -> list[tuple[int, Output]]:
    """The same list, with its newest outputs on the CPU too."""
    for index in range(max(0, len(outputs) - _ON_DEVICE), len(outputs)):
        number, output = outputs[index]
        outputs[index] = (number, _on_cpu(output))
    return outputs


def _on_cpu(output: Output) -> Output:
    if isinstance(output, torch.Tensor):
        return output.detach().cpu()
    if isinstance(output, Mapping):  # a library's own class of dict becomes a plain one
        return {key: _on_cpu(value) for key, value in output.items()}
    if isinstance(output, list):
        return list(map(_on_cpu, output))
    return tuple(map(_on_cpu, output)) if isinstance(output, tuple) else output


def _assembled(kept: "_Kept | None", mine: list[tuple[int, Output]], distributed: DistributedContext) -> Output:
    earlier = kept.read() if kept and distributed.rank == 0 else []
    everyones = distributed.allgather(earlier + mine)
    by_number = dict(pair for ranks in everyones for pair in ranks)
    if not by_number:
        raise UsageError("The data to predict is empty: not one batch came from its loader.")
    return _joined([by_number[number] for number in sorted(by_number)])


def _joined(outputs: list[Output]) -> Output:
    first = outputs[0]
    if isinstance(first, torch.Tensor):
        return torch.cat([output if output.dim() else output.reshape(1) for output in outputs])
    if numpy is not None and isinstance(first, numpy.ndarray):
        return numpy.concatenate(outputs)
    if isinstance(first, dict):
        return {key: _joined([output[key] for output in outputs]) for key in first if first[key] is not None}
    if isinstance(first, tuple):
        return tuple(_joined(list(column)) for column in zip(*outputs, strict=True))
    if isinstance(first, list):
        return [entry for output in outputs for entry in output]
    raise UsageError(
        f"The prediction for a batch is a {type(first).__name__}: expected a tensor, an array, a list with an entry a"
        " sample, or a dict or tuple of those."
    )


class _Kept:
    """Predictions made so far, in a folder that all ranks write to."""

    def __init__(self, path: Path, distributed: DistributedContext, samples: int | None) -> None:
        self._path = path
        self._distributed = distributed
        self._samples = samples
        self.batches = self._done()  # over all ranks

    def add(self, outputs: list[tuple[int, Output]], *, batches: int) -> None:
        """Keep these too; then `batches` are done, over all ranks. Collective."""
        part = self._parts / f"{batches:09d}-rank{self._distributed.rank}.pt"
        torch.save(outputs, part)
        self._distributed.barrier()  # progress must not claim a part that another rank has yet to write
        if self._distributed.rank == 0:
            progress = {"batches": batches, "samples": self._samples}
            replace_file(self._path / "progress.json", json.dumps(progress))
        self.batches = batches

    def read(self) -> list[tuple[int, Output]]:
        """What all ranks kept."""
        found = []
        for part in sorted(self._parts.glob("*.pt")):
            if int(part.name.split("-")[0]) <= self.batches:  # others were cut off before all ranks had written
                # Written by this job into its own folder; predictions may be of the user's own classes.
                found += torch.load(part, weights_only=False, pickle_module=pickle)
        return found

    @property
    def _parts(self) -> Path:
        path = self._path / "parts"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _done(self) -> int:
        try:
            progress = json.loads((self._path / "progress.json").read_text())
        except FileNotFoundError:
            return 0
        if progress["samples"] != self._samples:
            raise UsageError(
                f"{self._path} holds predictions for {progress['samples']} samples, and the data now has"
                f" {self._samples}. Choose another folder, or remove this one."
            )
        return int(progress["batches"])


def _open_kept(
    run: Context, distributed: DistributedContext, folder: "str | os.PathLike[str] | None", *, samples: int | None
) -> _Kept | None:
    if folder is not None:
        return _Kept(Path(folder).absolute(), distributed, samples)
    if not run.managed:
        return None  # nobody would start it again
    call = _calls[run] = _calls.get(run, 0) + 1
    own = RunDir(run.run_dir).predictions / str(call)
    if distributed.rank == 0:
        _take_over(own, attempt=run.attempt)
    distributed.barrier()
    return _Kept(own, distributed, samples)


def _take_over(own: Path, *, attempt: int) -> None:
    """Go on with what the newest attempt before this one had: run directories are …/TRIAL/ATTEMPT/."""
    attempts = own.parents[2]
    for earlier in range(attempt - 1, 0, -1):
        theirs = attempts / str(earlier) / own.parent.name / own.name
        if (theirs / "progress.json").exists():
            shutil.copytree(theirs, own, copy_function=_link)
            return


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
