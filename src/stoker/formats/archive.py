"""Unpack archives that may be hostile: tar, tar.gz, zip and wheel; the only unpacker in stoker.

`tarfile`'s own filters are not enough: before Python 3.11.13 links can lead out of the target (CVE-2025-4517).
"""

import gzip
import hashlib
import io
import os
import shutil
import tarfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from stoker.errors import StokerError

LIMIT_BYTES = 10_000_000_000
MAX_FILES = 200_000
_MAX_DEPTH = 100
_MAX_HEADER = 1 << 20  # of one member: tarfile keeps extended headers in memory
_BLOCK = 1 << 15
_CHUNK = 1 << 20
_DAMAGED = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError, NotImplementedError)


def unpack(
    archive: Path, to: Path, *, hash: str | None = None, limit_bytes: int = LIMIT_BYTES, max_files: int = MAX_FILES
) -> None:
    """Unpack an untrusted archive into the new folder `to`, completely or not at all. StokerError if it is not clean.

    1. Only plain files, folders and symbolic links, at relative paths without "..", each once.
    2. Links are made last and must lead into `to`; nothing is ever written through one.
    3. At most `limit_bytes` of content (counted as it is unpacked) and `max_files` entries.
    4. With `hash`, the archive's bytes must have it.
    """
    if hash is not None and _sha256(archive) != hash:
        raise StokerError(f"The archive {archive} is damaged: its bytes do not have the hash {hash}.")
    to.parent.mkdir(parents=True, exist_ok=True)
    partial = to.parent / f".{to.name}-{os.getpid()}-{time.monotonic_ns()}"
    try:
        partial.mkdir()
        _unpack_into(archive, _Target(partial, limit_bytes=limit_bytes, max_files=max_files))
        os.rename(partial, to)
    except _DAMAGED as error:
        raise StokerError(f"The archive {archive} is damaged: {error}.") from error
    except OSError as error:
        raise StokerError(f"Cannot unpack {archive} into {to}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def open_files(archive: Path, *, max_files: int = MAX_FILES) -> Iterator[Iterator[tuple[tarfile.TarInfo, BinaryIO]]]:
    """The plain files of an untrusted tar.gz in its order, each with a stream to read before the next. StokerError."""
    try:
        with gzip.open(archive, "rb") as unzipped:
            yield _files(unzipped, max_files=max_files)
    except (*_DAMAGED, OSError) as error:
        raise StokerError(f"The archive {archive.name} is damaged: {error}.") from error


def _files(unzipped: gzip.GzipFile, *, max_files: int) -> Iterator[tuple[tarfile.TarInfo, BinaryIO]]:
    reader = _BoundedReader(unzipped)
    with tarfile.open(fileobj=reader, mode="r|", bufsize=_BLOCK) as members:
        for number, member in enumerate(members):
            reader.limit = member.offset_data + member.size + _MAX_HEADER
            if number >= max_files:
                raise StokerError(f"The archive holds more than {max_files} files.")
            if member.isreg() and not member.issparse():
                stream = members.extractfile(member)
                assert stream is not None  # it is a regular file
                yield member, cast(BinaryIO, stream)


def _sha256(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(slots=True)
class _Target:
    """The folder being filled, and what is in it so far."""

    root: Path
    limit_bytes: int
    max_files: int
    seen: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)
    content_bytes: int = 0

    def claim(self, name: str) -> str | None:
        """The member's clean path; None for the root itself."""
        name = name.removeprefix("./").rstrip("/")
        if name in ("", "."):
            return None
        parts = name.split("/")
        if name.startswith("/") or ".." in parts or "" in parts or "\0" in name:
            raise StokerError(f"The archive holds the path {name!r}, which leads out of it.")
        if len(parts) > _MAX_DEPTH:
            raise StokerError(f"The archive holds a path more than {_MAX_DEPTH} folders deep; it was not unpacked.")
        if name in self.seen or len(self.seen) >= self.max_files:
            what = "holds a path twice" if name in self.seen else f"holds more than {self.max_files} files"
            raise StokerError(f"The archive {what} ({name}); it was not unpacked.")
        self.seen.add(name)
        return name

    def write(self, name: str, content: BinaryIO, *, executable: bool) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = 0o755 if executable else 0o644
        with open(path, "xb", opener=lambda file, flags: os.open(file, flags, mode)) as stream:
            while chunk := content.read(_CHUNK):
                self.content_bytes += len(chunk)
                if self.content_bytes > self.limit_bytes:
                    raise _too_large(self.limit_bytes)
                stream.write(chunk)

    def make_links(self) -> None:
        """All links, then a check of where they lead: one that is harmless alone may lead out through another."""
        for name, target in self.links.items():
            if os.path.isabs(target) or any(str(parent) in self.links for parent in PurePosixPath(name).parents):
                raise StokerError(f"The archive holds a link out of it ({name} -> {target}).")
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)
        top = os.path.realpath(self.root)
        for name, target in self.links.items():
            end = os.path.realpath(self.root / name)
            if end != top and not end.startswith(top + os.sep):
                raise StokerError(f"The archive holds a link out of it ({name} -> {target}).")


