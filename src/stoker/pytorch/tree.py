"""State of any shape as JSON and tensors, and back: what makes checkpoints loadable without pickle.

{"step": 3, "momentum": tensor}   ->   {"step": 3, "momentum": {"$tensor": "momentum"}}  and  {"momentum": tensor}
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from stoker.pytorch.weights import can_hold


@dataclass(slots=True)
class Flat:
    """A tree taken apart."""

    skeleton: Any = None  # JSON
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)  # neither: sparse tensors, objects of the user's


def flatten(tree: Any) -> Flat:
    """Take a tree of dicts, lists, tuples and sets apart. Tensors are not copied."""
    flat = Flat()
    flat.skeleton = _encode(tree, "", flat)
    return flat


def unflatten(flat: Flat) -> Any:
    """Put it together again."""
    return _decode(flat.skeleton, flat)


def _encode(value: Any, path: str, flat: Flat) -> Any:
    if isinstance(value, torch.Tensor):
        return _encode_tensor(value, path, flat)
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()  # a numpy float is a float, but not to JSON
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return _encode_dict(value, path, flat)
    if isinstance(value, list):
        return _encode_items(value, path, flat)
    if isinstance(value, tuple):
        return {"$tuple": _encode_items(value, path, flat)}
    if isinstance(value, set | frozenset):
        return {"$set": _encode_items(sorted(value, key=repr), path, flat)}
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, torch.dtype | torch.device):
        return {f"${type(value).__name__}": str(value).removeprefix("torch.")}
    name = _free_name(path, flat.others)
    flat.others[name] = value
    return {"$other": name}


def _encode_tensor(value: torch.Tensor, path: str, flat: Flat) -> dict[str, str]:
    kind, held = ("$tensor", flat.tensors) if can_hold(value) else ("$other", flat.others)
    name = _free_name(path, held)
    held[name] = value
    return {kind: name}


def _encode_dict(value: dict[Any, Any], path: str, flat: Flat) -> Any:
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _encode(item, f"{path}.{key}", flat) for key, item in value.items()}
    return {"$dict": [[_encode(key, path, flat), _encode(item, f"{path}.{key}", flat)] for key, item in value.items()]}


def _encode_items(value: Any, path: str, flat: Flat) -> list[Any]:
    return [_encode(item, f"{path}.{index}", flat) for index, item in enumerate(value)]


def _free_name(path: str, taken: Mapping[str, Any]) -> str:
    name = path.lstrip(".") or "value"
    while name in taken:
        name += "'"  # {"a.b": …} beside {"a": {"b": …}}
    return name


def _decode(value: Any, flat: Flat) -> Any:
    if isinstance(value, list):
        return [_decode(item, flat) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((tag, content),) = value.items()
        if tag in _DECODERS:
            return _DECODERS[tag](content, flat)
    return {key: _decode(item, flat) for key, item in value.items()}


_DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
_DECODERS: dict[str, Callable[[Any, Flat], Any]] = {
    "$tensor": lambda name, flat: flat.tensors[name],
    "$other": lambda name, flat: flat.others[name],
    "$dict": lambda items, flat: {_decode(key, flat): _decode(item, flat) for key, item in items},
    "$tuple": lambda items, flat: tuple(_decode(item, flat) for item in items),
    "$set": lambda items, flat: {_decode(item, flat) for item in items},
    "$bytes": lambda text, flat: bytes.fromhex(text),
    "$dtype": lambda name, flat: _DTYPES[name],
    "$device": lambda name, flat: torch.device(name),
}
