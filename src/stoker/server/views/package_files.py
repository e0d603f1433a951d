"""The files of a package, to look at and to compare. Nothing is unpacked: a path is the name of a member."""

import difflib
import hashlib
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from stoker.errors import NotFoundError, StokerError, UsageError
from stoker.formats.archive import open_files
from stoker.schema.views import FileChange, PackageFile, PackageText

MOST_TEXT = 1 << 20
_MOST_DIFF = 200_000  # characters of a file that is compared line by line
_MOST_DIFFS = 200
_MOST_KEPT = 50_000_000  # bytes of all files together that are kept to compare
_PROBE = 4096


def list_files(package: Path) -> tuple[PackageFile, ...]:
    """By name; NotFoundError. A package is named by its contents, so what was read once holds."""
    if not package.is_file():
        raise NotFoundError(f"The package {package.name} is not on this server any more.")
    return _listed(str(package))


def read_file(package: Path, path: str) -> PackageText:
    found = next((file for file in list_files(package) if file.path == path), None)
    if found is None:
        raise NotFoundError(f"The package has no file {path[:200]!r}.")
    if not found.is_text:
        return PackageText(**dict(found), text=None, reason="it is not text")
    if found.size_bytes > MOST_TEXT:
        return PackageText(**dict(found), text=None, reason=f"it is longer than {MOST_TEXT:,} bytes")
    return PackageText(**dict(found), text=_contents(package, path).decode(errors="replace"))


def compare(old: Path | None, new: Path | None) -> tuple[FileChange, ...]:
    """From one package to another; None is a package without files."""
    before, after = _everything(old), _everything(new)
    changes = []
    for path in sorted({*before, *after}):
        a, b = before.get(path), after.get(path)
        if a == b:
            changes.append(FileChange(path=path, change="same"))
            continue
        change = "added" if a is None else "removed" if b is None else "changed"
        diff, reason = _diff(path, a, b) if len(changes) < _MOST_DIFFS else ("", "too many files differ")
        changes.append(FileChange(path=path, change=change, diff=diff, reason=reason))
    return tuple(changes)


@lru_cache(maxsize=64)
def _listed(package: str) -> tuple[PackageFile, ...]:
    found = []
    with _files(Path(package)) as files:
        for member, stream in files:
            is_text = _is_text(stream.read(_PROBE), is_whole=member.size <= _PROBE)
            found.append(PackageFile(path=_name(member), size_bytes=member.size, is_text=is_text))
    return tuple(sorted(found, key=lambda file: file.path))


def _contents(package: Path, path: str) -> bytes:
    with _files(package) as files:
        for member, stream in files:
            if _name(member) == path:
                return stream.read(MOST_TEXT)
    raise NotFoundError(f"The package has no file {path[:200]!r}.")


@contextmanager
def _files(package: Path) -> Iterator[Iterator[tuple[tarfile.TarInfo, BinaryIO]]]:
    try:
        with open_files(package) as files:
            yield files
    except (NotFoundError, UsageError):
        raise
    except StokerError as error:  # whoever uploaded it made a mistake; the server did not
        raise UsageError(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Content:
    """What a file holds: a digest to compare, and the bytes where they are few enough to show."""

    digest: bytes
    data: bytes | None


def _everything(package: Path | None) -> Mapping[str, _Content]:
    found: dict[str, _Content] = {}
    if package is None:
        return found
    list_files(package)
    kept = 0
    with _files(package) as files:
        for member, stream in files:
            data = None
            digest = hashlib.sha256()
            if member.size <= _MOST_DIFF and kept + member.size <= _MOST_KEPT:
                data = stream.read()
                kept += len(data)
                digest.update(data)
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
            found[_name(member)] = _Content(digest.digest(), data)
    return found


def _diff(path: str, a: _Content | None, b: _Content | None) -> tuple[str, str]:
    sides = [b"" if side is None else side.data for side in (a, b)]
    texts = [side for side in sides if side is not None]
    if len(texts) < len(sides):
        return "", "too long to compare line by line"
    if not all(_is_text(text[:_PROBE], is_whole=len(text) <= _PROBE) for text in texts):
        return "", "not text"
    old, new = (text.decode(errors="replace").splitlines() for text in texts)
    names = ("/dev/null" if a is None else f"a/{path}", "/dev/null" if b is None else f"b/{path}")
    return "\n".join(difflib.unified_diff(old, new, *names, lineterm="")), ""


def _is_text(start: bytes, *, is_whole: bool) -> bool:
    if b"\0" in start:
        return False
    try:
        start.decode()
    except UnicodeDecodeError as error:
        return not is_whole and error.start > len(start) - 4  # cut in the midst of a character
    return True


def _name(member: tarfile.TarInfo) -> str:
    return member.name.removeprefix("./")
