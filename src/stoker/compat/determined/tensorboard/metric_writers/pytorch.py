"""`determined.tensorboard.metric_writers.pytorch`: `TorchWriter().writer` is a SummaryWriter of the run's."""

from stoker.compat.determined.summaries import TorchWriter

__all__ = ["TorchWriter"]
