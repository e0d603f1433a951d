"""A runtime as a package index: for each distribution in it a wheel of nothing but metadata.

uv then resolves against what is already there, and torch is looked up on the disk instead of being downloaded. These
wheels are never installed.
"""

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from packaging.requirements import Requirement

from stoker.home import Home
from stoker.packaging.fingerprint import fingerprint
from stoker.packaging.installed import Distribution, Installed


def offer(installed: Installed, *, home: Home) -> Path:
    """The folder of the index, made when the runtime has changed: simple/ is the index, wheels/ its files."""
    folder = home.environments / "offers" / fingerprint(installed.runtime)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".offer-", dir=folder.parent))
    try:
        _write(installed, partial)
        os.rename(partial, folder)
    except OSError:
        if not folder.is_dir():  # else another run was faster, and made the same
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def index_url(folder: Path) -> str:
    return f"file://{quote(str(folder / 'simple'))}"


def _write(installed: Installed, folder: Path) -> None:
    (folder / "wheels").mkdir()
    for distribution in installed:
        version = installed.version(distribution.name)
        if version is None:
            continue
        stem = f"{distribution.name.replace('-', '_')}-{version}"
        wheel = f"{stem}-py3-none-any.whl"
        with zipfile.ZipFile(folder / "wheels" / wheel, "w") as file:
            file.writestr(f"{stem}.dist-info/METADATA", _metadata(distribution, version, installed))
            file.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            file.writestr(f"{stem}.dist-info/RECORD", "")
        page = folder / "simple" / distribution.name / "index.html"
        page.parent.mkdir(parents=True)
        page.write_text(f'<!DOCTYPE html><a href="../../wheels/{quote(wheel)}">{wheel}</a>\n')


def _metadata(distribution: Distribution, version: str, installed: Installed) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {distribution.name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {line}" for line in _needs(distribution, installed)]
    return "\n".join(lines) + "\n\n"


def _needs(distribution: Distribution, installed: Installed) -> Iterator[Requirement]:
    """What it needs, without what the runtime does not meet: a runtime that works is not mended by a job."""
    for needed in distribution.requires:
        for_an_extra = needed.marker is not None and "extra" in str(needed.marker)
        if for_an_extra or (installed.applies(needed) and installed.satisfies(needed)):
            yield needed
