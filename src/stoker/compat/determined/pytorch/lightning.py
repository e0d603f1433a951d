"""`determined.pytorch.lightning`."""

from stoker.compat.determined.lightning_adapter import LightningAdapter

__all__ = ["LightningAdapter"]
