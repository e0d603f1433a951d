"""The files of a data set, wherever they are: their names, which part each belongs to, and their bytes."""

import glob
import gzip
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stoker.errors import NotFoundError, UsageError
from stoker.host.home import Home

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".txt")
_PARTS = {"train": "train", "training": "train", "test": "eval", "eval": "eval", "validation": "eval", "valid": "eval"}
_PARTS |= {"val": "eval", "dev": "eval", "evaluation": "eval"}


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file; `name` is what messages call it, `inside` its path in the data set's folder."""

    name: str
    inside: str
    read: Callable[[], bytes]

    @property
    def suffix(self) -> str:
        """Its format's ending: `.csv` for reviews.csv.gz."""
        return os.path.splitext(self.inside.removesuffix(".gz"))[1].lower()

    @property
    def part(self) -> str | None:
        """`train` or `eval`, if its folder or the first word of its name says so."""
        folder, _, rest = self.inside.partition("/")
        words = [folder] if rest else []
        words.append(re.split(r"[-_.0-9]", os.path.basename(self.inside))[0])
        return next((_PARTS[word.lower()] for word in words if word.lower() in _PARTS), None)

    def content(self) -> bytes:
        data = self.read()
        return gzip.decompress(data) if self.inside.endswith(".gz") else data


def find_files(source: str) -> list[DataFile] | None:
    """A file's, folder's, pattern's or URL's data files; None if the word looks like none of these.

    NotFoundError if it does and there is nothing there.
    """
    if "://" in source:
        return _checked(_stored(source), source)
    path = os.path.expanduser(source)
    if os.path.isdir(path):
        root = Path(path)
        found = sorted(each for each in root.rglob("*") if each.is_file())
        return _checked([_local(each, each.relative_to(root).as_posix()) for each in found], source)
    if matching := sorted(glob.glob(path, recursive=True)):
        return _checked([_local(Path(each), os.path.basename(each)) for each in matching], source)
    looks_like_path = path.removesuffix(".gz").endswith(SUFFIXES) or path.startswith((".", "/", "~")) or "*" in path
    if looks_like_path:
        raise NotFoundError(f"No data at {source}: give a file, a folder, a pattern or a storage URL.")
    return None


def _checked(files: list[DataFile], source: str) -> list[DataFile]:
    known = [file for file in files if file.suffix in SUFFIXES and not file.inside.startswith(".")]
    if not known:
        endings = ", ".join(SUFFIXES)
        raise UsageError(f"{source} holds no data file: expected names that end with {endings} (or those with .gz).")
    return known


def _local(path: Path, inside: str) -> DataFile:
    return DataFile(name=str(path), inside=inside, read=path.read_bytes)


def _stored(url: str) -> list[DataFile]:
    from stoker.storage import Storage  # noqa: PLC0415 - paths of this machine need none of it

    storage = Storage(Home.find().root)
    folder = url.rstrip("/") + "/"

    def reader(of: str) -> Callable[[], bytes]:
        def read() -> bytes:
            with storage.open_url(of) as file:
                return file.read()

        return read

    found = [item.url for item in storage.list(url, recursive=True) if not item.is_folder]
    return [
        DataFile(each, each.removeprefix(folder) if each.startswith(folder) else os.path.basename(each), reader(each))
        for each in sorted(found)
    ]
