"""One training package, anywhere. `stoker.init()` is the whole API for code that runs inside a job."""

from stoker.context import Context, init

__all__ = ["Context", "init"]
