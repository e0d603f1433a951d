"""Deterministic data loading: one global order, sharding, workers and device transfer."""

from stoker.pytorch.data.loader import DataLoader, open_training, open_validation

__all__ = ["DataLoader", "open_training", "open_validation"]
