"""Every place by its URL: open, list, copy, remove, measure."""

import contextlib
import io
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from stoker.errors import NotFoundError, UsageError
from stoker.host.paths import check_relative
from stoker.storage.buckets import Buckets
from stoker.storage.copying import Copied, Item, copy_all
from stoker.storage.draft import Draft
from stoker.storage.glob import compiled, has_magic, plain_part
from stoker.storage.object_store import Folder, ObjectStore, StoredObject
from stoker.storage.url import StorageUrl, as_folder

Url = str | os.PathLike[str]
Progress = Callable[[int, int], None]  # bytes done, bytes in all


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of a listing. A folder's URL ends with a slash, and it has no size."""

    url: str
    size_bytes: int | None
    updated: float | None

    @property
    def is_folder(self) -> bool:
        return self.size_bytes is None


class Storage:
    """All storage as one home's settings map it. Safe to use from several threads."""

    def __init__(self, home: Path, *, environment: Mapping[str, str] | None = None) -> None:
        """ConfigError names every bad field of the home's settings."""
        self.buckets = Buckets.of_home(home, environment)

    def open_url(self, url: Url, mode: str = "rb") -> BinaryIO:
        """Read (`rb`) or replace (`wb`) an object. What is written appears when the file is closed, whole; a `with`
        block left by an exception writes nothing."""
        place = StorageUrl.parse(url)
        store = self.buckets.store(place)
        if mode == "rb":
            return store.open(place.key)
        if mode != "wb":
            raise UsageError(f"{place}: opened with mode {mode!r}; there are 'rb' and 'wb'.")
        return cast(BinaryIO, _Writer(store, place.key))

    def exists(self, url: Url) -> bool:
        """Whether there is an object, or a folder with something in it."""
        place = StorageUrl.parse(url)
        store = self.buckets.store(place)
        if not place.key:
            return store.exists()
        return store.stat(place.key) is not None or next(store.list(as_folder(place.key)), None) is not None

    def list(self, url: Url, *, recursive: bool = False) -> Iterator[Listed]:
        """The object itself, or what is in the folder, or what matches the pattern. NotFoundError if nothing is."""
        place = StorageUrl.parse(url)
        store = self.buckets.store(place)
        if (found := store.stat(place.key)) is not None:
            yield _listed(place, found)
            return
        if has_magic(place.key):
            yield from (_listed(place, each) for each in self._below(place, store))
            return
        is_empty = True
        for item in store.list(as_folder(place.key), folders=not recursive):
            is_empty = False
            yield _listed(place, item)
        if is_empty and not self._is_empty_folder(place, store):
            raise NotFoundError(f"{place}: nothing there ({store.where()}).")

    def copy(self, source: Url, target: Url, *, recursive: bool = False, progress: Progress | None = None) -> Copied:
        """Copy an object, or all objects of a folder or pattern under the target folder.

        An object goes *into* a target that is a bucket, ends with a slash, or is a folder of this machine. Repeated,
        it copies only what is not there yet. NotFoundError, ConflictError (it changed meanwhile), StokerError.
        """
        items = self._items(StorageUrl.parse(source), StorageUrl.parse(target), recursive=recursive)
        total = sum(item.found.size for item in items)
        done = 0
        lock = threading.Lock()

        def advance(more: int) -> None:
            nonlocal done
            with lock:
                done += more
                if progress is not None:
                    progress(done, total)

        return copy_all(items, advance)

    def remove(self, url: Url, *, recursive: bool = False) -> int:
        """How many objects were removed. A folder or pattern needs `recursive`. NotFoundError if there are none."""
        place = StorageUrl.parse(url)
        store = self.buckets.store(place)
        if store.stat(place.key) is not None:
            store.remove(place.key)
            return 1
        found = self._below(place, store)
        if not recursive:
            raise UsageError(f"{place} is a folder of {len(found)} objects. Remove them all with `-r`.")
        if place.scheme == "file" and place.key.rstrip("/") in ("", str(Path.home())):
            raise UsageError(f"{place}: not removed; that would be all you have.")
        for item in found:
            with contextlib.suppress(NotFoundError):  # somebody else was faster
                store.remove(item.key)
        if place.scheme == "file":
            _remove_empty_folders(place.key)
        return len(found)

    def size(self, url: Url) -> int:
        """Bytes of an object, or of all objects of a folder or pattern."""
        place = StorageUrl.parse(url)
        store = self.buckets.store(place)
        if (found := store.stat(place.key)) is not None:
            return found.size
        return sum(item.size for item in self._below(place, store))

    def local_path(self, url: Url) -> Path | None:
        """Where this is on this machine's disks, whether there is something yet or not; None when it is elsewhere."""
        place = StorageUrl.parse(url)
        return self.buckets.store(place).local_path(place.key)

    def where(self, url: Url) -> str:
        """One line for a person: where this URL leads, and by which setting."""
        return self.buckets.where(StorageUrl.parse(url))

    def _is_empty_folder(self, place: StorageUrl, store: ObjectStore) -> bool:
        if place.scheme == "file":
            return os.path.isdir(place.key)
        return not place.key and store.exists()

    def _matching(self, place: StorageUrl, store: ObjectStore) -> Iterator[StoredObject]:
        pattern = compiled(place.key)
        prefix = plain_part(place.key)
        is_deep = "/" in place.key[len(prefix) :] or "**" in place.key
        for found in store.list(prefix, folders=not is_deep):
            if isinstance(found, StoredObject) and pattern.fullmatch(found.key):
                yield found

    def _below(self, place: StorageUrl, store: ObjectStore) -> tuple[StoredObject, ...]:
        if has_magic(place.key):
            found = tuple(self._matching(place, store))
        else:
            found = tuple(item for item in store.list(as_folder(place.key)) if isinstance(item, StoredObject))
        if not found and (has_magic(place.key) or not self._is_empty_folder(place, store)):
            raise NotFoundError(f"{place}: nothing there ({store.where()}).")
        return found

    def _items(self, source: StorageUrl, target: StorageUrl, *, recursive: bool) -> tuple[Item, ...]:
        from_store, to_store = self.buckets.store(source), self.buckets.store(target)
        if (found := from_store.stat(source.key)) is not None:
            into = target.at(_below_target(target, source.name)) if self._is_folder(target) else target
            return (Item(from_store, found, to_store, into.key, str(source), str(into)),)
        below = self._below(source, from_store)
        if not recursive and not has_magic(source.key):
            raise UsageError(f"{source} is a folder of {len(below)} objects. Copy them all with `-r`.")
        # Of a pattern, what comes behind its last plain folder is kept.
        kept_from = "".join(plain_part(source.key).rpartition("/")[:2]) if has_magic(source.key) else source.key
        cut = len(as_folder(kept_from))
        items = []
        for each in below:
            if target.scheme == "file" and each.key.endswith("/") and not each.size:
                continue  # a folder's placeholder: no file can have that name, and the folder comes with its files
            into = target.at(_below_target(target, each.key[cut:]))
            items.append(Item(from_store, each, to_store, into.key, str(source.at(each.key)), str(into)))
        return tuple(items)

    def _is_folder(self, place: StorageUrl) -> bool:
        return not place.key or place.key.endswith("/") or (place.scheme == "file" and os.path.isdir(place.key))


