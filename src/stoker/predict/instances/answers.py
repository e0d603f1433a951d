"""What frameworks answer, as predictions that JSON can say."""

from typing import Any

from stoker.predict.base import Prediction

_PLAIN = "biufU"  # numpy's kinds whose values JSON has too


def as_predictions(found: Any) -> list[Prediction]:
    """What a framework answered, one JSON-ready prediction for each instance."""
    if isinstance(found, dict):
        columns = {str(name): as_predictions(values) for name, values in found.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if hasattr(found, "tolist"):
        plain: list[Prediction] = found.tolist()
        if getattr(found.dtype, "kind", "") in _PLAIN:
            return plain
        found = plain
    return [as_json(item) for item in found]


def as_json(value: Any) -> Any:
    """Numpy's scalars and arrays, and bytes, as JSON has them."""
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return as_json(value.tolist())
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return str(value)
