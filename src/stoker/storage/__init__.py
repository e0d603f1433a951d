"""Buckets and files by URL: one mapping says where each is, and the package that names it never knows."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.storage.copying import Copied
    from stoker.storage.storage import Listed, Progress, Storage
    from stoker.storage.url import StorageUrl

__all__ = ["Copied", "Listed", "Progress", "Storage", "StorageUrl"]

_HOMES = {"Copied": "copying", "StorageUrl": "url"}


def __getattr__(name: str) -> Any:
    """Looked up late: supervisors need one small file of this package at their start, and all of it never."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'storage')}"), name)
