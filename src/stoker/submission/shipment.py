"""What a job takes along from the user's disk: scan the package, check the module, pack, check the environment.

Everything is checked before anything is stored: a wrong path, module, setup.py or runtime is found here. Nothing is
printed; what the user should know goes to `notify`, a line at a time.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from stoker.errors import StokerError, UsageError
from stoker.submission.reading import EnvironmentValues, JobValues, overlay

if TYPE_CHECKING:
    from stoker.host.home import Home
    from stoker.packaging.environment.runtimes import Choice
    from stoker.packaging.package.archive import Package
    from stoker.packaging.package.project import Project
    from stoker.packaging.package.tree import Source, Tree

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A prebuilt wheel, sdist or zip on this disk."""

    hash: str
    file: Path


@dataclass(frozen=True, slots=True)
class Shipment:
    """The job's fields, with all that the code declares filled in, and the files to upload."""

    values: JobValues
    package: "Package | None" = None
    archives: tuple[ArchiveFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Code:
    """A directory of code as it was scanned, not yet packed."""

    tree: "Tree"
    project: "Project"
    choice: "Choice"  # the runtime that the job asks for

    @property
    def notes(self) -> tuple[str, ...]:
        """What is unusual about it, a line each."""
        return tuple(note for note in (self.choice.note, *self.tree.notes, *self.project.notes) if note)


def scan_package(source: "Source", values: JobValues, *, home: "Home", include: Sequence[Path] = ()) -> Code:
    """Walk the directory and read what it declares, with the runtime that the job asks for.

    Files and folders to `include` are added at the package's top, under their own names.
    """
    from stoker.packaging.environment.runtimes import choose
    from stoker.packaging.package.project import read_project
    from stoker.packaging.package.tree import walk

    tree = walk(source)
    environment = values.get("environment", {})
    choice = choose(home, runtime=environment.get("runtime"), python=environment.get("python"))
    project = read_project(tree, home=home, runtime=choice.runtime)
    return Code(_with_included(tree, include), project, choice)


def _with_included(tree: "Tree", include: Sequence[Path]) -> "Tree":
    from stoker.packaging.package.tree import Entry, Source, walk

    entries = {entry.path: entry for entry in tree.entries}
    notes = list(tree.notes)
    for path in include:
        name = path.resolve().name
        if path.is_dir():
            below = walk(Source(path))
            added = [replace(entry, path=f"{name}/{entry.path}") for entry in below.entries]
            notes += below.notes
        elif path.is_file():
            executable = os.access(path, os.X_OK)
            added = [Entry(path=name, file=path.resolve(), size_bytes=path.stat().st_size, executable=executable)]
        else:
            raise UsageError(f"No such file or directory: {path} (--include).")
        taken = sorted(entry.path for entry in added if entry.path in entries)
        if taken:
            raise UsageError(f"--include {path}: {tree.source.root} has a {taken[0]} already. Rename one of them.")
        entries.update({entry.path: entry for entry in added})
    return replace(tree, entries=tuple(sorted(entries.values(), key=lambda e: e.path)), notes=tuple(notes))


def build_shipment(
    values: JobValues, code: Code | None, packages: Sequence[str], *, folder: Path, notify: Notify
) -> Shipment:
    """Check the module, pack the directory into `folder`, and put what is declared into the job's fields."""
    archives = _archives([*packages, *(code.project.archives if code else ())], folder=folder)
    check_module(values.get("module"), code, archives)
    package = None
    if code is not None:
        from stoker.packaging.package.archive import pack

        package = pack(code.tree, out=folder)
        if package.warning:
            notify(package.warning)
    return Shipment(declared(values, code, archives, package), package, archives)


def check_module(module: str | None, code: Code | None, archives: Sequence[ArchiveFile]) -> None:
    """UsageError if neither the directory nor an archive has the module."""
    from stoker.packaging.package.modules import find_module, has_module

    if module is None or any(has_module(archive.file, module) for archive in archives):
        return
    if code is not None:
        roots, where = code.project.import_roots, str(code.tree.source.root)
        find_module(code.tree.paths, import_roots=roots, module=module, where=where)
    else:
        names = ", ".join(archive.file.name for archive in archives)
        raise UsageError(f"No module {module!r} in {names}. Give the directory that has it with --package-path.")


def check_environment(shipment: Shipment, *, home: "Home", choice: "Choice | None" = None) -> None:
    """UsageError, with the resolver's reason, if what the job requires is not available. Cached by content.

    Only for this machine's own server: a remote one knows best what it can install. `choice` is the job's runtime,
    where it is known already.
    """
    environment = shipment.values.get("environment", {})
    if os.environ.get("STOKER_SERVER") or not (environment.get("requirements") or shipment.archives):
        return
    from stoker.packaging.environment.cache import resolve

    files = [archive.file for archive in shipment.archives]
    resolve(environment, home=home, archives=files, choice=choice)


def declared(
    values: JobValues, code: Code | None, archives: Sequence[ArchiveFile], package: "Package | None"
) -> JobValues:
    """The job's fields with what the code declares."""
    environment: EnvironmentValues = {}
    own = list(values.get("environment", {}).get("requirements", ()))
    lines = [*(code.project.requirements if code else ()), *own]
    if lines:
        environment["requirements"] = list(dict.fromkeys(lines))
    if archives:
        environment["archives"] = [{"hash": each.hash, "filename": each.file.name} for each in archives]
    filled: JobValues = {"environment": environment} if environment else {}
    if code is not None:
        filled["import_roots"] = list(code.project.import_roots)
    if package is not None:
        filled["package"] = package.hash
    return overlay(values, filled)


def _archives(named: Sequence[str], *, folder: Path) -> tuple[ArchiveFile, ...]:
    from stoker.packaging.package.archive import hash_of
    from stoker.packaging.package.requirements import ARCHIVE_SUFFIXES

    archives: dict[str, ArchiveFile] = {}
    for name in dict.fromkeys(named):
        file = _download(name, folder) if "://" in name else Path(name)
        if not file.is_file():
            raise UsageError(f"No such file: {name}. --packages takes wheels, sdists and zips, as paths or URLs.")
        if not file.name.endswith(ARCHIVE_SUFFIXES):
            raise UsageError(f"{name} is not an archive: expected one of {', '.join(ARCHIVE_SUFFIXES)}.")
        if file.name in archives:
            raise UsageError(f"Cannot upload multiple packages with the same filename: {file.name}.")
        archives[file.name] = ArchiveFile(hash_of(file), file)
    return tuple(archives.values())


def _download(url: str, folder: Path) -> Path:
    """A remote archive, fetched here: what a job needs must not depend on what can be reached from where it runs."""
    to = folder / "downloads" / url.partition("?")[0].rpartition("/")[2]
    to.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _open(url) as remote, to.open("wb") as file:
            shutil.copyfileobj(remote, file)
    except (OSError, ValueError) as error:
        raise UsageError(f"Cannot fetch {url}: {str(error) or type(error).__name__}.") from error
    return to


def _open(url: str) -> "AbstractContextManager[BinaryIO]":
    if url.startswith(("http://", "https://", "file://")):
        from urllib.request import urlopen

        opened: AbstractContextManager[BinaryIO] = urlopen(url, timeout=60)
        return opened
    from stoker.host.home import Home
    from stoker.storage.storage import Storage

    return Storage(Home.find().root).open_url(url)


def is_local(path: str) -> bool:
    return "://" not in path


@contextmanager
def writable(directory: Path) -> Iterator[None]:
    """See that a directory can be written, making it if need be; what was made goes again if the body fails."""
    made: list[Path] = []
    missing = [folder for folder in [directory, *directory.parents] if not folder.exists()]
    try:
        for folder in reversed(missing):
            folder.mkdir()
            made.append(folder)
        if not directory.is_dir():
            raise UsageError(f"--job-dir {directory} is a file; it should be a directory.")
        if not os.access(directory, os.W_OK | os.X_OK):
            raise UsageError(f"--job-dir {directory} cannot be written: permission denied.")
        yield
    except OSError as error:
        _remove(made)
        raise UsageError(f"--job-dir {directory} cannot be made: {error.strerror}.") from error
    except (StokerError, KeyboardInterrupt):
        _remove(made)
        raise


def _remove(folders: list[Path]) -> None:
    for folder in reversed(folders):
        try:
            folder.rmdir()
        except OSError:
            return  # somebody has put something there meanwhile
