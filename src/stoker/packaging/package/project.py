"""What a package's directory declares of itself: its name, what it requires, where its modules are.

What was found is kept under HOME and used again while every file that was read for it is unchanged, so that a second
submit starts no Python for a setup.py.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.atomic import replace_file
from stoker.host.home import Home
from stoker.packaging.environment.runtimes import Runtime, default_runtime
from stoker.packaging.package.tree import Tree

_PROVIDED = frozenset({"determined", "determined-cli", "determined-common", "determined-deploy"})
_FORMAT = 6  # of the kept findings; raised when their meaning changes


@dataclass(frozen=True, slots=True)
class Project:
    """A package by its own words. Requirement lines are as in `requirements.py`."""

    name: str | None = None
    version: str | None = None
    requirements: tuple[str, ...] = ()
    python_requires: str | None = None
    import_roots: tuple[str, ...] = (".",)
    archives: tuple[str, ...] = ()  # wheels and sdists on this disk that a requirements.txt names
    notes: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Project":
        plain: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
        return cls(**plain)


def read_project(tree: Tree, *, home: Home, runtime: Runtime | None = None) -> Project:
    """Read setup.py, setup.cfg, pyproject.toml and requirements.txt, whichever ship.

    A setup.py is run by `runtime`'s Python, where that has setuptools, in a copy of the directory. UsageError, with
    file and line, for what is wrong in any of them.
    """
    runtime = runtime or default_runtime()
    root = tree.source.root
    memory = _memory_file(tree, home, runtime)
    known = _remembered(memory, root)
    if known is not None:
        return known
    from stoker.packaging.package.project_files import read_files  # noqa: PLC0415  with its parsers 60 ms, once per package

    found = read_files(tree, home=home, runtime=runtime)
    required, notes = _without_provided(found.requirements or ())
    notes += found.notes
    if found.builds:
        notes.append(f"{found.builds} would have to be compiled; build a wheel and give it by --packages.")
    project = Project(
        name=found.name,
        version=found.version,
        requirements=required,
        python_requires=found.python_requires,
        import_roots=_import_roots(found.import_roots, tree.paths),
        archives=tuple(dict.fromkeys(map(str, found.archives))),
        notes=tuple(notes),
    )
    _remember(memory, root, project, found.files)
    return project


def _without_provided(lines: Iterable[str]) -> tuple[tuple[str, ...], list[str]]:
    """Determined's library reports to a master that is gone; a job finds ours under its name."""
    from stoker.packaging.package.requirements import name_of, normal_name  # noqa: PLC0415  as above

    kept = {line: normal_name(name_of(line) or "") for line in lines}
    provided = [line for line, name in kept.items() if name in _PROVIDED]
    notes = [f"{line} is not installed: stoker provides `import determined` itself." for line in provided]
    return tuple(line for line in kept if line not in provided), notes


def _import_roots(declared: list[str] | None, shipped: Iterable[str]) -> tuple[str, ...]:
    """The declared folders, then the top; or the top, and an undeclared src that holds packages and is none itself."""
    if declared:
        return tuple(dict.fromkeys([*declared, "."]))
    in_src = {path for path in shipped if path.startswith("src/") and path.endswith(".py")}
    return (".", "src") if in_src and "src/__init__.py" not in in_src else (".",)


def _memory_file(tree: Tree, home: Home, runtime: Runtime) -> Path:
    source = tree.source
    python = [runtime.version, *runtime.interpreter.site_dirs]
    who = [_FORMAT, str(source.root), source.members, source.package, python]
    # What ships decides which files count, and where modules are looked for; ignore files change it.
    shipped = sorted(path for path in tree.paths if path.endswith((".toml", ".cfg", ".txt", ".py")))
    return home.projects / f"{hashlib.sha256(json.dumps([who, shipped]).encode()).hexdigest()[:20]}.json"


def _remembered(memory: Path, root: Path) -> Project | None:
    try:
        kept = json.loads(memory.read_bytes())
        files: dict[str, str | None] = kept["files"]
        if any(_digest(root / path) != digest for path, digest in files.items()):
            return None
        return Project.from_json(kept["project"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(memory: Path, root: Path, project: Project, files: Iterable[Path]) -> None:
    digests = {os.path.relpath(file, root): _digest(file) for file in sorted(set(files))}
    memory.parent.mkdir(parents=True, exist_ok=True)
    replace_file(memory, json.dumps({"files": digests, "project": dataclasses.asdict(project)}), mode=0o600)


def _digest(file: Path) -> str | None:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return None