def _below_target(target: StorageUrl, name: str) -> str:
    """The key of a copy. Objects may have any name (`a/../../x`); a file of this machine must stay in its folder."""
    if target.scheme == "file":
        check_relative(name, where=str(target))
    return as_folder(target.key) + name


def _listed(place: StorageUrl, found: StoredObject | Folder) -> Listed:
    url = str(place.at(found.key))
    return Listed(url, None, None) if isinstance(found, Folder) else Listed(url, found.size, found.updated)


def _remove_empty_folders(path: str) -> None:
    for folder, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            continue  # something is left in it


class _Writer(io.RawIOBase):
    """A new object, written front to back; it is there once closed."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store = store
        self._key = key
        self._draft: Draft | None = store.draft(key)

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        if self._draft is None:
            raise ValueError("write to a closed file")
        given = bytes(memoryview(data).cast("B"))  # type: ignore[arg-type]  # any buffer, as for every binary file
        self._draft.write(given)
        return len(given)

    def close(self) -> None:
        if self._draft is not None:
            draft, self._draft = self._draft, None
            try:
                self._store.commit(self._key, draft)
            except BaseException:
                draft.discard()
                raise
        super().close()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None and self._draft is not None:
            self._draft.discard()
            self._draft = None
        self.close()

    def __del__(self) -> None:
        # A file nobody closed is not complete; the standard library's would be closed, and so committed, here.
        if self._draft is not None:
            self._draft.discard()
            self._draft = None
