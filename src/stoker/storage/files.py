"""Plain files of this machine as a storage: the keys are absolute paths."""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from stoker.errors import NotFoundError, StokerError
from stoker.formats.checksum import crc32c_of, is_crc32c_fast, md5_of
from stoker.storage.draft import Draft
from stoker.storage.object_store import Check, DeniedError, Folder, StoredObject, no_check
from stoker.storage.tree import PARTIAL, Walk


class Files:
    """No attributes are kept: a file is its bytes. Drafts lie beside their target, under a hidden name."""

    def stat(self, key: str) -> StoredObject | None:
        if key.endswith("/"):
            return None
        with explained(key):
            try:
                found = os.stat(key)
            except (FileNotFoundError, NotADirectoryError):
                return None
            return None if not os.path.isfile(key) else from_stat(key, found)

    def with_checksums(self, found: StoredObject) -> StoredObject:
        with self.open(found.key) as file:
            md5 = md5_of(file)
            file.seek(0)
            return replace(found, md5=md5, crc32c=crc32c_of(file) if is_crc32c_fast() else "")

    def list(self, prefix: str = "", *, folders: bool = False, after: str = "") -> Iterator[StoredObject | Folder]:
        walk = Walk(prefix=prefix[1:], after=after[1:], folders=folders, keep_empty=True)
        with explained(prefix):
            for key, found in walk.files(""):
                yield from_stat("/" + key, found) if found else Folder("/" + key)

    def open(self, key: str) -> BinaryIO:
        with explained(key):
            return open(key, "rb")

    def draft(self, key: str, *, resume: str | None = None) -> Draft:
        with explained(key):
            folder = Path(key).parent
            folder.mkdir(parents=True, exist_ok=True)
            return make_draft(folder, prefix=PARTIAL, key=key, resume=resume)

    def commit(
        self, key: str, draft: Draft, *, attributes: Mapping[str, Any] | None = None, check: Check = no_check
    ) -> StoredObject:
        check(self.stat(key))
        with explained(key):
            os.replace(draft.path, key)
            draft.close()
            return replace(from_stat(key, os.stat(key)), md5=draft.md5)

    def update(self, key: str, attributes: Mapping[str, Any], *, check: Check = no_check) -> StoredObject:
        raise StokerError(f"{key}: a plain file keeps no attributes.")

    def remove(self, key: str, *, check: Check = no_check) -> None:
        check(self.stat(key))
        with explained(key):
            os.unlink(key)

    def local_path(self, key: str) -> Path | None:
        return Path(key)

    def exists(self) -> bool:
        return True

    def where(self) -> str:
        return "files of this machine"


def from_stat(key: str, found: os.stat_result) -> StoredObject:
    return StoredObject(
        key=key,
        size=found.st_size,
        generation=max(found.st_mtime_ns // 1000, 1),
        created=found.st_mtime,
        updated=found.st_mtime,
    )


def make_draft(folder: Path, *, prefix: str, key: str, resume: str | None) -> Draft:
    """A draft in the folder, which is there; another name when the one to go on with is in use."""
    if resume is not None:
        word = hashlib.sha256(f"{key}\0{resume}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
        found = Draft.resumed(folder / f"{prefix}{word}")
        if found is not None:
            return found
    return Draft.new(folder / f"{prefix}{os.urandom(16).hex()}")


@contextlib.contextmanager
def explained(place: str) -> Iterator[None]:
    """The operating system's complaints as ours, with the place they are about."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"{place}: not there.") from error
    except PermissionError as error:
        who = f"user {os.getuid()}"
        raise DeniedError(f"{place}: permission denied to {who} ({error.filename or place}).") from error
    except OSError as error:
        hint = " Make room, or choose another place." if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise StokerError(f"{place}: {error.strerror or error}.{hint}") from error
