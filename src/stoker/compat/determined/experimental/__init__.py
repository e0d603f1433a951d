"""`determined.experimental`."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Looked up late: the client is for those who speak to a server."""
    if name == "Determined":
        from stoker.compat.determined.sdk import Determined  # noqa: PLC0415

        return Determined
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
