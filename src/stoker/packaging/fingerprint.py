"""What a runtime is made of, as one short word, from a look at its folders alone."""

import hashlib
import os
from collections.abc import Iterable, Iterator

from stoker.packaging.runtimes import Runtime


def fingerprint(runtime: Runtime) -> str:
    """Changes when the runtime's Python or anything installed in it does. A millisecond; starts nothing."""
    interpreter = runtime.interpreter
    parts = [interpreter.base_python, interpreter.version, *interpreter.site_dirs]
    parts += sorted(metadata_folders(interpreter.site_dirs))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


def metadata_folders(site_dirs: Iterable[str]) -> Iterator[str]:
    """The *.dist-info and *.egg-info of every folder that Python would look in, in the order it looks."""
    for folder in search_path(site_dirs):
        for name in sorted(_names(folder)):
            if name.endswith((".dist-info", ".egg-info")):
                yield f"{folder}/{name}"


def search_path(site_dirs: Iterable[str]) -> list[str]:
    """Site folders, each followed by the folders that its .pth files add."""
    folders: list[str] = []
    for site_dir in site_dirs:
        folders.append(site_dir)
        for name in sorted(_names(site_dir)):
            if name.endswith(".pth"):
                folders += _added_by(os.path.join(site_dir, name))
    return list(dict.fromkeys(folders))


def _added_by(pth: str) -> list[str]:
    try:
        with open(pth, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file]
    except OSError:
        return []
    folders = [os.path.join(os.path.dirname(pth), line) for line in lines if _is_path(line)]
    return [folder for folder in folders if os.path.isdir(folder)]


def _is_path(line: str) -> bool:
    return bool(line) and not line.startswith(("#", "import ", "import\t"))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
