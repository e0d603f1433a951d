"""Join a name that comes from outside to a folder: the only way such a name becomes a path."""

from pathlib import Path

from stoker.errors import UsageError


def check_relative(name: str, *, where: str) -> str:
    """The name itself if it stays below any folder it is joined to; UsageError otherwise."""
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise UsageError(f"{where}: {name!r} is not a relative path below it, so nothing was written.")
    return name


def join_below(folder: Path, name: str) -> Path:
    """FOLDER/NAME; UsageError if that would lead out of the folder."""
    return folder / check_relative(name, where=str(folder))
