"""`determined.keras`."""

from stoker.compat.determined.keras_callbacks import DeterminedCallback, TensorBoard
from stoker.compat.determined.keras_trial import InputData, TFKerasTrial, TFKerasTrialContext

__all__ = ["DeterminedCallback", "InputData", "TFKerasTrial", "TFKerasTrialContext", "TensorBoard"]
