"""The Pythons that jobs can be layered on: stoker's own, those the user named, and those found on the machine.

HOME/runtimes.json holds the named ones, and what each Python said when it was asked, so that none is asked twice.
"""

import dataclasses
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stoker.atomic import replace_file
from stoker.errors import ConflictError, NotFoundError, StokerError, UsageError
from stoker.host.home import Home
from stoker.host.locks import locked
from stoker.packaging.environment.interpreters import OLDEST, Interpreter, find_pythons, probe, this_interpreter

DEFAULT = "default"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PYTHON_VERSION = re.compile(r"\d+(\.\d+){0,2}")
_AI_PLATFORM_VERSION = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Runtime:
    """A base interpreter, with whatever is installed in it."""

    name: str
    python: Path
    interpreter: Interpreter
    origin: Literal["default", "added", "found"]

    @property
    def version(self) -> str:
        return self.interpreter.version

    @property
    def minor(self) -> str:
        return ".".join(map(str, self.interpreter.numbers[:2]))

    def __str__(self) -> str:
        return f"{self.name} (Python {self.version})"


@dataclass(frozen=True, slots=True)
class Choice:
    """The runtime for a job; `note` is one line when it is not quite what was asked for."""

    runtime: Runtime
    note: str | None = None


def default_runtime() -> Runtime:
    """The Python stoker lives in."""
    return Runtime(DEFAULT, Path(sys.executable), this_interpreter(), "default")


def list_runtimes(home: Home) -> list[Runtime]:
    """All of them: the default, the named, then the found ones, one for each minor version, newest first."""
    known = list(_runtimes(home))
    found = [one for one in known if one.origin == "found"]
    others = [one for one in known if one.origin != "found"]
    return others + sorted(found, key=lambda runtime: runtime.interpreter.numbers, reverse=True)


def choose(home: Home, *, runtime: str | None = None, python: str | None = None) -> Choice:
    """The runtime that `--runtime-version` (or a runtime's name) and `--python-version` ask for.

    1. A runtime of that name is taken; its Python must then be the asked one.
    2. Else the asked Python decides: the default runtime if it is one, then named, then found ones. None: UsageError,
       or, for a Python 3 too old for us, and any so old with a version of AI Platform's runtimes, the oldest there is,
       with a note.
    3. Else, for a version of AI Platform's runtimes ("2.1"), the default, with a note. Other names: NotFoundError.
    """
    if python is not None and not _PYTHON_VERSION.fullmatch(python):
        raise UsageError(f"{python!r} is not a version of Python, like 3.7 or 3.11.")
    default = default_runtime()
    if runtime in (None, DEFAULT) and (python is None or _is_version(default, python)):
        return Choice(default)
    if runtime is not None:
        named = next((one for one in _runtimes(home, hint=runtime) if one.name == runtime), None)
        if named is not None:
            return _of_asked_python(named, python, home)
        if not _AI_PLATFORM_VERSION.fullmatch(runtime):
            raise NotFoundError(_no_such_runtime(runtime, home))
    note = f"There is no runtime {runtime!r} here" if runtime not in (None, DEFAULT) else None
    if python is None:
        return Choice(default, f"{note}; using {default}. `stoker runtimes add {runtime} --python PATH` makes one.")
    matching = next((one for one in _runtimes(home, hint=python) if _is_version(one, python)), None)
    if matching is None and _may_be_newer(python, is_of_runtime=note is not None):
        oldest = min(_runtimes(home), key=lambda one: one.interpreter.numbers)
        lacking = f"{note}, nor a Python {python}" if note else f"There is no Python {python} here"
        return Choice(oldest, f"{lacking}, which is too old for stoker; using {oldest}.")
    if matching is None:
        raise UsageError(_no_such_python(python, home))
    return Choice(matching, f"{note}; using {matching}." if note else None)


def add_runtime(home: Home, name: str, *, python: str) -> Runtime:
    """Name a Python: a path, a command on PATH, or the folder of a virtual environment."""
    if not _NAME.fullmatch(name) or name == DEFAULT:
        raise UsageError(f"{name!r} cannot be a runtime's name: letters, digits, '.', '_' and '-'; not {DEFAULT!r}.")
    path = _python_path(python)
    interpreter = probe(path)
    with _locked(home):
        book = _Book.read(home)
        if book.added.get(name, str(path)) != str(path):
            raise ConflictError(
                f"There is a runtime {name!r} already ({book.added[name]}). `stoker runtimes remove {name}` first."
            )
        book.added[name] = str(path)
        book.answers[str(path)] = _Answer.of(path, interpreter)
        book.write(home)
    return Runtime(name, path, interpreter, "added")


def remove_runtime(home: Home, name: str) -> None:
    """Forget a named runtime; its Python is left alone."""
    with _locked(home):
        book = _Book.read(home)
        if name not in book.added:
            added = ", ".join(sorted(book.added)) or "none"
            raise NotFoundError(f"No runtime {name!r} was added, so none was removed. Added ones: {added}.")
        del book.added[name]
        book.write(home)


