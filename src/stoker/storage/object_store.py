"""The port every storage implements: where a bucket's objects really are. `tests/contracts/storage.py` tests it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from stoker.errors import ConflictError, StokerError
from stoker.storage.draft import Draft


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object. Checksums are base64, and empty when nobody has computed them yet."""

    key: str
    size: int
    generation: int  # another number for every write of this key; microseconds since 1970 where the storage has none
    metageneration: int = 1
    crc32c: str = ""
    md5: str = ""
    created: float = 0.0
    updated: float = 0.0
    attributes: Mapping[str, Any] = field(default_factory=dict)  # by Google's names: contentType, metadata, …


@dataclass(frozen=True, slots=True)
class Folder:
    """What a listing with a delimiter shows for all objects that begin so; ends with the delimiter."""

    key: str


class DeniedError(StokerError):
    """The storage is there, and will not let us."""

    http_status = 403


class PreconditionError(ConflictError):
    """The object is not in the state that the write was made for."""

    http_status = 412


Check = Callable[[StoredObject | None], None]  # raises PreconditionError


def no_check(current: StoredObject | None) -> None:
    """Any state will do."""


class ObjectStore(Protocol):
    """A bucket's objects, wherever they are.

    1. An object is there whole, or not at all: a reader sees the old bytes or the new ones.
    2. Any string is a key; `a` and `a/b` may both be there.
    3. Listings are in the order of the keys.
    4. Every failure is a StokerError that names the place.
    """

    def stat(self, key: str) -> StoredObject | None:
        """None when there is no such object."""
        ...

    def with_checksums(self, found: StoredObject) -> StoredObject:
        """The same with its checksums, read from the bytes where they were not known."""
        ...

    def list(self, prefix: str = "", *, folders: bool = False, after: str = "") -> Iterator[StoredObject | Folder]:
        """Objects whose key begins with the prefix, from behind `after`; below the next slash as Folder, if asked."""
        ...

    def open(self, key: str) -> BinaryIO:
        """Read, seekable; NotFoundError."""
        ...

    def draft(self, key: str, *, resume: str | None = None) -> Draft:
        """A place for the bytes of a new object; with `resume`, the one that was left under that word before."""
        ...

    def commit(
        self, key: str, draft: Draft, *, attributes: Mapping[str, Any] | None = None, check: Check = no_check
    ) -> StoredObject:
        """Make the draft the object, in one step, if the check of the present one passes. Uses the draft up."""
        ...

    def update(self, key: str, attributes: Mapping[str, Any], *, check: Check = no_check) -> StoredObject:
        """Replace the attributes, not the bytes; NotFoundError."""
        ...

    def remove(self, key: str, *, check: Check = no_check) -> None:
        """NotFoundError when there is nothing to remove."""
        ...

    def local_path(self, key: str) -> Path | None:
        """Where the bytes are, or would be, on this machine; None when they are elsewhere."""
        ...

    def exists(self) -> bool:
        """Whether the bucket is there, though it may be empty."""
        ...

    def where(self) -> str:
        """Where this is, in words for a person."""
        ...
