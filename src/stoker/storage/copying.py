"""Copy objects from one storage to another: in parallel, each whole or not at all, checksums compared.

A copy that was broken off is taken up again: objects that are there already, byte for byte, are not copied again, and
one that was half way goes on where it stopped, when it goes to files of this machine.
"""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass

from stoker.errors import ConflictError, StokerError
from stoker.formats.checksum import CHUNK_BYTES, is_crc32c_fast
from stoker.storage.draft import Draft
from stoker.storage.object_store import ObjectStore, StoredObject

WORKERS = 8  # copies wait for disks and networks, not for cores


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy came to."""

    files: int
    size_bytes: int
    unchanged: int  # of the files, those that were there already


@dataclass(frozen=True, slots=True)
class Item:
    """One object to copy. The names are for error messages."""

    source: ObjectStore
    found: StoredObject
    target: ObjectStore
    target_key: str
    source_name: str
    target_name: str


class _BrokenOffError(StokerError):
    """Another object failed, so this one is not copied to its end."""


Advance = Callable[[int], None]  # so many bytes more are there


def copy_all(items: Iterable[Item], advance: Advance) -> Copied:
    """The first failure ends it: what was copied stays, what is half way stays hidden."""
    stop = threading.Event()
    listed = tuple(items)
    with ThreadPoolExecutor(max_workers=min(WORKERS, max(len(listed), 1)), thread_name_prefix="copy") as pool:
        futures = [pool.submit(_copy, item, advance, stop) for item in listed]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            if any(not future.done() or future.exception() for future in futures):
                stop.set()
                pool.shutdown(cancel_futures=True)
    # Its siblings are broken off because of a failure, and may be listed before it: it is the failure that is told.
    failures = [future.exception() for future in futures if not future.cancelled()]
    for failure in sorted(filter(None, failures), key=lambda failure: isinstance(failure, _BrokenOffError)):
        raise failure
    unchanged = sum(not future.result() for future in futures)
    return Copied(files=len(listed), size_bytes=sum(item.found.size for item in listed), unchanged=unchanged)


def _copy(item: Item, advance: Advance, stop: threading.Event) -> bool:
    """False when it was there already."""
    there = item.target.stat(item.target_key)
    if there is not None and _is_same_file(item):
        raise ConflictError(f"{item.source_name} and {item.target_name} are the same file. Nothing was copied.")
    if there is not None and there.size == item.found.size and _same_bytes(item, there):
        advance(item.found.size)
        return False
    draft = _complete_draft(item, advance, stop)
    try:
        _check(item, draft)
        # A copy is one piece, also of an object that was composed of several.
        attributes = {name: value for name, value in item.found.attributes.items() if name != "componentCount"}
        item.target.commit(item.target_key, draft, attributes=attributes)
    except BaseException:
        draft.discard()
        raise
    return True


def _complete_draft(item: Item, advance: Advance, stop: threading.Event) -> Draft:
    local = item.source.local_path(item.found.key)
    if local is not None and item.target.local_path(item.target_key) is None:
        draft = Draft.of_file(local)
        advance(draft.size)
        return draft
    draft = item.target.draft(item.target_key, resume=f"{item.source_name} {item.found.generation} {item.found.size}")
    try:
        if draft.size > item.found.size:
            draft.start_over()
        advance(draft.size)
        with item.source.open(item.found.key) as file:
            file.seek(draft.size)
            while data := file.read(CHUNK_BYTES):
                if stop.is_set():
                    raise _BrokenOffError(f"{item.source_name}: broken off.")
                draft.write(data)
                advance(len(data))
    except BaseException:
        draft.close()  # and left: the next try goes on from here
        raise
    return draft


def _check(item: Item, draft: Draft) -> None:
    """The bytes on disk are those that were read, and those are the source's as it said they would be."""
    now = item.source.stat(item.found.key)
    if now is None or now.generation != item.found.generation or draft.size != item.found.size:
        raise ConflictError(f"{item.source_name} changed while it was copied. Copy it again.")
    if not draft.is_borrowed and not draft.is_on_disk():
        raise StokerError(f"{item.target_name}: what was read back is not what was written. Is the disk failing?")
    if (item.found.md5 and item.found.md5 != draft.md5) or (
        item.found.crc32c and is_crc32c_fast() and item.found.crc32c != draft.crc32c
    ):
        raise StokerError(f"{item.source_name}: its bytes do not have the checksum it was stored with. It is damaged.")


def _same_bytes(item: Item, there: StoredObject) -> bool:
    """By checksums; those of files are read from them, those of remote objects only taken if they are told."""
    mine, theirs = item.found, there
    for _ in range(2):
        if mine.crc32c and theirs.crc32c:
            return mine.crc32c == theirs.crc32c
        if mine.md5 and theirs.md5:
            return mine.md5 == theirs.md5
        mine, theirs = item.source.with_checksums(mine), item.target.with_checksums(theirs)
    return False


def _is_same_file(item: Item) -> bool:
    source, target = item.source.local_path(item.found.key), item.target.local_path(item.target_key)
    if source is None or target is None:
        return item.source is item.target and item.found.key == item.target_key
    try:
        return os.path.samefile(source, target)
    except OSError:
        return False
