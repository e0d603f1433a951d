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
from stoker.compat.determined.sdk import TrialMetrics as TrainingMetrics
from stoker.compat.determined.sdk import TrialMetrics as ValidationMetrics
from stoker.compat.determined.sdk_checkpoint import (
    Checkpoint,
    CheckpointSortBy,
    CheckpointState,
    DownloadMode,
    OrderBy,
)
from stoker.compat.determined.sdk_checkpoint import OrderBy as CheckpointOrderBy
from stoker.compat.determined.sdk_checkpoint import OrderBy as ExperimentOrderBy
from stoker.compat.determined.sdk_checkpoint import OrderBy as ModelOrderBy
from stoker.compat.determined.sdk_checkpoint import OrderBy as TrialOrderBy
from stoker.compat.determined.sdk_functions import login, of_session
from stoker.compat.determined.sdk_models import Model, ModelVersion
from stoker.compat.determined.sdk_orders import ExperimentSortBy, ModelSortBy, TrialSortBy

__all__ = [
    "Checkpoint",
    "CheckpointOrderBy",
    "CheckpointSortBy",
    "CheckpointState",
    "Determined",
    "DownloadMode",
    "Experiment",
    "ExperimentOrderBy",
    "ExperimentSortBy",
    "ExperimentState",
    "Model",
    "ModelOrderBy",
    "ModelSortBy",
    "ModelVersion",
    "OrderBy",
    "TrainingMetrics",
    "Trial",
    "TrialMetrics",
    "TrialOrderBy",
    "TrialSortBy",
    "TrialState",
    "ValidationMetrics",
    "login",
]


def __getattr__(name: str) -> Any:
    return of_session(name)