def _unpack_into(archive: Path, target: _Target) -> None:
    with open(archive, "rb") as file:
        magic = file.read(4)
        file.seek(0)
        if magic.startswith(b"PK"):
            _unpack_zip(file, target)
        elif magic.startswith(b"\x1f\x8b"):
            with gzip.open(file, "rb") as unzipped:
                _unpack_tar(unzipped, target)
        else:
            _unpack_tar(file, target)
    target.make_links()


def _unpack_tar(content: "gzip.GzipFile | BinaryIO", target: _Target) -> None:
    # A stream ("r|"): every byte is read once and in order, so the reader's limit cannot be evaded by seeking.
    reader = _BoundedReader(content)
    with tarfile.open(fileobj=reader, mode="r|", bufsize=_BLOCK) as members:
        for member in _clean_members(members):
            reader.limit = member.offset_data + member.size + _MAX_HEADER
            name = target.claim(member.name)
            if name is None:
                continue
            if target.content_bytes + member.size > target.limit_bytes:
                raise _too_large(target.limit_bytes)
            if member.issym():
                target.links[name] = member.linkname
            elif member.isdir():
                (target.root / name).mkdir(parents=True, exist_ok=True)
            else:
                stream = members.extractfile(member)
                assert stream is not None  # it is a regular file
                target.write(name, cast(BinaryIO, stream), executable=bool(member.mode & 0o100))


class _BoundedReader(io.RawIOBase):
    """The unzipped tar, readable up to `limit`: a header larger than that is an error, not a full memory."""

    def __init__(self, content: "gzip.GzipFile | BinaryIO") -> None:
        self._content = content
        self._at = 0
        self.limit = _MAX_HEADER

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._content.read(_BLOCK if size < 0 else size)
        self._at += len(data)
        if self._at > self.limit + 2 * _BLOCK:
            raise StokerError("The archive holds a header of more than a megabyte; it was not unpacked.")
        return data


def _clean_members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for member in archive:
        if member.issparse() or not (member.isreg() or member.isdir() or member.issym()):
            raise StokerError(f"The archive holds {member.name!r}, which is not a file, folder or symbolic link.")
        yield member


def _unpack_zip(file: BinaryIO, target: _Target) -> None:
    import zipfile  # noqa: PLC0415 -- packages are tar.gz, and user code waits for every import

    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from error
    with archive:
        for member in archive.infolist():
            name = target.claim(member.filename)
            if name is None:
                continue
            if target.content_bytes + member.file_size > target.limit_bytes:
                raise _too_large(target.limit_bytes)
            if member.is_dir():
                (target.root / name).mkdir(parents=True, exist_ok=True)
                continue
            if (member.external_attr >> 16) & 0o170000 == 0o120000:
                raise StokerError(f"The archive holds {name!r}, a symbolic link in a zip, which is not supported.")
            executable = bool((member.external_attr >> 16) & 0o100)
            try:
                with archive.open(member) as stream:
                    target.write(name, cast(BinaryIO, stream), executable=executable)
            except zipfile.BadZipFile as error:
                raise ValueError(str(error)) from error


def _too_large(limit_bytes: int) -> StokerError:
    return StokerError(f"The archive holds more than {limit_bytes:,} bytes; it was not unpacked.")
