"""Run a setup.py with setup() replaced by a recorder, and write down what it was called with.

Run as a program, `python setup_script.py RESULT`, in the folder of a setup.py, by any Python from 3.7 on; nothing is
built, installed or downloaded. RESULT gets {"setup": …, "read": […]} or {"error": {…}}.
"""
# ruff: noqa: UP006, UP020, UP035, UP045

import builtins
import importlib
import io
import json
import os
import sys
import traceback
from typing import Any, Dict, List, NoReturn, Optional

WANTED = ("name", "version", "install_requires", "python_requires", "package_dir", "extras_require", "ext_modules")


class Recorded(BaseException):
    """Ends the script at setup(): what comes after it would build or install."""


def main(result: str) -> None:
    top = os.getcwd()
    # Instead of this file's own folder: many a setup.py imports its package to read the version.
    sys.path[0] = top
    sys.argv = ["setup.py", "egg_info"]
    setup = {}  # type: Dict[str, Any]
    read = []  # type: List[str]
    found = {"setup": setup, "read": read}  # type: Dict[str, Any]
    try:
        _record_setup(setup)
        _record_reads(top, read)
        _execute(os.path.join(top, "setup.py"))
    except Recorded:
        pass
    except BaseException as error:  # noqa: BLE001  whatever a setup.py raises is the user's to see, in one line
        found = {"error": _described(error, top)}
    found["read"] = sorted(set(read) | set(_imported_from(top)))
    with io.open(result, "w") as file:
        json.dump(found, file)


def _execute(script: str) -> None:
    with io.open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    exec(code, {"__name__": "__main__", "__file__": script, "__builtins__": builtins})


def _record_setup(found: Dict[str, Any]) -> None:
    setuptools = importlib.import_module("setuptools")  # first: it provides distutils where Python has none
    distutils_core = importlib.import_module("distutils.core")

    def setup(**arguments: Any) -> NoReturn:
        for key in WANTED:
            if arguments.get(key):
                found[key] = _plain(arguments[key])
        found["called"] = True
        raise Recorded

    setuptools.setup = distutils_core.setup = setup  # type: ignore[attr-defined]


def _record_reads(top: str, read: List[str]) -> None:
    really_open = io.open

    def open_and_record(file: Any, *rest: Any, **options: Any) -> Any:
        inside = _inside(file, top) if isinstance(file, (str, os.PathLike)) else None
        if inside is not None:
            read.append(inside)
        return really_open(file, *rest, **options)

    builtins.open = io.open = open_and_record


def _imported_from(top: str) -> List[str]:
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return [inside for inside in (_inside(file, top) for file in files if file) if inside is not None]


def _inside(path: Any, top: str) -> Optional[str]:
    whole = os.path.abspath(os.fspath(path))
    return os.path.relpath(whole, top) if isinstance(whole, str) and whole.startswith(top + os.sep) else None


def _plain(value: Any) -> Any:
    """JSON of what people pass: lists, tuples, generators, mappings, and objects that are known by their text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if hasattr(value, "__iter__"):
        return [_plain(item) for item in value]
    return str(getattr(value, "name", value))


def _described(error: BaseException, top: str) -> Dict[str, Any]:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(top)]
    place, line = (frames[-1].filename, frames[-1].lineno) if frames else (os.path.join(top, "setup.py"), 0)
    if isinstance(error, SyntaxError) and error.filename:
        place, line = error.filename, error.lineno or 0
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    if message.startswith("Missing parentheses in call to"):
        message += " This is Python 2: convert it, for example by `2to3 -w setup.py`"
    file = os.path.relpath(place, top) if place.startswith(top) else place
    return {"type": type(error).__name__, "message": message, "file": file, "line": line}


if __name__ == "__main__":
    main(sys.argv[1])
