"""A folder of files read as keys in order, the way an object store lists them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

PARTIAL = ".stoker-partial-"  # names that begin so are files on their way

Entry = os.DirEntry[str]
Links = tuple[tuple[int, int], ...]  # the linked folders above, as device and inode


@dataclass(frozen=True, slots=True)
class Walk:
    """Which keys are wanted: those that begin with the prefix and come behind `after`.

    With `folders`, what lies below the next slash is one `key/`. `hidden` is a name in the root that is not shown.
    Folders with no file below are left out, unless kept.
    """

    prefix: str = ""
    after: str = ""
    folders: bool = False
    hidden: str = ""
    keep_empty: bool = False

    def files(self, root: str) -> Iterator[tuple[str, os.stat_result | None]]:
        """(key, what is known of the file), and (key/, None) for a folder, in the order of the keys."""
        start, slash, _ = self.prefix.rpartition("/")
        if slash and any(part in ("", ".", "..") for part in start.split("/")):
            return  # no file has such a key; and `..` must not lead out of the root
        yield from self._below(f"{root}/{start}", start + slash, ())

    def _below(self, folder: str, at: str, links: Links) -> Iterator[tuple[str, os.stat_result | None]]:
        for name, entry in _sorted_entries(folder):
            key = at + name
            if name.startswith(PARTIAL) or not key.startswith(self.prefix) or (not at and name == self.hidden + "/"):
                continue
            if not name.endswith("/"):
                if key > self.after and (found := _stat(entry)) is not None:
                    yield key, found
            elif (key > self.after or (self.after.startswith(key) and not self.folders)) and _is_new(entry, links):
                yield from self._folder(entry, key, (*links, _identity(entry)) if entry.is_symlink() else links)

    def _folder(self, entry: Entry, key: str, links: Links) -> Iterator[tuple[str, os.stat_result | None]]:
        if not self.folders:
            yield from self._below(entry.path, key, links)
        elif self.keep_empty or next(Walk(prefix=key)._below(entry.path, key, links), None):
            yield key, None


def _sorted_entries(folder: str) -> list[tuple[str, Entry]]:
    """Folders carry their slash in the sort: `a.txt` comes before `a/b`, as it does among keys."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name + "/" if entry.is_dir() else entry.name, entry) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(((name, entry) for name, entry in found if name.endswith("/") or entry.is_file()), key=_name)


def _name(item: tuple[str, Entry]) -> str:
    return item[0]


def _stat(entry: Entry) -> os.stat_result | None:
    """None when it was removed since the folder was read."""
    try:
        return entry.stat()
    except FileNotFoundError:
        return None


def _is_new(entry: Entry, links: Links) -> bool:
    """False for a link that leads back to where the walk has come from, or nowhere."""
    return not entry.is_symlink() or _identity(entry) not in (*links, (0, 0))


def _identity(entry: Entry) -> tuple[int, int]:
    found = _stat(entry)
    return (found.st_dev, found.st_ino) if found else (0, 0)
