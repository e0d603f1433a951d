"""`determined.common.experimental.determined`."""

from stoker.compat.determined.sdk import Determined

__all__ = ["Determined"]
