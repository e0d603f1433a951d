"""What a batch is, how long it is, and how it gets to the device: ahead of time, on a CUDA stream of its own."""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import torch

try:
    import numpy
except ImportError:  # torch works without it
    numpy = None  # type: ignore[assignment]

TorchData = dict[str, torch.Tensor] | list[torch.Tensor] | tuple[torch.Tensor, ...] | torch.Tensor

T = TypeVar("T")

_NOWHERE = (bool, int, float, complex, type(None))  # live in Python, whatever the device
_END: Any = object()


def data_length(data: Any) -> int:
    """How many samples a batch holds: the length of its first tensor, or of a plain list."""
    if isinstance(data, torch.Tensor) or _is_array(data):
        if data.ndim == 0:
            raise TypeError("A batch is a single number without a dimension for samples: its length is unknown.")
        return len(data)
    if isinstance(data, Mapping) and data:
        return data_length(next(iter(data.values())))
    if isinstance(data, list | tuple) and data:
        first = data[0]
        nested = isinstance(first, torch.Tensor | Mapping | list | tuple) or _is_array(first)
        return data_length(first) if nested else len(data)
    if isinstance(data, list | tuple):
        return 0
    raise TypeError(
        f"The length of a batch of type {type(data).__name__} is unknown: expected a tensor, an array, or a dict, list"
        " or tuple of them. Write get_batch_length(self, batch) in the trial."
    )


def to_device(
    data: Any, device: torch.device | str, warned_types: set[type] | None = None, *, non_blocking: bool = False
) -> Any:
    """The same data with its tensors on the device: dicts, lists, tuples and named tuples are gone through.

    Numeric numpy arrays become tensors. What has no `.to()` stays as it is, with one warning for its type, remembered
    in `warned_types`.
    """
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=non_blocking)
    warned = set() if warned_types is None else warned_types
    if type(data) in (list, tuple):  # the common case, first
        return type(data)([to_device(value, device, warned, non_blocking=non_blocking) for value in data])
    return _to_device(data, device, warned, non_blocking)


def _to_device(data: Any, device: torch.device | str, warned: set[type], non_blocking: bool) -> Any:
    def move(value: Any) -> Any:
        return to_device(value, device, warned, non_blocking=non_blocking)

    if isinstance(data, _NOWHERE):
        return data
    if hasattr(data, "to"):  # before the containers: a packed sequence is one, and knows better how to move
        return data.to(device)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(move(value) for value in data))
    if isinstance(data, list | tuple):
        return type(data)(move(value) for value in data)
    if isinstance(data, dict):
        moved = {key: move(value) for key, value in data.items()}
        return moved if type(data) is dict else type(data)(moved)
    if _is_array(data) and data.dtype.kind in "biufc":
        return torch.from_numpy(data).to(device, non_blocking=non_blocking)
    if type(data) not in warned:
        warned.add(type(data))
        what = f"{type(data).__name__} of {data.dtype}" if _is_array(data) else type(data).__name__
        warnings.warn(f"A batch holds a {what}, which cannot be moved to {device}: left as it is.", stacklevel=3)
    return data


def moved(
    batches: Iterator[tuple[Any, T]], device: torch.device, *, ahead: bool = False, pin: bool = False
) -> Iterator[tuple[Any, T]]:
    """The batches on the device, each with what came beside it.

    On a GPU the copy has a stream of its own, so it overlaps the training of the batch before. `ahead`: it starts one
    batch early; only for batches whose making draws nothing from this process's generators, because the draws would
    come before those of the batch that is trained. `pin`: through pinned memory, for batches that are not there yet.
    """
    warned: set[type] = set()
    if device.type != "cuda":
        return ((to_device(batch, device, warned), beside) for batch, beside in batches)
    if pin:
        batches = ((_pinned(batch), beside) for batch, beside in batches)
    copies = _copied(batches, device, warned)
    return _arrived(_one_ahead(copies) if ahead else copies, device)


def _copied(
    batches: Iterator[tuple[Any, T]], device: torch.device, warned: set[type]
) -> Iterator[tuple[Any, torch.cuda.Event, T]]:
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    for batch, beside in batches:
        # Memory taken on the side must be told of its use elsewhere; what hides its tensors cannot be told.
        stream = side if _shows_tensors(batch) else torch.cuda.current_stream(device)
        with torch.cuda.stream(stream):
            copy = to_device(batch, device, warned, non_blocking=True)
        yield copy, stream.record_event(), beside


def _arrived(copies: Iterator[tuple[Any, torch.cuda.Event, T]], device: torch.device) -> Iterator[tuple[Any, T]]:
    for batch, copied, beside in copies:
        training = torch.cuda.current_stream(device)
        training.wait_event(copied)
        _record(batch, training)
        yield batch, beside


def _one_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, each given when the next has been begun."""
    current = next(items, _END)
    while current is not _END:
        following = next(items, _END)
        yield current
        current = following


def _pinned(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.pin_memory()
    if type(batch) in (list, tuple):
        return type(batch)([_pinned(value) for value in batch])
    if type(batch) is dict:
        return {key: _pinned(value) for key, value in batch.items()}
    return batch.pin_memory() if hasattr(batch, "pin_memory") else batch


def _shows_tensors(batch: Any) -> bool:
    if isinstance(batch, Mapping):
        return all(_shows_tensors(value) for value in batch.values())
    if isinstance(batch, list | tuple):
        return all(_shows_tensors(value) for value in batch)
    return not hasattr(batch, "to") or hasattr(batch, "record_stream")


def _record(batch: Any, stream: torch.cuda.Stream) -> None:
    """Keep the tensors' memory until `stream` has used it."""
    if isinstance(batch, Mapping):
        for value in batch.values():
            _record(value, stream)
    elif isinstance(batch, list | tuple):
        for value in batch:
            _record(value, stream)
    elif hasattr(batch, "record_stream") and getattr(batch, "is_cuda", True):
        batch.record_stream(stream)


def _is_array(data: Any) -> bool:
    return numpy is not None and isinstance(data, numpy.ndarray)
