"""Lay a template down as a project: whole or not at all, and never over something."""

import keyword
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from stoker.errors import ConflictError, NotFoundError, UsageError

NAME_RULE = "letters, digits, '-' and '_', starting with a letter, at most 64; not the name of a Python module"
SUFFIX = ".tmpl"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
# A package of one of these names would hide the library from its own code.
_LIBRARIES = frozenset(
    "datasets google hypertune joblib keras numpy pandas polars pyarrow pytest setuptools sklearn stoker tensorflow"
    " tests torch transformers xgboost".split()
)


@dataclass(frozen=True, slots=True)
class Template:
    """A package to start from; `folder` holds its files."""

    name: str
    summary: str

    @property
    def folder(self) -> Path:
        return Path(__file__).parent / self.name


TEMPLATES = {
    each.name: each
    for each in (
        Template("tabular", "columns of numbers and categories: wide and deep models in PyTorch, from a metadata.py"),
        Template("text", "sentences to classes: fine-tune a Hugging Face encoder"),
        Template("sklearn", "taxi fares by the distance with scikit-learn; data and model in a bucket"),
        Template("keras", "task.py and model.py with Keras, on one machine or several workers"),
        Template("pytorch", "a PyTorchTrial: one run, a grid search and batch inference"),
    )
}


def available() -> list[Template]:
    """The templates that this installation has."""
    return [template for template in TEMPLATES.values() if template.folder.is_dir()]


def lay_down(template_name: str, *, name: str, directory: Path | None = None) -> Path:
    """The new project's directory, `directory` or NAME in the current one. Raises UsageError and its children."""
    template = _find(template_name)
    package = _package_name(name)
    target = (directory or Path(name)).absolute()
    try:
        _refuse_what_is_there(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside the target, so that moving it there is one rename.
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=target.parent) as scratch:
            staged = Path(scratch) / "project"
            for path, text in _files(template, name=name, package=package):
                _write(staged / path, text)
            _move(staged, target)
    except OSError as error:
        raise UsageError(
            f"Cannot write {target}: {error.strerror or error}. Choose another place with --dir."
        ) from error
    return target


def _find(name: str) -> Template:
    templates = {template.name: template for template in available()}
    if name not in templates:
        raise NotFoundError(f"No template {name!r}. There are: {', '.join(templates)}. See `stoker init --list`.")
    return templates[name]


def _package_name(name: str) -> str:
    package = name.replace("-", "_")
    taken = keyword.iskeyword(package) or package in sys.stdlib_module_names or package.lower() in _LIBRARIES
    if not _NAME.fullmatch(name) or taken:
        raise UsageError(f"{name!r} cannot be a project's name: {NAME_RULE}.")
    return package


def _refuse_what_is_there(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if os.path.lexists(target):
        what = "is not empty" if target.is_dir() else "is not a directory"
        raise ConflictError(f"{target} {what}, and nothing is overwritten. Choose another name, or a place with --dir.")


def _files(template: Template, *, name: str, package: str) -> Iterator[tuple[PurePosixPath, str]]:
    for source in sorted(template.folder.rglob(f"*{SUFFIX}")):
        parts = source.relative_to(template.folder).as_posix().removesuffix(SUFFIX).split("/")
        path = PurePosixPath(*(package if part == "PACKAGE" else part for part in parts))
        # Not string.Template: to it, the dollars of make and of the shell would be placeholders, too.
        yield path, source.read_text("utf-8").replace("${name}", name).replace("${package}", package)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    if text.startswith("#!"):
        mode = path.stat().st_mode
        path.chmod(mode | (mode & 0o444) >> 2)


def _move(staged: Path, target: Path) -> None:
    """One rename; into an empty directory that is there (it may be the one the user is in), a few, or none of them."""
    if not target.is_dir():
        staged.rename(target)
        return
    moved: list[Path] = []
    try:
        for entry in sorted(staged.iterdir()):
            moved.append(entry.rename(target / entry.name))
    except OSError:
        for entry in moved:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        raise
