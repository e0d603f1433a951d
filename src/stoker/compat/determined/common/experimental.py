"""`determined.common.experimental`: where the SDK was first."""

from stoker.compat.determined.sdk import Determined, Experiment, Model, Trial
from stoker.compat.determined.sdk_checkpoint import Checkpoint

__all__ = ["Checkpoint", "Determined", "Experiment", "Model", "Trial"]
