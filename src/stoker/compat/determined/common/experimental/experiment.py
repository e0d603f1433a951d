"""`determined.common.experimental.experiment`."""

from stoker.compat.determined.sdk import Experiment, ExperimentState
from stoker.compat.determined.sdk import Experiment as ExperimentReference
from stoker.compat.determined.sdk_checkpoint import OrderBy as ExperimentOrderBy
from stoker.compat.determined.sdk_orders import ExperimentSortBy

__all__ = ["Experiment", "ExperimentOrderBy", "ExperimentReference", "ExperimentSortBy", "ExperimentState"]
