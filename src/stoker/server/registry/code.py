"""`--package-uris`: the code of a custom prediction routine, unpacked beside its model so that it is importable there.

Only pure Python: nothing is built or installed, and what it needs must be in the runtime.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from stoker.errors import StokerError, UsageError
from stoker.formats.archive import unpack
from stoker.storage import Storage

_LIMIT_BYTES = 100_000_000  # it is Python source
# What an sdist holds beside its packages.
_NO_CODE = frozenset({"setup.py", "setup.cfg", "PKG-INFO", "MANIFEST.in", "pyproject.toml", "README.md", "README.rst"})


def unpack_code(storage: Storage, uris: Sequence[str], draft: Path, into: Path) -> None:
    """Put the top-level packages and modules of these archives into one folder. UsageError names a bad archive."""
    into.mkdir()
    for number, uri in enumerate(uris):
        folder = draft / f"archive-{number}"
        folder.mkdir()
        storage.copy(uri, f"{folder}/")
        file = next(folder.iterdir())
        unpacked = folder / "unpacked"
        _unpack(file, unpacked, uri=uri)
        found = list(_code(unpacked))
        if not found:
            raise UsageError(f"{uri} holds no Python package or module.")
        for path in found:
            if (into / path.name).exists():
                raise UsageError(f"{uri}: another archive has a {path.name} already.")
            path.rename(into / path.name)


def _unpack(file: Path, into: Path, *, uri: str) -> None:
    if not file.name.endswith((".whl", ".zip", ".tar.gz", ".tgz", ".tar")):
        raise UsageError(f"{file.name} is not an archive: expected .tar.gz, .whl or .zip.")
    try:
        unpack(file, into, limit_bytes=_LIMIT_BYTES)
    except StokerError as error:
        raise UsageError(f"{uri} cannot be unpacked: {error}") from error
    for compiled in [*into.rglob("*.so"), *into.rglob("*.pyd")]:
        raise UsageError(f"{file.name} holds compiled code ({compiled.name}): install it in the runtime instead.")
    for cache in list(into.rglob("__pycache__")):
        shutil.rmtree(cache)


def _code(folder: Path) -> Iterator[Path]:
    """Packages and modules at the top, or in the one folder of an sdist, or in its src/."""
    inside = [path for path in folder.iterdir() if not path.name.endswith((".dist-info", ".egg-info", ".data"))]
    if len(inside) == 1 and inside[0].is_dir() and not (inside[0] / "__init__.py").exists():
        yield from _code(inside[0])
        return
    if (folder / "src").is_dir():
        yield from _code(folder / "src")
        return
    for path in inside:
        if path.name in _NO_CODE or path.name.startswith((".", "test")):
            continue
        if path.suffix == ".py" or (path.is_dir() and any(path.rglob("*.py"))):
            yield path
