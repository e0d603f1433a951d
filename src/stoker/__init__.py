"""One training package, anywhere. `stoker.init()` is the whole API inside a job; `stoker.submit()` submits one."""

from typing import TYPE_CHECKING, Any

from stoker.context import Context, InvalidHP, init

__all__ = ["Context", "InvalidHP", "init"]

if TYPE_CHECKING:
    from stoker.submission.api import submit as submit
    from stoker.submission.handle import JobHandle as JobHandle


def __getattr__(name: str) -> Any:
    """Looked up late: `stoker.Epochs(1)` imports torch, and `stoker.submit` what code inside a job does not need."""
    if name == "submit":
        from stoker.submission.api import submit  # noqa: PLC0415

        return submit
    if name == "JobHandle":
        from stoker.submission.handle import JobHandle  # noqa: PLC0415

        return JobHandle
    if name in ("Batch", "Batches", "Epoch", "Epochs"):
        from stoker import pytorch  # noqa: PLC0415

        return getattr(pytorch, name)
    raise AttributeError("module 'stoker' has no attribute {!r}".format(name))
