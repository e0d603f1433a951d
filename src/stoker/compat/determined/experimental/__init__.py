"""`determined.experimental`."""

import importlib
from typing import Any

# Looked up late: the client is for those who speak to a server, and training is torch's.
_PLACES = {
    "Checkpoint": "sdk_checkpoint",
    "Determined": "sdk",
    "Experiment": "sdk",
    "ExperimentReference": "sdk",
    "Mode": "native",
    "Model": "sdk_models",
    "ModelOrderBy": "sdk_checkpoint",
    "ModelSortBy": "sdk_orders",
    "ModelVersion": "sdk_models",
    "Trial": "sdk",
    "TrialReference": "sdk",
    "create": "native",
    "test_one_batch": "native",
}
_RENAMED = {"ExperimentReference": "Experiment", "ModelOrderBy": "OrderBy", "TrialReference": "Trial"}


def __getattr__(name: str) -> Any:
    if name in ("client", "core_v2"):
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"stoker.compat.determined.{_PLACES[name]}"), _RENAMED.get(name, name))
