"""Which files of a directory stay out of a package: the built-in list, and what the user's ignore files say.

A file is decided by the last family in `FAMILIES` that speaks of it, and within a family by the deepest file, as git
does; so `.stokerignore` has the last word, and `!data/` there brings back what `.gitignore` leaves out. Beside a
`.detignore`, `.gitignore` files say nothing: Determined did not read them, and shipped data that git leaves out.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.errors import UsageError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

FAMILIES = (".gitignore", ".gcloudignore", ".detignore", ".stokerignore")

_IGNORED_NAMES = frozenset(
    (
        *(".git", ".hg", ".svn", ".bzr", ".DS_Store", ".idea", ".vscode"),
        *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints"),
        *(".tox", ".nox", ".eggs", "node_modules", ".coverage", "stoker-runs"),
    )
)
_IGNORED_SUFFIXES = (".pyc", ".pyo", ".egg-info")
_FOLDER = re.compile(r"^(!?[^!#].*?)/\s*$")
_INCLUDE = re.compile(r"#!include:(.+)")


@dataclass(frozen=True, slots=True)
class _Rules:
    """The patterns of one ignore file, which speak of paths below its own folder."""

    family: int
    folder: str  # relative to the walk's root, "" for the root; for files above the root, see `above`
    above: str  # the way from the ignore file's folder down to the root, "" when it is not above
    files: "GitIgnoreSpec"
    folders: "GitIgnoreSpec"  # the same, for paths that are known to be folders

    @classmethod
    def of(cls, lines: list[str], file: Path, *, family: int, folder: str = "", above: str = "") -> "_Rules":
        # `!trainer/` after `*` brings the folder back, which pathspec sees only if both speak of a plain name.
        named = [_FOLDER.sub(r"\1", line) for line in lines]
        return cls(family, folder, above, _spec(lines, file), _spec(named, file))

    def verdict(self, path: str, *, is_dir: bool) -> bool | None:
        below = path[len(self.folder) + 1 :] if self.folder else path
        spec = self.folders if is_dir else self.files
        return spec.check_file(f"{self.above}/{below}" if self.above else below).include


class Ignore:
    """The rules met so far on a walk from `root` down; tell it of each folder before asking about its entries."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._is_determineds = (root / ".detignore").is_file()
        self._rules = [] if self._is_determineds else _rules_above(root)

    def enter(self, folder: str) -> None:
        """Take in the ignore files of a folder (a path relative to the root, "" for the root itself)."""
        for family, name in enumerate(FAMILIES):
            file = self._root / folder / name
            is_read = not (self._is_determineds and name == ".gitignore")
            lines = _read_lines(file) if is_read else None
            if lines is not None:
                self._rules.append(_Rules.of(lines, file, family=family, folder=folder))
                # Stable, so that a deeper folder's file stays after (and wins over) a shallower one's.
                self._rules.sort(key=lambda rules: rules.family)

    def ignores(self, path: str, *, is_dir: bool) -> bool:
        """Whether an entry stays out. Ask about folders first: what is in an ignored one is not asked about."""
        for rules in reversed(self._rules):
            if rules.folder and not path.startswith(f"{rules.folder}/"):
                continue
            verdict = rules.verdict(path, is_dir=is_dir)
            if verdict is False and rules.family < len(FAMILIES) - 1:
                break  # `!*/` brings back folders, and means neither .git nor a virtual environment
            if verdict is not None:
                return verdict
        name = path.rpartition("/")[2]
        if name in _IGNORED_NAMES or name.endswith(_IGNORED_SUFFIXES):
            return True
        return is_dir and (self._root / path / "pyvenv.cfg").exists()  # a virtual environment, whatever its name


def _rules_above(root: Path) -> list[_Rules]:
    """The `.gitignore` files between the root and the top of its repository, top first.

    None of them counts when they ignore the root itself: someone packs a folder that git does not keep, on purpose.
    """
    found: list[_Rules] = []
    for folder in root.parents if not (root / ".git").exists() else ():
        file = folder / ".gitignore"
        lines = _read_lines(file)
        if lines is not None:
            found.insert(0, _Rules.of(lines, file, family=0, above=root.relative_to(folder).as_posix()))
        if (folder / ".git").exists():
            ignored = any(rules.folders.check_file(rules.above).include for rules in found)
            return [] if ignored else found
    return []  # not in a repository


def _read_lines(file: Path) -> list[str] | None:
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:
            lines = stream.read().splitlines()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"Cannot read {file}: {error.strerror}.") from error
    return _with_includes(lines, file)


def _with_includes(lines: list[str], file: Path) -> list[str]:
    """gcloud's `#!include:.gitignore` lines, replaced by that file's lines."""
    whole: list[str] = []
    for line in lines:
        include = _INCLUDE.fullmatch(line.strip())
        other = file.parent / os.path.basename(include[1].strip()) if include else None
        if other is not None and other != file and other.is_file():
            whole += other.read_text(encoding="utf-8", errors="replace").splitlines()
        else:
            whole.append(line)
    return whole


def _spec(lines: list[str], file: Path) -> "GitIgnoreSpec":
    from pathspec import GitIgnoreSpec  # noqa: PLC0415  15 ms, paid only where there is an ignore file

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise UsageError(f"{file} has a pattern that git would not understand: {error}") from error
