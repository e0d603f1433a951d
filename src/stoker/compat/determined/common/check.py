"""`determined.common.check`."""

from stoker.compat.determined.checks import CHECKS, Check, CheckFailedError

__all__ = ["CheckFailedError"]


def __getattr__(name: str) -> Check:
    if name not in CHECKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return CHECKS[name]
