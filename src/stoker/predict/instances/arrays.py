"""Instances as numpy arrays: fast when they are right, and by `checking` when they are not."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.errors import InstanceError
from stoker.predict.base import Instance
from stoker.predict.instances.checking import checked
from stoker.schema.bundle import FieldSpec, Signature

_NUMBERS = {int, float}
_DTYPES: dict[str, Any] = {"float": np.float64, "integer": np.int64, "boolean": np.bool_}

Array = npt.NDArray[Any]


def width(signature: Signature) -> int | None:
    """How many numbers an instance is, if all it holds is plain numbers."""
    inputs = signature.inputs
    if len(inputs) == 1 and inputs[0].dtype == "float" and inputs[0].shape and len(inputs[0].shape) == 1:
        return inputs[0].shape[0]
    if inputs and all(spec.dtype in ("float", "integer") and spec.shape == () for spec in inputs):
        return len(inputs)
    return None


def matrix(instances: Sequence[Instance], signature: Signature) -> Array:
    """Instances of plain numbers as rows of float64; a missing value that is allowed is NaN. InstanceError."""
    columns = width(signature)
    if (fast := _fast_matrix(instances, columns, signature.inputs)) is not None:
        return fast
    rows = checked(instances, signature)
    if len(signature.inputs) == 1 and signature.inputs[0].shape:
        rows = [row[0] for row in rows]
    _same_length(rows)
    return np.array(rows, dtype=np.float64).reshape(len(instances), -1)


def filled(rows: Array, block: int) -> Array:
    """With copies of the first row up to a multiple of `block`: for models whose last bits depend on how many there are
    (blame.BLOCK)."""
    missing = -len(rows) % block
    return np.concatenate([rows, np.repeat(rows[:1], missing, axis=0)]) if missing else rows


def _fast_matrix(instances: Sequence[Instance], columns: int | None, inputs: Sequence[FieldSpec]) -> Array | None:
    """None when anything is odd. The types are looked at because numpy takes "1.5" and True for numbers."""
    if columns is None or any(spec.dtype == "integer" for spec in inputs):
        return None
    if set(map(type, instances)) != {list} or set(map(len, instances)) != {columns}:
        return None
    if not set(map(type, chain.from_iterable(instances))) <= _NUMBERS:
        return None
    try:
        rows = np.array(instances, dtype=np.float64)
    except (OverflowError, ValueError):
        return None
    return rows if np.isfinite(rows).all() else None


def arrays(instances: Sequence[Instance], signature: Signature) -> dict[str, Array]:
    """One array for each input, stacked over the instances; all of an input have the same shape. InstanceError."""
    rows = checked(instances, signature)
    return {
        spec.name: _stacked([row[at] for row in rows], spec, name=spec.name) for at, spec in enumerate(signature.inputs)
    }


def _stacked(values: list[Any], spec: FieldSpec, *, name: str) -> Array:
    try:
        stacked = np.array(values, dtype=_DTYPES.get(spec.dtype))
    except (ValueError, TypeError, OverflowError):
        _name_the_odd_one(values, name)
        raise
    return stacked


def _name_the_odd_one(values: Sequence[Any], name: str) -> None:
    """Which one cannot be stacked on the first: raises InstanceError unless each can."""
    shape: tuple[int, ...] | None = None
    for index, value in enumerate(values):
        try:
            found = np.array(value, dtype=np.float64).shape
        except (ValueError, TypeError, OverflowError):
            raise InstanceError("is no array: its rows differ in length", index=index, field=name or None) from None
        if shape is not None and found != shape:
            what = f"has the shape {list(found)}; those before it have {list(shape)}"
            raise InstanceError(what, index=index, field=name or None)
        shape = found


def _same_length(rows: Sequence[Sequence[Any]]) -> None:
    for index, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise InstanceError(f"has {len(row)} values; those before it have {len(rows[0])}", index=index)
