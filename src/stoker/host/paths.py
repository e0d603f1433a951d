"""Check a name that comes from outside before it is joined to a folder."""

from stoker.errors import UsageError


def check_relative(name: str, *, where: str) -> str:
    """The name itself if it stays below any folder it is joined to; UsageError otherwise."""
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise UsageError(f"{where}: {name!r} is not a relative path below it, so nothing was written.")
    return name
