"""Predictions as JSON that every reader takes."""

import base64
import json
import math
from typing import Any

from stoker.errors import StokerError


def encode(value: Any) -> bytes:
    """NaN and the infinities become "NaN", "Infinity" and "-Infinity", as in Google's APIs: JSON has no numbers for
    them, `float()` reads these words in Python, and a silent null or zero would hide that the model gave none.
    """
    try:
        return _STRICT(value).encode()
    except ValueError:
        return _STRICT(_spelled(value)).encode()


def _plain(value: Any) -> Any:
    """What predictors should not answer with, but custom ones do."""
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if hasattr(value, "tolist"):  # numpy, torch
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise StokerError(f"its prediction holds a {type(value).__name__}, which JSON has no word for.")


# Built once: json.dumps with any setting builds an encoder at each call.
_STRICT = json.JSONEncoder(allow_nan=False, default=_plain).encode


def _spelled(value: Any) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _spelled(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled(item) for item in value]
    if value is None or isinstance(value, str | int):
        return value
    return _spelled(_plain(value))
