"""Predict with what came out of training: bundles, formats, batch and online."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.predict.exporters import export
    from stoker.predict.loading import load

__all__ = ["export", "load"]

_HOMES = {"export": "exporters", "load": "loading"}


def __getattr__(name: str) -> Any:
    """Looked up late: whoever reads a bundle's card need not pay for what loads it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
