"""`determined.lightning.experimental`: a logger for Lightning's Trainer."""

from stoker.compat.determined.det_logger import DetLogger

__all__ = ["DetLogger"]
