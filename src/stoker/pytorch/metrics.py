"""Metrics of many batches and ranks become one number each; they stay on the device until they are read."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain, zip_longest
from typing import Any

import torch

from stoker.errors import UsageError

# `report(step, group, **metrics)` has these two names for itself.
_RESERVED = {"step", "group"}
# Scalars are packed into one tensor so that a long window on a GPU does not hold a 512-byte block for each.
_PACK_AFTER = 1024


class Reducer(Enum):
    """How one metric's values over batches (and then over ranks) combine."""

    AVG = "avg"  # weighted by samples: a short last batch counts for what it holds
    MEAN_OF_BATCHES = "mean of batches"  # every batch counts the same, as Determined's AVG did
    SUM = "sum"
    MAX = "max"
    MIN = "min"


Weighted = tuple[Any, float]


def reduce_values(reducer: Reducer, values: Sequence[Weighted], name: str = "") -> Weighted:
    """Combine (value, weight) pairs into one such pair, so that ranks combine just as batches do.

    Weight 0 is a batch that a rank only repeats to keep the others company: it counts for nothing.
    """
    values = [pair for pair in values if pair[1]] or values
    numbers = _stack([value for value, _ in values], name)
    weights = torch.tensor([weight for _, weight in values], dtype=torch.float64)
    total = float(weights.sum())
    match reducer:
        case Reducer.AVG | Reducer.MEAN_OF_BATCHES:
            result = torch.tensordot(weights, numbers, dims=1) / total
        case Reducer.SUM:
            result = numbers.sum(0)
        case Reducer.MAX:
            result = numbers.amax(0)
        case Reducer.MIN:
            result = numbers.amin(0)
    return (result.item() if result.dim() == 0 else result), total


def _stack(values: Sequence[Any], name: str) -> torch.Tensor:
    if all(isinstance(value, float) for value in values):
        return torch.tensor(values, dtype=torch.float64)
    tensors = [torch.as_tensor(value, dtype=torch.float64) for value in values]
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) > 1:
        raise UsageError(
            f"Metric {name!r} has values of shapes {', '.join(map(str, sorted(shapes)))}, which cannot be averaged."
            " Return one number for a batch, or the same shape for every batch."
        )
    return torch.stack(tensors)


class MetricWindow:
    """The metrics of consecutive batches. Adding never waits for the device; reading does, once a metric."""

    def __init__(self, source: str) -> None:
        self._source = source  # "train_batch": for messages
        self.clear()

    def __len__(self) -> int:
        return len(self.samples)

    def clear(self) -> None:
        self.samples: list[int] = []
        self._columns: dict[str, list[Any]] = {}
        self._packed: dict[str, list[torch.Tensor]] = {}

    def add(self, metrics: Mapping[str, Any], samples: int) -> None:
        if metrics.keys() != self._columns.keys():
            self._begin(metrics)
        for name, value in metrics.items():
            if isinstance(value, torch.Tensor):
                # Without a graph it may be a running total that the user goes on adding to, so keep a copy.
                value = value.detach() if value.requires_grad else value.clone()
            self._columns[name].append(value)
        self.samples.append(samples)
        if len(self.samples) % _PACK_AFTER == 0:
            self._pack()

    def read(self) -> list[dict[str, Any]]:
        """One dict a batch, of plain numbers (and CPU tensors for what is not a scalar)."""
        columns = {
            name: [
                *chain.from_iterable(chunk.tolist() for chunk in self._packed.get(name, [])),
                *_to_host(name, column, self._source),
            ]
            for name, column in self._columns.items()
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def _begin(self, metrics: Mapping[str, Any]) -> None:
        if self.samples:
            raise UsageError(
                f"{self._source} returned metrics {_names(metrics)} for one batch and {_names(self._columns)} for the"
                " batches before. Return the same names for every batch (NaN for a value that is missing)."
            )
        for name in metrics:
            if not isinstance(name, str) or name in _RESERVED:
                raise UsageError(
                    f"{self._source} returned a metric named {name!r}: a name is a string, and not 'step' or 'group'."
                )
        self._columns = {name: [] for name in metrics}

    def _pack(self) -> None:
        for name, column in self._columns.items():
            if all(isinstance(value, torch.Tensor) and value.numel() == 1 for value in column):
                self._packed.setdefault(name, []).append(torch.cat([value.reshape(1) for value in column]))
                column.clear()


def _names(metrics: Mapping[str, Any]) -> str:
    return ", ".join(sorted(map(str, metrics))) or "(none)"


def _to_host(name: str, values: list[Any], source: str) -> list[Any]:
    if not values or not all(isinstance(value, torch.Tensor) for value in values):
        return [_plain(name, value, source) for value in values]
    if all(value.numel() == 1 for value in values):
        scalars = torch.cat([value.reshape(1) for value in values])
        return [float(value) for value in scalars.tolist()]
    return [value.cpu() for value in values]


def _plain(name: str, value: Any, source: str) -> Any:
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else value.cpu()
    if hasattr(value, "__array__") and value.ndim > 0:
        return torch.as_tensor(value)
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{source} returned {type(value).__name__} {value!r} for metric {name!r}: a metric is a number or a tensor."
        ) from error


