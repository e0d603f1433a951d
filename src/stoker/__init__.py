"""One training package, anywhere. `stoker.init()` is the whole API for code that runs inside a job."""

from stoker.context import Context, InvalidHP, init

__all__ = ["Context", "InvalidHP", "init"]


def __getattr__(name: str) -> type:
    """`stoker.Epochs(1)` as scripts for the trainer write it: looked up late, because it is torch that costs time."""
    if name in ("Batch", "Batches", "Epoch", "Epochs"):
        from stoker import pytorch  # noqa: PLC0415

        found: type = getattr(pytorch, name)
        return found
    raise AttributeError("module 'stoker' has no attribute {!r}".format(name))
