"""Read the files that declare a project. Nothing is written into its directory: a setup.py is run in a copy."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from stoker.errors import StokerError, UsageError
from stoker.host.home import Home
from stoker.packaging.environment.cache import prepare
from stoker.packaging.environment.runtimes import Runtime, default_runtime
from stoker.packaging.package.metadata import Declared, read_pyproject, read_setup_cfg, roots_of
from stoker.packaging.package.requirements import (
    Requirements,
    as_of_today,
    check_requirement,
    name_of,
    read_requirements,
    without_comment,
    without_hashes,
)
from stoker.packaging.package.tree import Tree

_MAX_COPIED_BYTES = 1 << 20  # a setup.py reads READMEs and versions, not weights
_SETUP_TIMEOUT_S = 60


def read_files(tree: Tree, *, home: Home, runtime: Runtime) -> Declared:
    """All that the project files that ship say, as one; `files` are those that were read, or would have been."""
    root = tree.source.root
    shipped = set(tree.paths)
    declared = _declared(tree, shipped, home=home, runtime=runtime)
    found = [read_requirements(root / name) for name in _requirement_files(tree) if name in shipped]
    together = Declared(
        name=_first(declared, "name"),
        version=_first(declared, "version"),
        requirements=list(_first(declared, "requirements") or ()),
        python_requires=_first(declared, "python_requires"),
        import_roots=_first(declared, "import_roots"),
        builds=_first(declared, "builds"),
        files=_always_watched(tree),
    )
    assert together.requirements is not None
    for file in found:
        kept, together.notes = _agreeing(file.lines, together.requirements, notes=together.notes)
        together.requirements += kept
    together.requirements += _extra_requirements(declared, found)
    read: list[Declared | Requirements] = [*declared, *found]
    for part in read:
        together.files += part.files
        together.archives += part.archives
    return together


def _agreeing(lines: list[str], own: list[str], *, notes: list[str]) -> tuple[list[str], list[str]]:
    """Lines of a requirements.txt that can be met beside what the project declares, which alone an install goes by."""
    said = {name_of(line): line for line in own if not line.startswith("-")}
    against = {line: said[name] for line in lines if (name := name_of(line)) in said and _differ(line, said[name])}
    notes = [
        *notes,
        *(f"{line} of a requirements.txt is left out: the project says {other}." for line, other in against.items()),
    ]
    return [line for line in lines if line not in against], notes


def _differ(line: str, other: str) -> bool:
    """Whether the exact release that one names is none for the other."""
    first, second = (Requirement(without_hashes(text)) for text in (line, other))
    if first.url or second.url or first.marker or second.marker:
        return False
    pairs = ((first, second), (second, first))
    return any(
        clause.operator == "==" and "*" not in clause.version and clause.version not in to.specifier
        for one, to in pairs
        for clause in one.specifier
    )


def _declared(tree: Tree, shipped: set[str], *, home: Home, runtime: Runtime) -> list[Declared]:
    """What the project files say, the one that wins first."""
    root = tree.source.root
    found: list[Declared] = []
    if "pyproject.toml" in shipped:
        found.append(_checked(read_pyproject(root / "pyproject.toml"), root / "pyproject.toml"))
    # A setup.py is run only for what is not written down elsewhere: it may be old, slow or broken.
    if "setup.py" in shipped and (not found or found[0].requirements is None):
        python = _python_with_setuptools(root / "setup.py", home=home, runtime=runtime)
        found.append(_checked(_run_setup_py(tree, python=python), root / "setup.py"))
    if "setup.cfg" in shipped:
        found.append(_checked(read_setup_cfg(root / "setup.cfg"), root / "setup.cfg"))
    return found


def _checked(declared: Declared, file: Path) -> Declared:
    for line in declared.requirements or ():
        if not line.startswith("-"):
            check_requirement(line, where=str(file))
    return declared


def _python_with_setuptools(setup: Path, *, home: Home, runtime: Runtime) -> Path:
    """A Python that can run a setup.py: the runtime's own, else stoker's, else an environment made for it."""
    is_old = b"pkg_resources" in setup.read_bytes()  # which newer setuptools have no more
    module, requirement = ("pkg_resources", "setuptools<81") if is_old else ("setuptools", "setuptools")
    for one in (runtime, default_runtime()):
        if _has_module(one, module):
            return one.python
    try:
        return prepare({"requirements": [requirement]}, home=home).python
    except StokerError as error:
        raise StokerError(
            f"Reading a setup.py takes {requirement}, which {runtime} lacks, and it could not be installed: {error}"
        ) from error


def _has_module(runtime: Runtime, module: str) -> bool:
    return any(os.path.isdir(os.path.join(folder, module)) for folder in runtime.interpreter.site_dirs)


def _run_setup_py(tree: Tree, *, python: Path) -> Declared:
    scratch = Path(tempfile.mkdtemp(prefix="stoker-setup-"))
    try:
        copy = Path(os.path.realpath(scratch)) / "package"
        _copy_small_files(tree, copy)
        values = _setup_arguments(copy, scratch / "result.json", python=python, root=tree.source.root)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    setup = values.get("setup", {})
    if not setup.get("called"):
        raise UsageError(f"{tree.source.root / 'setup.py'} never calls setup(); it should.")
    package_dir = setup.get("package_dir", {})
    return Declared(
        name=setup.get("name"),
        version=str(setup["version"]) if setup.get("version") else None,
        requirements=_listed(setup["install_requires"]) if "install_requires" in setup else None,
        python_requires=setup.get("python_requires"),
        extras={name: _listed(lines) for name, lines in setup.get("extras_require", {}).items()},
        import_roots=(roots_of(package_dir) or None) if isinstance(package_dir, dict) else None,
        builds=f"The extension {setup['ext_modules'][0]}" if setup.get("ext_modules") else None,
        files=[tree.source.root / path for path in values["read"]],
    )


def _setup_arguments(copy: Path, result: Path, *, python: Path, root: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("setup_script.py")
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(
            [str(python), "-B", "-W", "ignore", str(script), str(result)],
            cwd=copy,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SETUP_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{root / 'setup.py'} did not reach setup() in {_SETUP_TIMEOUT_S} s.") from None
    except OSError as error:
        raise StokerError(f"Cannot start {python} to run {root / 'setup.py'}: {error.strerror}.") from error
    try:
        values: dict[str, Any] = json.loads(result.read_text())
    except (OSError, ValueError) as error:
        last = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        raise UsageError(f"{root / 'setup.py'} ended before setup(): {last}.") from error
    wrong = values.get("error")
    if wrong is not None:
        place = root / wrong["file"]
        line = f", line {wrong['line']}" if wrong["line"] else ""
        message = " ".join(str(wrong["message"]).split())
        raise UsageError(f"{place}{line}: {wrong['type']}: {message} (run by {python} to read the requirements)")
    return values


def _copy_small_files(tree: Tree, to: Path) -> None:
    to.mkdir()
    for entry in tree.entries:
        target = to / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if entry.is_dir:
            target.mkdir(exist_ok=True)
        elif entry.link is not None:
            target.symlink_to(entry.link)
        elif entry.size_bytes <= _MAX_COPIED_BYTES:
            shutil.copyfile(entry.file, target)


def _requirement_files(tree: Tree) -> list[str]:
    package = tree.source.package
    return ["requirements.txt", *([f"{package}/requirements.txt"] if package else [])]


def _always_watched(tree: Tree) -> list[Path]:
    names = ["pyproject.toml", "setup.py", "setup.cfg", *_requirement_files(tree)]
    return [tree.source.root / name for name in names]


def _extra_requirements(declared: list[Declared], found: list[Requirements]) -> list[str]:
    extras = {name: lines for part in reversed(declared) for name, lines in part.extras.items()}
    return [line for part in found for extra in part.extras for line in extras.get(extra, [])]


def _first(declared: list[Declared], name: str) -> Any:
    return next((value for part in declared if (value := getattr(part, name)) is not None), None)


def _listed(value: Any) -> list[str]:
    """install_requires, which may be a list, or one text with a requirement a line."""
    given = [value] if isinstance(value, str) else value
    # setuptools takes lists in lists too, which a REQUIRED_PACKAGES in brackets comes to.
    lines = [line for one in given for line in (one.splitlines() if isinstance(one, str) else _listed(one))]
    return [as_of_today(found) for line in lines if (found := without_comment(line))]
