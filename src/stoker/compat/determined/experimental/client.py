"""`determined.experimental.client`: the SDK as functions: `client.create_experiment(…)`, `client.get_trial(…)`."""

from typing import Any

from stoker.compat.determined.sdk import (
    Determined,
    Experiment,
    ExperimentState,
    Trial,
    TrialMetrics,
    TrialState,
)
from stoker.compat.determined.sdk_checkpoint import (
    Checkpoint,
    CheckpointSortBy,
    CheckpointState,
    DownloadMode,
    OrderBy,
)
from stoker.compat.determined.sdk_checkpoint import OrderBy as CheckpointOrderBy
from stoker.compat.determined.sdk_functions import login, of_session
from stoker.compat.determined.sdk_models import Model, ModelVersion

__all__ = [
    "Checkpoint",
    "CheckpointOrderBy",
    "CheckpointSortBy",
    "CheckpointState",
    "Determined",
    "DownloadMode",
    "Experiment",
    "ExperimentState",
    "Model",
    "ModelVersion",
    "OrderBy",
    "Trial",
    "TrialMetrics",
    "TrialState",
    "login",
]


def __getattr__(name: str) -> Any:
    return of_session(name)
