"""`determined.common.experimental`: where the SDK was first."""

from stoker.compat.determined.sdk import Determined, Experiment, Trial
from stoker.compat.determined.sdk_checkpoint import Checkpoint
from stoker.compat.determined.sdk_models import Model

__all__ = ["Checkpoint", "Determined", "Experiment", "Model", "Trial"]
