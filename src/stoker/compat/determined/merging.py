"""One configuration over another, as Determined's `util.merge_dicts`."""

import copy
from typing import Any


def merge_dicts(dict1: dict[str, Any], dict2: dict[str, Any]) -> dict[str, Any]:
    """A new one: what `dict2` says wins, and maps within are merged rather than replaced."""
    merged = copy.deepcopy(dict1)
    for name, value in dict2.items():
        own = merged.get(name)
        merged[name] = merge_dicts(own, value) if isinstance(own, dict) and isinstance(value, dict) else value
    return merged
