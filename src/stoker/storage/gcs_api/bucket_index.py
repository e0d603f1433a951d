"""A bucket as a request names it: found, or refused in Google's words."""

import os
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import unquote

from stoker.storage.buckets import Buckets
from stoker.storage.files import from_stat
from stoker.storage.gcs_api.errors import ApiError, no_object
from stoker.storage.object_store import ObjectStore, StoredObject
from stoker.storage.url import StorageUrl, is_bucket


class ReplacedError(Exception):
    """The object is not the one that was looked at any more: look again."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One that is there, or will be as soon as something is written to it."""

    name: str
    store: ObjectStore

    def stat(self, key: str) -> StoredObject:
        found = self.store.stat(key)
        if found is None:
            raise no_object(self.name, key)
        return found

    def open(self, found: StoredObject) -> BinaryIO:
        """The bytes of this very generation; ReplacedError if the object is another one since it was looked at."""
        file = self.store.open(found.key)
        try:
            generation = from_stat(found.key, os.fstat(file.fileno())).generation
        except (OSError, AttributeError):  # not a file of this machine
            return file
        if generation != found.generation:
            file.close()
            raise ReplacedError
        return file


class BucketIndex:
    """All `gs://` buckets of the mapping."""

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets
        self._seen: dict[str, Bucket] = {}  # asking a remote store whether a bucket is there takes a request

    def bucket(self, quoted: str) -> Bucket:
        """ApiError 404 when it is not there, 400 when it could not be."""
        name = unquoted(quoted)
        if name in self._seen:
            return self._seen[name]
        if not is_bucket(name):
            raise ApiError(400, f"Invalid bucket name: {name!r}")
        place = StorageUrl("gs", name, "")
        found = Bucket(name, self._buckets.store(place))
        if self._buckets.is_open(place):
            return found
        if not found.store.exists():
            raise ApiError(404, f"The specified bucket does not exist: {self._buckets.where(place)}.")
        self._seen[name] = found
        return found

    def is_open(self, bucket: Bucket) -> bool:
        """Whether the bucket is one that comes and goes with its folder."""
        return self._buckets.is_open(StorageUrl("gs", bucket.name, ""))

    def names(self) -> list[str]:
        return list(self._buckets.names("gs"))


def unquoted(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise ApiError(400, f"Names must be UTF-8: {text}") from error
