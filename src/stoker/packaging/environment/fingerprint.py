"""What a runtime is made of, as one short word, from a look at its folders alone."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator

from stoker.packaging.environment.runtimes import Runtime

_ADD_SITE_DIR = re.compile(r"import site; site\.addsitedir\('([^']*)'\)")


def fingerprint(runtime: Runtime) -> str:
    """Changes when the runtime's Python or anything installed in it does. A millisecond; starts nothing."""
    interpreter = runtime.interpreter
    # Its real path: one Python is started as python, python3 and python3.11.
    parts = [os.path.realpath(interpreter.base_python), interpreter.version, *interpreter.site_dirs]
    # Not stoker's own version: environments outlive an upgrade of stoker.
    parts += sorted(path for path in metadata_folders(interpreter.site_dirs) if "/stoker-" not in path)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


def metadata_folders(site_dirs: Iterable[str]) -> Iterator[str]:
    """The *.dist-info and *.egg-info of every folder that Python would look in, in the order it looks."""
    for folder in search_path(site_dirs):
        for name in sorted(_names(folder)):
            if name.endswith((".dist-info", ".egg-info")):
                yield f"{folder}/{name}"


def search_path(site_dirs: Iterable[str]) -> list[str]:
    """Site folders, each followed by the folders that its .pth files add."""
    folders: dict[str, None] = {}
    for site_dir in site_dirs:
        _add_site_dir(site_dir, folders)
    return list(folders)


def _add_site_dir(site_dir: str, folders: dict[str, None]) -> None:
    if site_dir in folders:
        return
    folders[site_dir] = None
    for name in sorted(_names(site_dir)):
        if name.endswith(".pth"):
            _add_by_pth(os.path.join(site_dir, name), folders)


def _add_by_pth(pth: str, folders: dict[str, None]) -> None:
    try:
        with open(pth, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file]
    except OSError:
        return
    for line in lines:
        layered = _ADD_SITE_DIR.fullmatch(line)  # the runtime is itself a layer: stoker was started from a job
        if layered:
            _add_site_dir(layered[1], folders)
        elif line and not line.startswith(("#", "import ", "import\t")):
            folder = os.path.join(os.path.dirname(pth), line)
            if os.path.isdir(folder):
                folders[folder] = None


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
