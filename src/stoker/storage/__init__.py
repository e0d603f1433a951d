"""Buckets and files by URL: one mapping says where each is, and the package that names it never knows."""

from stoker.storage.access import Listed, Progress, Storage
from stoker.storage.copying import Copied
from stoker.storage.place import Place

__all__ = ["Copied", "Listed", "Place", "Progress", "Storage"]
