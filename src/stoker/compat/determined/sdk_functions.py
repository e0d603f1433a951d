"""The SDK's functions without an object: they share one, made at the first use or by `login`."""

from typing import Any

from stoker.compat.determined.sdk import Determined

_session: Determined | None = None


def login(master: str | None = None, user: str | None = None, password: str | None = None, **more: Any) -> None:
    """Taken and not needed: the server is found as the command line finds it."""
    global _session
    _session = Determined(master, user, password, **more)


def of_session(name: str) -> Any:
    """A method of the shared object, as a function."""
    global _session
    if not hasattr(Determined, name) or name.startswith("_"):
        raise AttributeError(f"determined.experimental.client has no attribute {name!r}")
    _session = _session or Determined()
    return getattr(_session, name)
