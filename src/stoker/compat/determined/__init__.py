"""Determined's names over ours: what scripts written for it import, they get, and it reports to a run of stoker's."""

import importlib
from typing import Any

from stoker.compat.determined import reexports
from stoker.compat.determined.cluster import ClusterInfo, TrialInfo, get_cluster_info
from stoker.compat.determined.importing import import_from_path
from stoker.compat.determined.oldest import (
    Categorical,
    Constant,
    Double,
    Integer,
    LegacyTrial,
    Log,
    Trial,
    TrialContext,
)
from stoker.context import InvalidHP

__version__ = "0.38.1"  # the release whose names these are

LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"

__all__ = [
    "LOG_FORMAT",
    "Categorical",
    "ClusterInfo",
    "Constant",
    "Double",
    "Integer",
    "InvalidHP",
    "LegacyTrial",
    "Log",
    "Trial",
    "TrialContext",
    "TrialInfo",
    "get_cluster_info",
    "import_from_path",
]

_MODULES = (
    "common",
    "core",
    "errors",
    "experimental",
    "horovod",
    "keras",
    "launch",
    "lightning",
    "pytorch",
    "tensorboard",
    "transformers",
    "util",
)
reexports.install()
_UNITS = ("Batch", "Batches", "Epoch", "Epochs")  # of the Trainer API's proposal: det.Epochs(1)


def lazily(package: str, name: str) -> Any:
    """A module or unit of this package by name; `det.pytorch` needs no import of its own, and torch takes seconds."""
    if name in _MODULES:
        return importlib.import_module(f"{package}.{name}")
    if name in _UNITS:
        return getattr(importlib.import_module("stoker.pytorch"), name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def __getattr__(name: str) -> Any:
    return lazily(__name__, name)
