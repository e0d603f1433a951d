"""Buckets and files by URL: one mapping says where each is, and the package that names it never knows."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.storage.access import Listed, Progress, Storage
    from stoker.storage.copying import Copied
    from stoker.storage.place import Place

__all__ = ["Copied", "Listed", "Place", "Progress", "Storage"]

_HOMES = {"Copied": "copying", "Place": "place"}


def __getattr__(name: str) -> Any:
    """Looked up late: supervisors need one small file of this package at their start, and all of it never."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'access')}"), name)
