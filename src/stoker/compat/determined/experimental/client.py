"""`determined.experimental.client`: the SDK as functions: `client.create_experiment(…)`, `client.get_trial(…)`."""

from typing import Any

from stoker.compat.determined.sdk import (
    Checkpoint,
    Determined,
    Experiment,
    ExperimentState,
    Model,
    ModelVersion,
    Trial,
    TrialMetrics,
    TrialState,
)
from stoker.compat.determined.sdk_functions import login, of_session

__all__ = [
    "Checkpoint",
    "Determined",
    "Experiment",
    "ExperimentState",
    "Model",
    "ModelVersion",
    "Trial",
    "TrialMetrics",
    "TrialState",
    "login",
]


def __getattr__(name: str) -> Any:
    return of_session(name)
