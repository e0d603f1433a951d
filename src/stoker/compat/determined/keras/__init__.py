"""`determined.keras`."""

from stoker.compat.determined.keras import callbacks
from stoker.compat.determined.keras_callbacks import DeterminedCallback, TensorBoard, load_model_from_checkpoint_path
from stoker.compat.determined.keras_callbacks import TensorBoard as TFKerasTensorBoard
from stoker.compat.determined.keras_trial import InputData, TFKerasTrial, TFKerasTrialContext
from stoker.compat.determined.old_optimizers import take_old_arguments

__all__ = [
    "DeterminedCallback",
    "InputData",
    "TFKerasTensorBoard",
    "TFKerasTrial",
    "TFKerasTrialContext",
    "TensorBoard",
    "callbacks",
    "load_model_from_checkpoint_path",
]

take_old_arguments()
