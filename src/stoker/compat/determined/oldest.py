"""Words at Determined's top level that are there to be named: in annotations, and in files written as Python."""

from typing import Any


class TrialContext:
    """What every framework's context was a child of."""


class Trial:
    """What every framework's trial was a child of."""


LegacyTrial = Trial


def Constant(value: Any) -> dict[str, Any]:
    return {"type": "const", "val": value}


def Integer(minval: int, maxval: int, count: int | None = None) -> dict[str, Any]:
    return {"type": "int", "minval": minval, "maxval": maxval, **_count(count)}


def Double(minval: float, maxval: float, count: int | None = None) -> dict[str, Any]:
    return {"type": "double", "minval": minval, "maxval": maxval, **_count(count)}


def Log(minval: float, maxval: float, base: float = 10.0, count: int | None = None) -> dict[str, Any]:
    return {"type": "log", "minval": minval, "maxval": maxval, "base": base, **_count(count)}


def Categorical(vals: list[Any]) -> dict[str, Any]:
    return {"type": "categorical", "vals": list(vals)}


def _count(count: int | None) -> dict[str, int]:
    return {} if count is None else {"count": count}
