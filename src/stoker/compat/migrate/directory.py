"""A directory's files as they matter here: modules and what they use, job files, scripts that call gcloud."""

import ast
import json
import re
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from stoker.compat.dialects.document import is_determined
from stoker.errors import StokerError
from stoker.packaging.package.tree import source_of_directory, walk
from stoker.submission.job_file import load

_SCRIPTS = (".sh", ".bash", "Makefile", "makefile", ".mk", "tox.ini")
_OF_WINDOWS = (".bat", ".cmd")
_MAX_BYTES = 1_000_000
PAGES = (".md", ".ipynb")  # which tell by which commands it is run, where no script does
_SUBMITS = re.compile(
    r"\b(?:gcloud|stoker)\s+(?:(?:alpha|beta)\s+)?(?:ai-platform\s+|ml-engine\s+|ml\s+)?"
    r"(?:jobs\s+submit\s+training|local\s+train)\b"
)
_ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)\s*[:?]?=\s*(.*?)\s*(?:#.*)?$")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|\((\w+)\)|(\w+))")
_VARIABLE_OF_WINDOWS = re.compile(r"%(\w+)%")
_SET_OF_WINDOWS = re.compile(r"^\s*set\s+(?=\w+=)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Use:
    """A name that a module imports or reaches through an import: `tensorflow.Session`."""

    name: str
    where: str  # trainer/task.py:12


@dataclass(frozen=True, slots=True)
class Call:
    """A script's `gcloud … jobs submit training`: its words, with the script's own variables filled in."""

    words: tuple[str, ...]
    where: str

    def flag(self, name: str) -> str | None:
        for place, word in enumerate(self._ours):
            if word == f"--{name}" and place + 1 < len(self._ours):
                return self._ours[place + 1]
            if word.startswith(f"--{name}="):
                return word.partition("=")[2]
        return None

    @property
    def args(self) -> tuple[str, ...]:
        """Those of the user's code: what follows `--`."""
        return self.words[self.words.index("--") + 1 :] if "--" in self.words else ()

    @property
    def _ours(self) -> tuple[str, ...]:
        return self.words[: self.words.index("--")] if "--" in self.words else self.words


@dataclass(frozen=True, slots=True)
class Directory:
    """What was found."""

    root: Path
    paths: tuple[str, ...]
    uses: tuple[Use, ...]
    old_python: tuple[str, ...]  # files that Python 3 cannot read, with line and reason
    documents: dict[str, dict[str, Any]]  # YAML and JSON files, by path
    calls: tuple[Call, ...]
    notes: tuple[str, ...] = field(default=())

    def first_use(self, *names: str) -> Use | None:
        """Where one of these modules or names is first used, if it is."""
        for use in self.uses:
            if any(use.name == name or use.name.startswith(name + ".") for name in names):
                return use
        return None


def read_directory(path: Path) -> Directory:
    """Read all that ships of it. UsageError when it is none, or empty."""
    tree = walk(source_of_directory(path))
    root = tree.source.root
    uses: list[Use] = []
    old: list[str] = []
    documents: dict[str, dict[str, Any]] = {}
    calls: list[Call] = []
    told: list[Call] = []
    for entry in tree.entries:
        if entry.is_dir or entry.size_bytes > _MAX_BYTES:
            continue
        name = entry.path.rsplit("/", 1)[-1]
        if name.endswith(".py"):
            _read_module(entry.file, entry.path, uses, old)
        elif name.endswith((".yaml", ".yml", ".json")):
            document = _document(entry.file)
            if document is not None:
                documents[entry.path] = document
            told += _calls(_text(entry.file), entry.path)  # a build's steps
        elif name.endswith(_SCRIPTS):
            calls += _calls(_text(entry.file), entry.path)
        elif name.endswith(_OF_WINDOWS):
            calls += _calls(_as_shell(_text(entry.file)), entry.path)
        elif name.endswith(PAGES):
            told += _calls(_page(entry.file), entry.path)
    documents |= _left_behind(root, tree.paths)
    return Directory(root, tree.paths, tuple(uses), tuple(old), documents, (*calls, *told), tree.notes)


def _left_behind(root: Path, shipped: Collection[str]) -> dict[str, dict[str, Any]]:
    """Experiment files that a .detignore keeps from being shipped: the code does not need them, and we do."""
    found = {}
    for file in sorted([*root.glob("*.y*ml"), *root.glob("*/*.y*ml")]):
        path = file.relative_to(root).as_posix()
        if path in shipped or path.startswith(".") or not file.is_file() or file.stat().st_size > _MAX_BYTES:
            continue
        document = _document(file)
        if document is not None and is_determined(document):
            found[path] = document
    return found


def _read_module(file: Path, path: str, uses: list[Use], old: list[str]) -> None:
    try:
        tree = ast.parse(_text(file), filename=path)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        old.append(f"{path}:{line}: {getattr(error, 'msg', error)}")
        return
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                aliases[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                uses.append(Use(alias.name, f"{path}:{node.lineno}"))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                uses.append(Use(f"{node.module}.{alias.name}", f"{path}:{node.lineno}"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            dotted = _dotted(node)
            if dotted and dotted[0] in aliases:
                uses.append(Use(".".join([aliases[dotted[0]], *dotted[1:]]), f"{path}:{node.lineno}"))


def _dotted(node: ast.Attribute) -> list[str] | None:
    parts: list[str] = []
    at: ast.expr = node
    while isinstance(at, ast.Attribute):
        parts.append(at.attr)
        at = at.value
    return [at.id, *reversed(parts)] if isinstance(at, ast.Name) else None


def _document(file: Path) -> dict[str, Any] | None:
    try:
        return load(file)
    except (StokerError, yaml.YAMLError):
        return None  # not one of ours: a Helm template, a list, a notebook


def _page(file: Path) -> str:
    """The code of a notebook's cells; another page as it is."""
    if not file.name.endswith(".ipynb"):
        return _text(file)
    try:
        cells = json.loads(_text(file)).get("cells", [])
        return "\n".join("".join(cell.get("source", "")) for cell in cells)
    except (ValueError, AttributeError, TypeError):
        return ""


def _calls(text: str, path: str) -> Iterator[Call]:
    known: dict[str, str] = {}
    for line in text.replace("\\\n", " ").splitlines():
        assigned = _ASSIGNMENT.match(line)
        if assigned:
            known[assigned[1]] = _filled(assigned[2].strip("\"'"), known)
        if _SUBMITS.search(line):
            yield Call(tuple(_words(_filled(line, known))), path)


def _as_shell(text: str) -> str:
    """A batch file of Windows in a shell's words, as far as calls are concerned."""
    joined = re.sub(r"\^\r?\n", " ", text)
    return _VARIABLE_OF_WINDOWS.sub(r"${\1}", _SET_OF_WINDOWS.sub("", joined)).replace("\\", "/")


def _filled(text: str, known: dict[str, str]) -> str:
    """Variables that the script itself sets; the others stay as they are written."""
    for _ in range(5):  # variables of variables
        filled = _VARIABLE.sub(lambda match: known.get(match[1] or match[2] or match[3], match[0]), text)
        if filled == text:
            break
        text = filled
    return text


def _words(line: str) -> list[str]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        words = line.split()
    at = next((words.index(verb) for verb in ("training", "train") if verb in words), 0)
    return words[at + 1 :]


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")
