"""`determined.common.experimental.trial`."""

from stoker.compat.determined.sdk import Trial, TrialState
from stoker.compat.determined.sdk import Trial as TrialReference
from stoker.compat.determined.sdk_checkpoint import OrderBy as TrialOrderBy
from stoker.compat.determined.sdk_orders import TrialSortBy

__all__ = ["Trial", "TrialOrderBy", "TrialReference", "TrialSortBy", "TrialState"]