def _runtimes(home: Home, *, hint: str = "") -> Iterator[Runtime]:
    """The runtimes as they are found, so that no more Pythons are asked than needed.

    Of the found ones, those with `hint` in their path come first: it mostly says which version they are.
    """
    yield default_runtime()
    book = _Book.read(home)
    for name, path in sorted(book.added.items()):
        interpreter = book.ask(Path(path), home)
        if interpreter is not None:
            yield Runtime(name, Path(path), interpreter, "added")
    seen = {DEFAULT, *book.added}
    wanted = hint.removeprefix("python")
    for python in sorted(find_pythons(), key=lambda path: wanted not in str(path)):
        interpreter = book.ask(python, home)
        if interpreter is not None:
            name = "python{}.{}".format(*interpreter.numbers)
            if name not in seen:
                seen.add(name)
                yield Runtime(name, python, interpreter, "found")


def _of_asked_python(runtime: Runtime, python: str | None, home: Home) -> Choice:
    if python is None or _is_version(runtime, python):
        return Choice(runtime)
    others = [str(one) for one in list_runtimes(home) if _is_version(one, python)]
    hint = f" {' and '.join(others)} would do." if others else f" {_no_such_python(python, home)}"
    raise UsageError(f"The runtime {runtime} is not Python {python}.{hint}")


def _is_version(runtime: Runtime, python: str) -> bool:
    asked = tuple(int(number) for number in python.split("."))
    return runtime.interpreter.numbers[: len(asked)] == asked


def _may_be_newer(python: str, *, is_of_runtime: bool) -> bool:
    """Whether code for a Python too old for us may be run by a later one: 3's may, and 2's where its platform had 3."""
    asked = tuple(map(int, python.split(".")))
    return (3, 0) <= asked < OLDEST or (is_of_runtime and asked < OLDEST)


def _no_such_python(python: str, home: Home) -> str:
    asked = [int(number) for number in python.split(".")]
    tried = asked + [0] * (2 - len(asked))

    def distance(runtime: Runtime) -> tuple[int, int]:
        major, minor = runtime.interpreter.numbers[:2]
        return abs(major - tried[0]), abs(minor - tried[1])

    nearest = min(list_runtimes(home), key=distance)
    too_old = " Stoker runs packages on Python 3.7 and later." if tuple(asked[:2]) < OLDEST else ""
    return (
        f"There is no Python {python} here.{too_old} The nearest is {nearest.version}: say `--python-version"
        f" {nearest.minor}`, or add one with `stoker runtimes add NAME --python PATH`."
    )


def _no_such_runtime(name: str, home: Home) -> str:
    import difflib  # noqa: PLC0415  only for mistakes

    added = _Book.read(home).added
    if name in added:
        return f"The runtime {name!r} cannot be used: its Python, {added[name]}, is gone or does not start."
    names = [runtime.name for runtime in list_runtimes(home)]
    nearest = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {nearest[0]}?" if nearest else f" There are {', '.join(names)}."
    return f"No runtime {name!r} here.{hint} `stoker runtimes add {name} --python PATH` makes one."


def _python_path(given: str) -> Path:
    path = Path(given).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    elif os.sep not in given:
        path = Path(shutil.which(given) or given)
    if not path.is_file():
        raise UsageError(f"There is no Python at {path}. Give the path of an interpreter or of a virtual environment.")
    # Not resolved: a virtual environment's python is a link, and what it links to is another Python.
    return Path(os.path.abspath(path))


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a Python said (None: it cannot be used), and the marks of its file at that time."""

    marks: tuple[int, int]
    interpreter: Interpreter | None

    @classmethod
    def of(cls, python: Path, interpreter: Interpreter | None) -> "_Answer":
        return cls(_marks(python), interpreter)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "_Answer":
        said = values["interpreter"]
        interpreter = None if said is None else Interpreter(**{**said, "site_dirs": tuple(said["site_dirs"])})
        return cls((values["marks"][0], values["marks"][1]), interpreter)


@dataclass(slots=True)
class _Book:
    """HOME/runtimes.json."""

    added: dict[str, str]
    answers: dict[str, _Answer]

    @classmethod
    def read(cls, home: Home) -> "_Book":
        try:
            values = json.loads(home.runtimes.read_bytes())
            answers = {path: _Answer.from_json(answer) for path, answer in values["answers"].items()}
            return cls(dict(values["added"]), answers)
        except FileNotFoundError:
            return cls({}, {})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StokerError(f"{home.runtimes} cannot be read ({error}). Mend it or remove it.") from error

    def ask(self, python: Path, home: Home) -> Interpreter | None:
        """What a Python is, from memory where its file has not changed; else it is started, and the answer kept."""
        known = self.answers.get(str(python))
        if known is not None and known.marks == _marks(python):
            return known.interpreter
        try:
            interpreter = probe(python)
        except UsageError:
            interpreter = None
        answer = self.answers[str(python)] = _Answer.of(python, interpreter)
        with _locked(home):
            # Read again under the lock: another process may have added a runtime since.
            current = _Book.read(home)
            current.answers[str(python)] = answer
            current.write(home)
        return interpreter

    def write(self, home: Home) -> None:
        replace_file(
            home.runtimes, json.dumps({"added": self.added, "answers": _plain(self.answers)}, indent=1), mode=0o600
        )


def _plain(answers: dict[str, _Answer]) -> dict[str, Any]:
    return {path: dataclasses.asdict(answer) for path, answer in answers.items() if os.path.exists(path)}


def _marks(python: Path) -> tuple[int, int]:
    try:
        status = os.stat(python)
        return status.st_mtime_ns, status.st_size
    except OSError:
        return 0, 0


@contextmanager
def _locked(home: Home) -> Iterator[None]:
    home.make()
    with locked(home.runtimes.with_suffix(".lock")):
        yield
