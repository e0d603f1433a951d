"""Train PyTorch models: write a `PyTorchTrial`, and the same code runs here, on several processes and as a job."""

from stoker.pytorch import samplers
from stoker.pytorch.callbacks import PyTorchCallback
from stoker.pytorch.context import TrainerContext, init
from stoker.pytorch.data.loader import DataLoader, TorchData, adapt_batch_sampler, data_length, to_device
from stoker.pytorch.distributed import DistributedContext
from stoker.pytorch.inference import TorchBatchProcessor, TorchBatchProcessorContext, torch_batch_process
from stoker.pytorch.loading import CheckpointLoadContext, load_trial_from_checkpoint_path
from stoker.pytorch.metrics import MetricReducer, Reducer
from stoker.pytorch.ready_callbacks import EMA, EarlyStopping, GradientNormMonitor, LearningRateMonitor, LRFinder
from stoker.pytorch.run_info import InvalidHP
from stoker.pytorch.saving import Keep
from stoker.pytorch.schedulers import LRScheduler
from stoker.pytorch.trainer import Trainer
from stoker.pytorch.trial import PyTorchTrial
from stoker.pytorch.trial_context import PyTorchTrialContext
from stoker.pytorch.units import Batch, Batches, Epoch, Epochs, TrainUnit

__all__ = [
    "EMA",
    "Batch",
    "Batches",
    "CheckpointLoadContext",
    "DataLoader",
    "DistributedContext",
    "EarlyStopping",
    "Epoch",
    "Epochs",
    "GradientNormMonitor",
    "InvalidHP",
    "Keep",
    "LRFinder",
    "LRScheduler",
    "LearningRateMonitor",
    "MetricReducer",
    "PyTorchCallback",
    "PyTorchTrial",
    "PyTorchTrialContext",
    "Reducer",
    "TorchBatchProcessor",
    "TorchBatchProcessorContext",
    "TorchData",
    "TrainUnit",
    "Trainer",
    "TrainerContext",
    "adapt_batch_sampler",
    "data_length",
    "init",
    "load_trial_from_checkpoint_path",
    "samplers",
    "to_device",
    "torch_batch_process",
]
