"""Validation: every rank evaluates its share of the batches, and all of them get the same metrics."""

from collections.abc import Mapping
from typing import Any

from stoker.errors import UsageError
from stoker.pytorch import parallel
from stoker.pytorch.callbacks import Callbacks
from stoker.pytorch.data.loader import open_validation
from stoker.pytorch.metrics import MetricWindow, Reducer, Weighted, as_metrics, reduce_values
from stoker.pytorch.trial import PyTorchTrial, check_evaluates, overrides, takes_batch_idx
from stoker.pytorch.trial_context import PyTorchTrialContext


class Evaluation:
    """A trial's validation on a loader."""

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext, callbacks: Callbacks, loader: Any) -> None:
        check_evaluates(trial)
        self._trial = trial
        self._context = context
        self._callbacks = callbacks
        self._loader = loader
        self._full = overrides(trial, "evaluate_full_dataset")
        self._takes_batch_idx = not self._full and takes_batch_idx(trial)
        if self._full and any(map(parallel.is_sharded, context.models)):
            raise UsageError(
                "evaluate_full_dataset runs on rank 0 alone, and a model sharded by FSDP needs all ranks."
                " Write evaluate_batch instead."
            )

    def run(self, *, limit: int | None = None) -> dict[str, Any]:
        """The metrics, the same on all ranks; `limit` is a number of batches a rank. Collective."""
        context, callbacks = self._context, self._callbacks
        context.reducers.reset()
        with parallel.evaluating(context.models):
            for callback in callbacks:
                callback.on_validation_start()
            for callback in callbacks:
                callback.on_validation_epoch_start()
            metrics = self._evaluate_full() if self._full else self._evaluate_batches(limit)
        metrics.update(context.reduce_metrics(for_training=False))
        context.reducers.reset()
        for callback in callbacks:
            callback.on_validation_end(metrics)
        return metrics

    def _evaluate_full(self) -> dict[str, Any]:
        metrics: dict[str, Any] = {}
        if self._context.distributed.rank == 0:
            window = MetricWindow("evaluate_full_dataset")
            returned = self._trial.evaluate_full_dataset(data_loader=self._loader)
            window.add(as_metrics(returned, "evaluate_full_dataset"), samples=1)
            metrics = window.read()[0]
        metrics = self._context.distributed.broadcast(metrics)
        for callback in self._callbacks:
            callback.on_validation_epoch_end([metrics])
        return metrics

    def _evaluate_batches(self, limit: int | None) -> dict[str, Any]:
        window = MetricWindow("evaluate_batch")
        distributed = self._context.distributed
        device = self._context.device if self._context.auto_to_device else "cpu"
        stream = open_validation(self._loader, rank=distributed.rank, size=distributed.size, device=device)
        for batch, batch_idx in stream:
            if limit is not None and len(window) >= limit:
                break
            index = {"batch_idx": batch_idx} if self._takes_batch_idx else {}
            returned = self._trial.evaluate_batch(batch=batch, **index)
            window.add(as_metrics(returned, "evaluate_batch"), self._trial.get_batch_length(batch))
        outputs = window.read()
        for callback in self._callbacks:
            callback.on_validation_epoch_end(outputs)
        return self._combine(outputs, window.samples)

    def _combine(self, outputs: list[dict[str, Any]], samples: list[int]) -> dict[str, Any]:
        reducers = _reducers_by_name(self._trial.evaluation_reducer(), outputs[0] if outputs else {})
        mine: dict[str, Weighted] = {}
        for name, reducer in reducers.items():
            weights = [1] * len(samples) if reducer is Reducer.MEAN_OF_BATCHES else samples
            values = [(output[name], weight) for output, weight in zip(outputs, weights, strict=True)]
            mine[name] = reduce_values(reducer, values, name)
        ranks = self._context.distributed.allgather((mine, reducers))
        found = [rank for rank in ranks if rank[0]]  # a rank may have had no batch at all
        if not found:
            raise UsageError("The validation data is empty: not one batch came from its loader.")
        return {
            name: reduce_values(reducer, [values[name] for values, _ in found])[0]
            for name, reducer in found[0][1].items()
        }


def _reducers_by_name(asked: Reducer | Mapping[str, Reducer], metrics: Mapping[str, Any]) -> dict[str, Reducer]:
    if isinstance(asked, Reducer):
        return dict.fromkeys(metrics, asked)
    if not isinstance(asked, Mapping) or not all(isinstance(reducer, Reducer) for reducer in asked.values()):
        raise UsageError(f"evaluation_reducer returned {asked!r}: expected a Reducer, or a dict of them by metric.")
    if metrics and asked.keys() != metrics.keys():
        raise UsageError(
            f"evaluation_reducer names {', '.join(sorted(asked))}, but evaluate_batch returned"
            f" {', '.join(sorted(metrics))}. Name exactly those, or return one Reducer for all."
        )
    return {name: asked[name] for name in metrics}
