"""What of a directory becomes a package: where its top is, and the files below it that ship."""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from stoker.errors import UsageError
from stoker.packaging.package.ignore import Ignore

_DECLARES_A_PROJECT = {
    "setup.py": re.compile(""),
    # Tools keep their settings in these two files as well; only a project's own tables make a folder a project.
    "pyproject.toml": re.compile(r"^\s*\[\s*(project|build-system|tool\.poetry)\s*[].]", re.MULTILINE),
    "setup.cfg": re.compile(r"^\[(metadata|options)\]", re.MULTILINE),
}


@dataclass(frozen=True, slots=True)
class Source:
    """A directory on the user's disk that is a package's top, and which of its entries belong to it."""

    root: Path
    members: tuple[str, ...] | None = None  # None: all of them
    package: str | None = None  # AI Platform's meaning: the folder of the top that was named


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, link or empty folder of a package. `link` is where a link leads, relative to its own folder."""

    path: str  # from the top, with "/"
    file: Path  # whose bytes they are
    size_bytes: int = 0
    executable: bool = False
    link: str | None = None
    is_dir: bool = False


@dataclass(frozen=True, slots=True)
class Tree:
    """What ships, in order of path; `notes` say what does not and would be missed."""

    source: Source
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(entry.path for entry in self.entries)

    @property
    def content_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.entries)


def source_of_directory(path: Path) -> Source:
    """The directory itself is the top: stoker.yaml jobs and command jobs."""
    return Source(_directory(path))


def source_of_package(path: Path, *, module: str | None = None) -> Source:
    """What `--package-path PATH` means: PATH is a Python package and its parent is the top, as on AI Platform.

    The whole parent ships when it is a project (setup.py, pyproject.toml, setup.cfg), else PATH alone, under its own
    name, and the parent's requirements.txt. People also name the project itself; then PATH is the top. Where both
    readings are possible, the one in which `module` exists wins.
    """
    path = _directory(path)
    parent = _source_with_parent(path)
    itself = Source(path)
    is_project_root = is_project(path) and not (path / "__init__.py").exists()
    readings = (itself, parent) if is_project_root else (parent, itself)
    if module is not None:
        for reading in readings:
            if _may_hold(reading, module):
                return reading
    if is_project(path) and not is_project(path.parent):
        return itself
    return readings[0]


def walk(source: Source) -> Tree:
    """Every file that ships. Reads the directory and its ignore files; UsageError for what cannot be shipped."""
    found = _Walk(source)
    found.folder("", members=source.members)
    entries, dropped = _with_links(found)
    entries.sort(key=lambda entry: entry.path)
    if not any(not entry.is_dir for entry in entries):
        raise UsageError(f"{source.root} has no files to ship: it is empty, or its ignore files leave everything out.")
    return Tree(source, tuple(entries), tuple(found.notes + dropped))


def is_project(folder: Path) -> bool:
    """Whether a folder declares a Python project of its own."""
    for name, declares in _DECLARES_A_PROJECT.items():
        try:
            if declares.search((folder / name).read_text(encoding="utf-8", errors="replace")):
                return True
        except OSError:
            continue
    return False


class _Walk:
    """Collects entries; links are kept apart until it is known what they may lead to."""

    def __init__(self, source: Source) -> None:
        self.root = source.root
        self.ignore = Ignore(source.root)
        self.entries: list[Entry] = []
        self.links: list[Entry] = []
        self.notes: list[str] = []

    def folder(self, path: str, *, members: tuple[str, ...] | None = None) -> None:
        self.ignore.enter(path)
        try:
            children = sorted(os.scandir(self.root / path), key=lambda child: child.name)
        except OSError as error:
            raise UsageError(f"Cannot read the folder {self.root / path}: {error.strerror}.") from error
        for child in children:
            if members is None or child.name in members:
                self._child(child, f"{path}/{child.name}" if path else child.name)
        if path and not children:
            self.entries.append(Entry(path, self.root / path, is_dir=True))

    def _child(self, child: "os.DirEntry[str]", path: str) -> None:
        is_link = child.is_symlink()
        is_dir = os.path.isdir(child.path) if is_link else child.is_dir()  # scandir's own raises where links go round
        if self.ignore.ignores(path, is_dir=is_dir):
            return
        if is_link:
            self.links.append(Entry(path, Path(child.path), link=os.readlink(child.path)))
        elif is_dir:
            self.folder(path)
        elif child.is_file():
            self.entries.append(_file_entry(path, Path(child.path)))
        else:
            self.notes.append(f"{path} is a socket, pipe or device and was left out.")


def _with_links(found: _Walk) -> tuple[list[Entry], list[str]]:
    """All entries: a link that leads to something that ships stays a link, one to a file elsewhere becomes a copy."""
    if not found.links:
        return list(found.entries), []
    shipped = {entry.path for entry in found.entries} | {entry.path for entry in found.links}
    shipped |= {parent for path in shipped for parent in _parents_of(path)} | {"."}
    entries, notes = list(found.entries), []
    root = os.path.realpath(found.root)
    for link in found.links:
        target = os.path.realpath(link.file)
        inside = os.path.relpath(target, root)
        if not os.path.exists(target):
            notes.append(f"{link.path} is a link to nothing ({link.link}) and was left out.")
        elif inside in shipped:
            folder = os.path.dirname(link.path)
            entries.append(Entry(link.path, link.file, link=os.path.relpath(inside, folder or ".")))
        elif os.path.isfile(target):
            entries.append(_file_entry(link.path, link.file))
        elif not inside.startswith(".."):
            notes.append(f"{link.path} is a link to {inside}, which is ignored, and was left out.")
        else:
            raise UsageError(
                f"{found.root / link.path} is a link to a folder outside the package ({target}). Name {link.path} in"
                " .stokerignore and give your code the folder's own path, or copy what it needs into the package."
            )
    return entries, notes


def _file_entry(path: str, file: Path) -> Entry:
    try:
        status = os.stat(file)
    except OSError as error:
        raise UsageError(f"Cannot read {file}: {error.strerror}.") from error
    return Entry(path, file, size_bytes=status.st_size, executable=bool(status.st_mode & stat.S_IXUSR))


def _directory(path: Path) -> Path:
    if path.is_dir():
        return Path(os.path.abspath(path))
    if path.is_file():
        raise UsageError(f"{path} is a file, and a package is a directory. Give wheels, sdists and zips by --packages.")
    raise UsageError(f"No such directory: {path}. A package is a directory of Python code, like ./trainer.")


def _source_with_parent(path: Path) -> Source:
    if is_project(path.parent):
        return Source(path.parent, package=path.name)
    return Source(path.parent, members=(path.name, "requirements.txt"), package=path.name)


def _may_hold(source: Source, module: str) -> bool:
    """Whether the module's file is there, under the top or its src; `find_module` has the last word."""
    inside = module.replace(".", "/")
    if source.members is not None and inside.split("/")[0] != source.package:
        return False
    places = (source.root, source.root / "src")
    return any((place / f"{inside}.py").is_file() or (place / inside).is_dir() for place in places)


def _parents_of(path: str) -> list[str]:
    """The folders a path lies in, outermost first, without the top."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
