"""Import modules of a folder without leaving them behind: how code takes a model out of a checkpoint's `code/`."""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def import_from_path(path: "str | os.PathLike[str]") -> Iterator[None]:
    """Inside, modules of `path` come first and hide others of their names; after it, all is as it was."""
    folder = os.path.abspath(os.fspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"import_from_path: no folder at {folder}.")
    tops = {entry.split(".")[0] for entry in os.listdir(folder)}
    hidden = {name: module for name, module in sys.modules.items() if name.split(".")[0] in tops}
    before, writes = list(sys.path), sys.dont_write_bytecode
    for name in hidden:
        del sys.modules[name]
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:], sys.dont_write_bytecode = before, writes
        for name in [name for name in sys.modules if name.split(".")[0] in tops]:
            del sys.modules[name]
        sys.modules.update(hidden)
