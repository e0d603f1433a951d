"""A bucket in a folder: every object is a file at its key, and what else is known of it lies in `.stoker/`.

    KEY                             the object's bytes; people may put and change files by hand
    .stoker/objects/AB/HASH-GEN     attributes and checksums of one generation of a key, as JSON
    .stoker/odd/=QUOTED             objects whose key cannot be a path (`a//b`, `dir/`, `a` beside `a/b`)
    .stoker/partial/                drafts
    .stoker/bucket.json             attributes of the bucket
    .stoker/lock                    held while an object is replaced, so that preconditions hold between processes

The generation is the file's modification time in microseconds, so it changes with the bytes in one rename, and a
file that was put there by hand has one too.
"""

import contextlib
import errno
import fcntl
import hashlib
import heapq
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, unquote

from stoker.errors import NotFoundError
from stoker.formats.checksum import crc32c_of, is_crc32c_fast, md5_of
from stoker.storage.draft import Draft
from stoker.storage.files import explained, from_stat, make_draft
from stoker.storage.object_store import Check, Folder, StoredObject, no_check
from stoker.storage.tree import PARTIAL, Walk

HIDDEN = ".stoker"
_STALE_S = 7 * 86400.0  # as long as Google keeps an upload session


class BucketFolder:
    """`may_make`: the folder is made at the first write. Otherwise it must be there: it may be a disk not mounted."""

    def __init__(self, path: Path, *, url: str, may_make: bool) -> None:
        self.path = path
        self.url = url
        self._root = str(path)
        self._may_make = may_make

    def stat(self, key: str) -> StoredObject | None:
        self._check_there()
        path = self._find(key)
        if path is None:
            return None
        with explained(self._name(key)):
            try:
                return self._described(from_stat(key, os.stat(path)))
            except FileNotFoundError:
                return None

    def with_checksums(self, found: StoredObject) -> StoredObject:
        if found.crc32c and (found.md5 or "componentCount" in found.attributes):
            return found
        with self.open(found.key) as file:
            crc32c = crc32c_of(file)
            file.seek(0)
            is_composed = "componentCount" in found.attributes
            summed = replace(found, md5="" if is_composed else md5_of(file), crc32c=crc32c)
        with contextlib.suppress(OSError):  # the folder may be read-only: then they are computed each time
            self._write_sidecar(summed)
        return summed

    def list(self, prefix: str = "", *, folders: bool = False, after: str = "") -> Iterator[StoredObject | Folder]:
        self._check_there()
        walk = Walk(prefix=prefix, after=after, folders=folders, hidden=HIDDEN)
        last = ""
        with explained(self._name(prefix)):
            odd = self._odd(prefix, folders=folders, after=after)
            for key, found in heapq.merge(walk.files(self._root), odd, key=_first):
                if key != last:
                    yield Folder(key) if found is None else self._described(from_stat(key, found))
                last = key

    def open(self, key: str) -> BinaryIO:
        path = self._find(key)
        if path is None:
            raise NotFoundError(f"{self._name(key)}: no such object ({self.where()}).")
        with explained(self._name(key)):
            return open(path, "rb")

    def draft(self, key: str, *, resume: str | None = None) -> Draft:
        self._check_there()
        with explained(self._name(key)):
            folder = self.path / HIDDEN / "partial"
            folder.mkdir(parents=True, exist_ok=True)
            return make_draft(folder, prefix="", key=key, resume=resume)

    def commit(
        self, key: str, draft: Draft, *, attributes: Mapping[str, Any] | None = None, check: Check = no_check
    ) -> StoredObject:
        kept = dict(attributes or {})
        md5 = "" if "componentCount" in kept else draft.md5
        crc32c = draft.crc32c if is_crc32c_fast() else ""  # then computed when somebody asks for it
        with explained(self._name(key)), self._locked():
            current = self.stat(key)
            check(current)
            now = time.time()
            generation = max(int(now * 1e6), current.generation + 1 if current else 1)
            made = StoredObject(key, draft.size, generation, 1, crc32c, md5, now, now, kept)
            os.utime(draft.path, ns=(generation * 1000, generation * 1000))
            # The sidecar goes first and under its generation's name: whatever is killed when, the bytes that are
            # there have their own attributes.
            self._write_sidecar(made)
            self._place(draft.path, key)
            draft.close()
            if current is not None:
                self._sidecar(current).unlink(missing_ok=True)
        return made

    def update(self, key: str, attributes: Mapping[str, Any], *, check: Check = no_check) -> StoredObject:
        with explained(self._name(key)), self._locked():
            current = self.stat(key)
            check(current)
            if current is None:
                raise NotFoundError(f"{self._name(key)}: no such object ({self.where()}).")
            changed = replace(
                current,
                attributes=dict(attributes),
                metageneration=current.metageneration + 1,
                updated=time.time(),
            )
            self._write_sidecar(changed)
        return changed

    def remove(self, key: str, *, check: Check = no_check) -> None:
        with explained(self._name(key)), self._locked():
            current = self.stat(key)
            check(current)
            path = self._find(key)
            if current is None or path is None:
                raise NotFoundError(f"{self._name(key)}: no such object ({self.where()}).")
            os.unlink(path)
            self._sidecar(current).unlink(missing_ok=True)
            self._drop_empty_folders(os.path.dirname(path))

    def local_path(self, key: str) -> Path | None:
        found = self._find(key)
        if found is not None:
            return Path(found)
        return self.path / key if _is_path(key.rstrip("/")) or not key else Path(self._odd_path(key))

    def exists(self) -> bool:
        return self.path.is_dir()

    def where(self) -> str:
        return f"folder {self.path}"

    def bucket_attributes(self) -> dict[str, Any]:
        """What was set on the bucket itself: labels, versioning, whatever; kept and given back."""
        try:
            found = json.loads((self.path / HIDDEN / "bucket.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def set_bucket_attributes(self, attributes: Mapping[str, Any]) -> None:
        with explained(self.url):
            (self.path / HIDDEN).mkdir(parents=True, exist_ok=True)
            self._write_whole(self.path / HIDDEN / "bucket.json", json.dumps(dict(attributes)).encode())

    def make(self) -> None:
        with explained(self.url):
            self.path.mkdir(parents=True, exist_ok=True)

    def drop(self) -> None:
        """Remove the folder of a bucket that has no objects."""
        with explained(self.url):
            shutil.rmtree(self.path)

    def sweep(self) -> None:
        """Remove drafts that nobody has come back for."""
        with contextlib.suppress(OSError), os.scandir(self.path / HIDDEN / "partial") as entries:
            for entry in entries:
                if time.time() - entry.stat().st_mtime > _STALE_S:
                    os.unlink(entry.path)

    def _name(self, key: str) -> str:
        return f"{self.url}/{key}"

    def _check_there(self) -> None:
        if self._may_make or self.path.is_dir():
            return
        raise NotFoundError(
            f"{self.url}: its folder {self.path} is not there ([storage.buckets] in config.toml)."
            " Make it, mount it, or change the setting."
        )

    def _find(self, key: str) -> str | None:
        if _is_path(key) and os.path.isfile(path := f"{self._root}/{key}"):
            return path
        path = self._odd_path(key)
        return path if os.path.isfile(path) else None

    def _place(self, draft: Path, key: str) -> None:
        if _is_path(key):
            with contextlib.suppress(NotADirectoryError, IsADirectoryError, FileExistsError):
                self._move(draft, f"{self._root}/{key}")
                with contextlib.suppress(OSError):
                    os.unlink(self._odd_path(key))
                return
        self._move(draft, self._odd_path(key))

    def _move(self, draft: Path, target: str) -> None:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        try:
            os.replace(draft, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # A folder of the bucket is on another disk (a link, a mount): the last step must be a rename there.
            beside = f"{os.path.dirname(target)}/{PARTIAL}{draft.name}"
            shutil.copy2(draft, beside)
            os.replace(beside, target)
            os.unlink(draft)

    def _drop_empty_folders(self, folder: str) -> None:
        """Folders are there because of the objects in them."""
        with contextlib.suppress(OSError):
            while folder.startswith(self._root + "/"):
                os.rmdir(folder)
                folder = os.path.dirname(folder)

    def _odd_path(self, key: str) -> str:
        """Quoted, and cut into names that any file system takes; `=` begins a name, `+` ends one that goes on."""
        quoted = quote(key, safe="", errors="surrogateescape")
        pieces = [quoted[i : i + 200] for i in range(0, len(quoted), 200)] or [""]
        return "/".join([self._root, HIDDEN, "odd", *(f"={piece}+" for piece in pieces[:-1]), f"={pieces[-1]}"])

    def _odd(self, prefix: str, *, folders: bool, after: str) -> Iterator[tuple[str, os.stat_result | None]]:
        """Of the odd keys, those that a listing shows."""
        found: dict[str, os.stat_result | None] = {}
        for name, kept in Walk().files(f"{self._root}/{HIDDEN}/odd"):
            key = unquote("".join(piece[1:].removesuffix("+") for piece in name.split("/")), errors="surrogateescape")
            if not key.startswith(prefix):
                continue
            head, slash, _ = key[len(prefix) :].partition("/")
            folder = prefix + head + slash
            if folders and slash:
                found[folder] = None
            else:
                found[key] = kept
        yield from sorted((item for item in found.items() if item[0] > after), key=_first)

    def _sidecar(self, described: StoredObject) -> Path:
        word = hashlib.sha256(described.key.encode("utf-8", "surrogateescape")).hexdigest()
        return self.path / HIDDEN / "objects" / word[:2] / f"{word[2:34]}-{described.generation}"

    def _described(self, found: StoredObject) -> StoredObject:
        try:
            with open(self._sidecar(found), "rb") as file:
                kept = json.loads(file.read())
            if kept["size"] != found.size:
                return found
            return replace(
                found,
                metageneration=kept["metageneration"],
                crc32c=kept["crc32c"],
                md5=kept["md5"],
                created=kept["created"],
                updated=kept["updated"],
                attributes=kept["attributes"],
            )
        except (OSError, ValueError, KeyError):
            return found

    def _write_sidecar(self, described: StoredObject) -> None:
        kept = {
            "key": described.key,
            "size": described.size,
            "metageneration": described.metageneration,
            "crc32c": described.crc32c,
            "md5": described.md5,
            "created": described.created,
            "updated": described.updated,
            "attributes": dict(described.attributes),
        }
        self._write_whole(self._sidecar(described), json.dumps(kept).encode())

    def _write_whole(self, path: Path, data: bytes) -> None:
        temporary = f"{path}.{os.getpid()}-{time.monotonic_ns()}"
        try:
            file = open(temporary, "wb")
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open(temporary, "wb")
        with file:
            file.write(data)
        os.replace(temporary, path)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._check_there()
        path = f"{self._root}/{HIDDEN}/lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _is_path(key: str) -> bool:
    """Whether the key can be a path below the folder, and no other key is the same path."""
    if not key or "\0" in key or key == HIDDEN or key.startswith(HIDDEN + "/") or len(key) > 3000:
        return False
    return all(
        part not in ("", ".", "..") and not part.startswith(PARTIAL) and len(part.encode("utf-8", "replace")) <= 255
        for part in key.split("/")
    )


def _first(item: tuple[str, object]) -> str:
    return item[0]
