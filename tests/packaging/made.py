"""Small real things for packaging tests: directories, wheels, sdists, runtimes."""

import base64
import hashlib
import io
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from stoker.host.home import Home
from stoker.packaging.environment.interpreters import find_pythons, probe, this_interpreter
from stoker.packaging.environment.layer import make_venv
from stoker.packaging.environment.runtimes import Runtime, add_runtime


def write(root: Path, files: Mapping[str, str]) -> Path:
    """A directory with these files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def contents(root: Path) -> dict[str, bytes]:
    """Every file below a folder, to see whether anything was written there."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    tag: str = "py3-none-any",
    entry_points: str = "",
) -> Path:
    """A wheel that uv and pip accept."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    whole = {
        **({f"{name.replace('-', '_')}.py": f"version = {version!r}\n"} if files is None else files),
        f"{stem}.dist-info/METADATA": metadata(name, version, requires),
        f"{stem}.dist-info/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    if entry_points:
        whole[f"{stem}.dist-info/entry_points.txt"] = entry_points
    record = [f"{path},{_digest(text)},{len(text)}" for path, text in whole.items()]
    whole[f"{stem}.dist-info/RECORD"] = "\n".join([*record, f"{stem}.dist-info/RECORD,,", ""])
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inside, text in whole.items():
            wheel.writestr(inside, text)
    return path


def make_sdist(folder: Path, name: str, version: str, files: Mapping[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for inside, text in {"PKG-INFO": metadata(name, version, ()), **files}.items():
            info = tarfile.TarInfo(f"{name}-{version}/{inside}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def metadata(name: str, version: str, requires: Sequence[str]) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    return "\n".join([*lines, *(f"Requires-Dist: {line}" for line in requires), "", ""])


def make_runtime(
    home: Home,
    folder: Path,
    distributions: Mapping[str, str],
    *,
    name: str = "lab",
    requires: Mapping[str, str] | None = None,
) -> Runtime:
    """A runtime of this very Python that has these distributions and nothing else: `{"torch": "2.13.0+cpu"}`."""
    bare = Runtime("bare", Path(sys.executable), this_interpreter(), "default")
    packages = make_venv(folder, bare)
    for distribution, version in distributions.items():
        install(
            packages, distribution, version, requires=[line] if (line := (requires or {}).get(distribution)) else []
        )
    return add_runtime(home, name, python=str(folder))


def install(packages: Path, name: str, version: str, *, requires: Sequence[str] = ()) -> None:
    """Put a distribution of one module into a site-packages."""
    module = name.replace("-", "_")
    write(
        packages,
        {
            f"{module}.py": f"version = {version!r}\n",
            f"{module}-{version}.dist-info/METADATA": metadata(name, version, requires),
            f"{module}-{version}.dist-info/RECORD": "",
        },
    )


def python_of(minor: str) -> Path:
    """A Python of this version on this machine; the test is skipped where there is none."""
    for python in find_pythons():
        if f"{minor}." in f"{python}." or minor in str(python):
            try:
                if probe(python).version.startswith(f"{minor}."):
                    return python
            except Exception:  # noqa: BLE001, S112  one that does not start is not one of this version
                continue
    pytest.skip(f"there is no Python {minor} here")


def _digest(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
