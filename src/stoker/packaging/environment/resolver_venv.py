"""A runtime's shadow: a virtual environment in which all that the runtime has seems installed, and nothing is.

Its site-packages holds metadata alone. uv is asked what it would install there, and so resolves against what the
runtime has: torch is found on the disk instead of being downloaded. Nothing is ever installed into a shadow.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from stoker.host.home import Home
from stoker.packaging.environment.distributions import Distribution, Installed
from stoker.packaging.environment.fingerprint import fingerprint
from stoker.packaging.environment.layer import make_venv


def shadow_of(installed: Installed, *, home: Home, name: str = "") -> Path:
    """The shadow's python; made anew when something in the runtime has changed.

    `name` tells apart the shadow of a part of the runtime from that of the whole.
    """
    folder = home.environments / "shadows" / f"{fingerprint(installed.runtime)}{name}"
    python = folder / "bin" / "python"
    if python.exists():
        return python
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".shadow-", dir=folder.parent))
    try:
        packages = make_venv(partial, installed.runtime)
        for distribution in installed:
            version = installed.version(distribution.name)
            if version is not None:
                _write_metadata(packages, distribution, version, installed)
        os.rename(partial, folder)
    except OSError:
        if not python.exists():  # else another was faster, and made the same
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return python


def _write_metadata(packages: Path, distribution: Distribution, version: str, installed: Installed) -> None:
    folder = packages / f"{distribution.name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {distribution.name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {needed}" for needed in _needs(distribution, installed)]
    (folder / "METADATA").write_text("\n".join([*lines, "", ""]), encoding="utf-8")
    (folder / "INSTALLER").write_text("stoker\n")
    (folder / "RECORD").write_text("")


def _needs(distribution: Distribution, installed: Installed) -> Iterator[Requirement]:
    """What it needs, without what the runtime does not meet: a runtime that works is not mended by a job."""
    for needed in distribution.requires:
        for_an_extra = needed.marker is not None and "extra" in str(needed.marker)
        if for_an_extra or (installed.applies(needed) and installed.satisfies(needed)):
            yield needed
