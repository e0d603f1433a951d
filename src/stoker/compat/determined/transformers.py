"""`determined.transformers`."""

from stoker.compat.determined.det_callback import DetCallback

__all__ = ["DetCallback"]