def as_metrics(returned: Any, source: str) -> dict[str, Any]:
    """What a trial's method returned, as metrics by name; a bare tensor is the loss."""
    if isinstance(returned, torch.Tensor):
        return {"loss": returned}
    if isinstance(returned, dict):
        return returned
    raise UsageError(
        f"{source} returned {'nothing' if returned is None else 'a ' + type(returned).__name__}."
        f" Expected a dict of metrics, like {{'loss': loss}}."
    )


def scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Those metrics that are one number: what can be drawn as a line."""
    return {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}


class MetricReducer(ABC):
    """A metric of the user's own over a whole window or validation, like AUC. Wrap it with `context.wrap_reducer`."""

    @abstractmethod
    def reset(self) -> None:
        """Forget everything; called before each training window and each validation."""

    @abstractmethod
    def per_slot_reduce(self) -> Any:
        """What this rank has gathered, in a form that can be pickled and sent to the others."""

    @abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        """The metric (or a dict of them, when wrapped without a name) from what every rank gathered."""


class FunctionReducer(MetricReducer):
    """Collects values with `update`; the function gets all of them, in the order the batches had before sharding."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self._function = function
        self.reset()

    def reset(self) -> None:
        self._values: list[Any] = []

    def update(self, value: Any) -> None:
        self._values.append(value.detach().clone() if isinstance(value, torch.Tensor) else value)

    def per_slot_reduce(self) -> list[Any]:
        return [value.cpu() if isinstance(value, torch.Tensor) else value for value in self._values]

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        missing = object()
        rounds = zip_longest(*per_slot_metrics, fillvalue=missing)
        return self._function([value for values in rounds for value in values if value is not missing])


class WrappedReducers:
    """All reducers of a trial."""

    def __init__(self) -> None:
        self._wrapped: list[tuple[MetricReducer, str | None, bool, bool]] = []

    def wrap(
        self, reducer: MetricReducer, name: str | None, *, for_training: bool, for_validation: bool
    ) -> MetricReducer:
        if any(reducer is known for known, *_ in self._wrapped):
            raise UsageError(f"This {type(reducer).__name__} is wrapped already; wrap_reducer takes each one once.")
        self._wrapped.append((reducer, name, for_training, for_validation))
        return reducer

    def reset(self) -> None:
        for reducer, *_ in self._wrapped:
            reducer.reset()

    def reduce(self, *, for_training: bool, allgather: Callable[[Any], list[Any]]) -> dict[str, Any]:
        """The metrics of those that count now. One exchange between ranks for all of them."""
        active = list(self._active(for_training))
        if not active:
            return {}
        mine = [reducer.per_slot_reduce() for reducer, _ in active]
        by_rank = allgather(mine)
        metrics: dict[str, Any] = {}
        for index, (reducer, name) in enumerate(active):
            result = reducer.cross_slot_reduce([rank[index] for rank in by_rank])
            metrics.update(_named(reducer, name, result))
        return metrics

    def _active(self, for_training: bool) -> Iterator[tuple[MetricReducer, str | None]]:
        for reducer, name, training, validation in self._wrapped:
            if training if for_training else validation:
                yield reducer, name


def _named(reducer: MetricReducer, name: str | None, result: Any) -> dict[str, Any]:
    kind = type(reducer).__name__
    if name is None and not isinstance(result, dict):
        raise UsageError(
            f"{kind} was wrapped with name=None but it did not return a dict: it returned {type(result).__name__}."
            " Give wrap_reducer a name, or return a dict of metrics."
        )
    if name is not None and isinstance(result, dict):
        raise UsageError(
            f"{kind} was wrapped with name set but it returned a dict anyway: {sorted(map(str, result))}."
            f" Wrap it without name={name!r}, or return one value."
        )
    found = result if name is None else {name: result}
    return {key: value.item() if _is_scalar_like(value) else value for key, value in found.items()}


def _is_scalar_like(value: Any) -> bool:
    return hasattr(value, "item") and getattr(value, "numel", lambda: getattr(value, "size", 0))() == 1
