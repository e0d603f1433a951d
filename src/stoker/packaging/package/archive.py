"""Pack a directory: the same tree gives the same bytes, so the archive's hash is the package's name.

Unpacking, where an archive is untrusted, is in `formats/archive.py`.
"""

import gzip
import hashlib
import io
import os
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.packaging.package.tree import Entry, Tree

MEGABYTE = 1_000_000
WARN_BYTES = 50 * MEGABYTE
LIMIT_MB = 1000  # of content, to pack; STOKER_PACKAGE_LIMIT_MB changes it
_SMALL = 1 << 20


@dataclass(frozen=True, slots=True)
class FileSize:
    """A file of a package and what it weighs."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Package:
    """A packed directory: `hash` is the sha256 of the archive's bytes."""

    hash: str
    file: Path
    size_bytes: int  # of the archive
    content_bytes: int
    num_files: int
    largest: tuple[FileSize, ...]  # five, largest first
    warning: str | None = None  # one line, when it is unexpectedly large
    notes: tuple[str, ...] = ()  # what was left out and could be missed


def pack(tree: "Tree", *, out: Path, warn_bytes: int = WARN_BYTES, limit_bytes: int | None = None) -> Package:
    """Write OUT/HASH.tar.gz, whole or not at all. Writes nothing anywhere else; UsageError when it is too large."""
    limit_bytes = content_limit() if limit_bytes is None else limit_bytes
    largest = _largest(tree)
    content_bytes = tree.content_bytes
    if content_bytes > limit_bytes:
        raise UsageError(
            f"The package {tree.source.root} holds {_size(content_bytes)}, more than {_size(limit_bytes)}. Largest:"
            f" {_listed(largest)}. Leave data out with .stokerignore, or raise STOKER_PACKAGE_LIMIT_MB."
        )
    out.mkdir(parents=True, exist_ok=True)
    partial = out / f".packing-{_unique()}"
    try:
        with open(partial, "xb") as stream:
            hashed = _Hashed(stream)
            _write_archive(tree, hashed)
        file = out / f"{hashed.hexdigest()}.tar.gz"
        os.replace(partial, file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    warning = None
    if content_bytes > warn_bytes:
        warning = (
            f"The package is large ({_size(content_bytes)}). Largest: {_listed(largest)}. Leave data out with"
            " .stokerignore."
        )
    num_files = sum(not entry.is_dir for entry in tree.entries)
    return Package(
        hash=hashed.hexdigest(),
        file=file,
        size_bytes=hashed.size_bytes,
        content_bytes=content_bytes,
        num_files=num_files,
        largest=largest,
        warning=warning,
        notes=tree.notes,
    )


def hash_of(file: Path) -> str:
    """The sha256 of a file's bytes."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def content_limit() -> int:
    """How much may be packed, in bytes."""
    given = os.environ.get("STOKER_PACKAGE_LIMIT_MB", "")
    try:
        return int(float(given or LIMIT_MB) * MEGABYTE)
    except (ValueError, OverflowError):
        raise UsageError(f"STOKER_PACKAGE_LIMIT_MB is {given!r}; it should be a number of megabytes.") from None


class _Hashed(io.RawIOBase):
    """A stream that hashes and counts what goes through it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        self._stream.write(data)
        self._hash.update(data)
        self.size_bytes += len(data)
        return len(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def _write_archive(tree: "Tree", stream: _Hashed) -> None:
    # Level 1: code still shrinks to a third, and packing is bound by reading files rather than by zlib.
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=stream, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for entry in tree.entries:
            try:
                _add(archive, entry)
            except OSError as error:
                reason = error.strerror or "it changed while it was being packed; try again"
                raise UsageError(f"Cannot pack {entry.file}: {reason}.") from error


def _add(archive: tarfile.TarFile, entry: "Entry") -> None:
    """Owner, time and the finer modes are left at zero: they differ between checkouts of the same code."""
    info = tarfile.TarInfo(entry.path)
    info.mode = 0o755 if entry.executable or entry.is_dir else 0o644
    if entry.link is not None:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.link, 0o777
        archive.addfile(info)
    elif entry.is_dir:
        info.type = tarfile.DIRTYPE
        archive.addfile(info)
    elif entry.size_bytes <= _SMALL:
        content = entry.file.read_bytes()
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    else:
        info.size = entry.size_bytes
        with open(entry.file, "rb") as content_stream:
            archive.addfile(info, content_stream)


def _unique() -> str:
    """A word no other process or call uses. Not `tempfile`, whose import user code would wait for."""
    return f"{os.getpid()}-{time.monotonic_ns()}"


def _largest(tree: "Tree") -> tuple[FileSize, ...]:
    heaviest = sorted(tree.entries, key=lambda entry: (-entry.size_bytes, entry.path))[:5]
    return tuple(FileSize(entry.path, entry.size_bytes) for entry in heaviest if entry.size_bytes)


def _listed(files: tuple[FileSize, ...]) -> str:
    return ", ".join(f"{file.path} ({_size(file.size_bytes)})" for file in files)


def _size(size_bytes: int) -> str:
    for unit, name in ((1_000_000_000, "GB"), (MEGABYTE, "MB"), (1000, "kB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.3g} {name}"
    return f"{size_bytes} bytes"
