"""`determined.common.experimental`: where the SDK was first."""

from stoker.compat.determined.sdk import Checkpoint, Determined, Experiment, Model, Trial

__all__ = ["Checkpoint", "Determined", "Experiment", "Model", "Trial"]
