"""What a program imports before it does anything else, read from its source: what a zygote may import for it.

Only installed modules, never the program's own; and only up to the first statement that could change what an import
does, such as `os.environ["KERAS_BACKEND"] = "torch"`. What comes after that each trial imports for itself.
"""

import ast
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Calls at the top of a module that change nothing for an import that comes later.
_HARMLESS = frozenset(
    "ArgumentParser NewType Path TypeVar abspath add_argument bool compile dataclass dict dirname field float frozenset"
    " getLogger int join len list max min namedtuple partial range resolve round set sorted str sum tuple zip".split()
)


@dataclass(slots=True)
class Import:
    """`import name`, or `from name import parts`."""

    name: str
    parts: tuple[str, ...] = ()


class _Loud(Exception):
    """The program begins to act: what it imports from here on may depend on it."""


@dataclass(slots=True)
class _Walk:
    roots: Sequence[Path]
    found: list[Import] = field(default_factory=list)
    seen: set[Path] = field(default_factory=set)


def imports_of(entries: Sequence[Path], roots: Sequence[Path]) -> list[Import]:
    """Of these files, in the order in which they happen. SyntaxError or OSError where the program cannot be read."""
    walk = _Walk(roots)
    try:
        for entry in entries:
            _walk_file(entry, walk)
    except _Loud:
        pass
    return walk.found


def module_files(name: str, roots: Sequence[Path]) -> list[Path]:
    """What `python -m name` runs, among these folders: the packages it is in, and itself. Empty if it is not there."""
    *packages, last = _names(Import(name))
    around = [file for package in packages for file in _files(package, roots)]
    found = _files(last, roots)
    if found and found[0].name == "__init__.py":
        found += _files(f"{last}.__main__", roots)
    return [*around, *found] if found else []


def own_modules(folders: Sequence[Path]) -> list[str]:
    """The names that these folders would give to an import, before any installed module."""
    found = set()
    for folder in dict.fromkeys(folders):
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            stem, dot, suffix = entry.name.partition(".")
            if dot and (suffix in ("py", "pyc") or suffix.endswith("so")):
                found.add(stem)
            elif not dot and os.path.exists(os.path.join(entry.path, "__init__.py")):
                found.add(stem)
    return sorted(found)


def _walk_file(file: Path, walk: _Walk) -> None:
    if file in walk.seen:
        return
    walk.seen.add(file)
    package = _package_of(file, walk.roots)
    for statement in ast.parse(file.read_bytes()).body:
        _walk_statement(statement, package, walk)


def _walk_statement(statement: ast.stmt, package: str, walk: _Walk) -> None:
    match statement:
        case ast.Import(names):
            for alias in names:
                _note(Import(alias.name), walk)
        case ast.ImportFrom(module="__future__"):
            pass
        case ast.ImportFrom(module, names, level):
            base = _absolute(module, level, package)
            _note(Import(base, tuple(alias.name for alias in names)), walk)
        case ast.Try(body=body, orelse=more):
            for inner in [*body, *more]:
                _walk_statement(inner, package, walk)
        case ast.If():
            _walk_if(statement, package, walk)
        case _ if _is_loud(statement):
            raise _Loud


def _walk_if(statement: ast.If, package: str, walk: _Walk) -> None:
    if _mentions(statement.test, "TYPE_CHECKING"):
        return
    if _is_loud(statement.test) or _mentions(statement.test, "__main__"):
        raise _Loud
    for inner in statement.body:
        _walk_statement(inner, package, walk)


def _note(wanted: Import, walk: _Walk) -> None:
    own = [file for name in _names(wanted) for file in _files(name, walk.roots)]
    if own:
        for file in own:
            _walk_file(file, walk)
    elif wanted.name:
        walk.found.append(wanted)


def _names(wanted: Import) -> Iterator[str]:
    """Every module that it may load: a.b.c loads a and a.b, and `from a import b` may load a.b."""
    parts = wanted.name.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])
    for part in wanted.parts:
        yield f"{wanted.name}.{part}"


def _files(name: str, roots: Sequence[Path]) -> list[Path]:
    path = Path(*name.split("."))
    for root in roots:
        for candidate in (root / path / "__init__.py", root / path.with_suffix(".py")):
            if candidate.is_file():
                return [candidate]
    return []


def _absolute(module: str | None, level: int, package: str) -> str:
    if level == 0:
        return module or ""
    base = package.split(".")[: len(package.split(".")) - (level - 1)]
    return ".".join([*base, *filter(None, [module])])


def _package_of(file: Path, roots: Sequence[Path]) -> str:
    for root in roots:
        if file.is_relative_to(root):
            return ".".join(file.relative_to(root).parent.parts)
    return ""


def _is_loud(statement: ast.AST) -> bool:
    """Whether to run it could change what an import does. What functions do when they are called is not looked at."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return bool(statement.decorator_list)
    if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if not all(isinstance(target, ast.Name | ast.Tuple) for target in targets):
            return True
    elif not isinstance(statement, ast.Expr | ast.ClassDef | ast.Pass | ast.expr):
        return True
    nodes = [node for node in ast.iter_child_nodes(statement)] if isinstance(statement, ast.ClassDef) else [statement]
    return any(_calls(node) for node in nodes if not isinstance(node, ast.FunctionDef))


def _calls(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Call) and _callee(part) not in _HARMLESS for part in ast.walk(node))


def _callee(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _mentions(node: ast.AST, word: str) -> bool:
    names = ("id", "attr", "value")
    return any(getattr(part, name, None) == word for part in ast.walk(node) for name in names)
