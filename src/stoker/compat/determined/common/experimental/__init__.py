"""`determined.common.experimental`: where the SDK was first."""

from stoker.compat.determined.sdk import Determined, Experiment, Trial
from stoker.compat.determined.sdk import Experiment as ExperimentReference
from stoker.compat.determined.sdk import Trial as TrialReference
from stoker.compat.determined.sdk_checkpoint import Checkpoint
from stoker.compat.determined.sdk_checkpoint import OrderBy as ModelOrderBy
from stoker.compat.determined.sdk_models import Model, ModelVersion
from stoker.compat.determined.sdk_orders import ModelSortBy

__all__ = [
    "Checkpoint",
    "Determined",
    "Experiment",
    "ExperimentReference",
    "Model",
    "ModelOrderBy",
    "ModelSortBy",
    "ModelVersion",
    "Trial",
    "TrialReference",
]
