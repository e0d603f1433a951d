"""The files of a package, to look at and to compare. Nothing is unpacked: a path is the name of a member."""

import difflib
import tarfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from stoker.errors import NotFoundError
from stoker.schema.views import FileChange, PackageFile, PackageText

MOST_TEXT = 1 << 20
_MOST_DIFF = 200_000  # characters of a file that is compared line by line
_MOST_DIFFS = 200
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
    with tarfile.open(package, "r:gz") as archive:
        for member in archive:
            if member.isfile():
                file = archive.extractfile(member)
                start = file.read(_PROBE) if file is not None else b""
                is_text = _is_text(start, is_whole=member.size <= _PROBE)
                found.append(PackageFile(path=_name(member), size_bytes=member.size, is_text=is_text))
    return tuple(sorted(found, key=lambda file: file.path))


def _contents(package: Path, path: str) -> bytes:
    with tarfile.open(package, "r:gz") as archive:
        for member in archive:
            if member.isfile() and _name(member) == path:
                file = archive.extractfile(member)
                return file.read(MOST_TEXT) if file is not None else b""
    raise NotFoundError(f"The package has no file {path[:200]!r}.")


def _everything(package: Path | None) -> Mapping[str, bytes | None]:
    """What each file holds, as far as it can be compared by lines; of larger ones their size stands for it."""
    found: dict[str, bytes | None] = {}
    if package is None:
        return found
    list_files(package)
    with tarfile.open(package, "r:gz") as archive:
        for member in archive:
            if member.isfile():
                file = archive.extractfile(member)
                found[_name(member)] = file.read() if file is not None else b""
    return found


def _diff(path: str, a: bytes | None, b: bytes | None) -> tuple[str, str]:
    sides = (a or b"", b or b"")
    if not all(_is_text(side[:_PROBE], is_whole=len(side) <= _PROBE) for side in sides):
        return "", "not text"
    if max(map(len, sides)) > _MOST_DIFF:
        return "", "too long to compare line by line"
    old, new = (side.decode(errors="replace").splitlines() for side in sides)
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
