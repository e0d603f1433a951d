"""Directory to archive and back: the same tree gives the same bytes, so the archive's hash is the package's name.

Archives are untrusted when they are unpacked: see `unpack`.
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
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from stoker.errors import StokerError, UsageError

if TYPE_CHECKING:
    from stoker.packaging.package.tree import Entry, Tree

MEGABYTE = 1_000_000
WARN_BYTES = 50 * MEGABYTE
LIMIT_MB = 1000  # of content, to pack; STOKER_PACKAGE_LIMIT_MB changes it
UNPACK_LIMIT_MB = 10_000  # against bombs: a worker does not know what limit the user has set
MAX_FILES = 200_000
_CHUNK = 1 << 20
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


def unpack(
    archive: Path, to: Path, *, hash: str | None = None, limit_bytes: int | None = None, max_files: int = MAX_FILES
) -> None:
    """Unpack an archive that nobody has looked at into `to`, whole or not at all. StokerError when it is not clean.

    1. Only plain files, folders and symbolic links, at relative paths without "..", each once.
    2. Links are made last and must lead into `to`; nothing is ever written through one.
    3. At most `limit_bytes` of content (counted as it is unpacked) and `max_files` entries.
    4. With `hash`, the archive's bytes must have it.
    """
    if limit_bytes is None:
        limit_bytes = max(content_limit(), UNPACK_LIMIT_MB * MEGABYTE)
    if hash is not None and hash_of(archive) != hash:
        raise StokerError(f"The package archive {archive} is damaged: its bytes do not have the hash {hash}.")
    to.parent.mkdir(parents=True, exist_ok=True)
    partial = to.parent / f".{to.name}-{_unique()}"
    try:
        partial.mkdir()
        _unpack_into(archive, partial, limit_bytes=limit_bytes, max_files=max_files)
        os.rename(partial, to)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError, UnicodeError) as error:
        raise StokerError(f"The package archive {archive} is damaged: {error}.") from error
    except OSError as error:
        raise StokerError(f"Cannot unpack {archive} into {to}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


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


class _Unzipped(io.RawIOBase):
    """The archive's content as it is unzipped; more than `limit_bytes` of it is an error, not a full disk."""

    def __init__(self, zipped: gzip.GzipFile, *, limit_bytes: int) -> None:
        self._zipped = zipped
        self._limit_bytes = limit_bytes
        self._left = limit_bytes + MAX_FILES * 1024 + _CHUNK  # headers and padding are not content

    def read(self, size: int = -1) -> bytes:
        data = self._zipped.read(_CHUNK if size < 0 else size)
        self._left -= len(data)
        if self._left < 0:
            raise _too_large(self._limit_bytes)
        return data


def _unpack_into(archive: Path, root: Path, *, limit_bytes: int, max_files: int) -> None:
    links: dict[str, str] = {}
    seen: set[str] = set()
    content_bytes = 0
    with gzip.open(archive, "rb") as zipped:
        # A stream ("r|"): every byte is read once and in order, so the counter above cannot be evaded by seeking.
        stream = _Unzipped(zipped, limit_bytes=limit_bytes)
        with tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 15) as members:
            for member in _clean_members(members):
                if member.name in seen or len(seen) >= max_files:
                    what = "holds a path twice" if member.name in seen else f"holds more than {max_files} files"
                    raise StokerError(f"The package archive {what} ({member.name}); it was not unpacked.")
                seen.add(member.name)
                content_bytes += member.size if member.isreg() else 0
                if content_bytes > limit_bytes:
                    raise _too_large(limit_bytes)
                if member.issym():
                    links[member.name] = member.linkname
                else:
                    _write_member(members, member, root)
    _make_links(links, root)


def _clean_members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for member in archive:
        member.name = member.name.removeprefix("./").rstrip("/")
        if member.name in ("", "."):
            continue
        parts = member.name.split("/")
        if member.name.startswith("/") or ".." in parts or "" in parts or "\0" in member.name:
            raise StokerError(f"The package archive holds the path {member.name!r}, which leads out of it.")
        if member.issparse() or not (member.isreg() or member.isdir() or member.issym()):
            raise StokerError(f"The package archive holds {member.name!r}, which is no file, folder or symbolic link.")
        yield member


def _write_member(archive: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    path = root / member.name
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    content = archive.extractfile(member)
    assert content is not None  # it is a regular file
    mode = 0o755 if member.mode & 0o100 else 0o644
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as stream:
        shutil.copyfileobj(content, stream, _CHUNK)


def _make_links(links: dict[str, str], root: Path) -> None:
    """All links, then a look at where they lead: one that is harmless alone may lead out by way of another."""
    for name, target in links.items():
        if os.path.isabs(target) or any(str(parent) in links for parent in PurePosixPath(name).parents):
            raise StokerError(f"The package archive holds a link out of it ({name} -> {target}).")
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
    top = os.path.realpath(root)
    for name, target in links.items():
        end = os.path.realpath(root / name)
        if end != top and not end.startswith(top + os.sep):
            raise StokerError(f"The package archive holds a link out of it ({name} -> {target}).")


def _unique() -> str:
    """A word no other process or call uses. Not `tempfile`, whose import user code would wait for."""
    return f"{os.getpid()}-{time.monotonic_ns()}"


def _too_large(limit_bytes: int) -> StokerError:
    return StokerError(f"The package archive holds more than {_size(limit_bytes)}; it was not unpacked.")


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
