"""`determined.common`."""

import importlib.util
from typing import Any

from stoker.compat.determined.checks import set_logger

__all__ = ["set_logger"]


def __getattr__(name: str) -> Any:
    """`from determined.common import yaml` gave ruamel's; PyYAML where that is not installed."""
    if name == "yaml":
        has_ruamel = importlib.util.find_spec("ruamel") is not None
        return importlib.import_module("ruamel.yaml" if has_ruamel else "yaml")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
