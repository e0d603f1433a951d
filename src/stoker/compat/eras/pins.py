"""A package's requirement lines, read for the releases that they name, and mended where no installer takes them."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import Specifier

from stoker.packaging.environment.dates import COMPILED
from stoker.packaging.package.requirements import OVERRIDE, name_of, normal_name, without_hashes

_NEVER = 'python_version < "3"'  # as a marker: a line that is left out
# Python 3 has what these backports bring, and some fail to install on it.
_BACKPORTS = frozenset("enum34 functools32 futures pathlib python pkg-resources subprocess32 typing".split())
# Names that people require a library by, under which the index has something else, or nothing.
_MISNAMED = {
    "cv2": "opencv-python-headless",
    "pil": "pillow",
    "pytorch": "torch",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "tensorflow-gpu": "tensorflow",  # without a version: the last releases refuse to be installed
}


@dataclass(frozen=True, slots=True)
class Mended:
    """The lines as they are meant, and the lines to add to a job so that its own come to be these."""

    lines: tuple[str, ...]
    added: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def mended(lines: Iterable[str]) -> Mended:
    """Without backports of what Python 3 has, and with libraries required by their names."""
    own = list(lines)
    needless = [line for line in own if _is_needless(name_of(line) or "")]
    misnamed = {line: _MISNAMED[line.strip().lower()] for line in own if line.strip().lower() in _MISNAMED}
    gone = {name_of(line) for line in (*needless, *misnamed)}
    kept = [line for line in own if name_of(line) not in gone]
    right = [name for name in dict.fromkeys(misnamed.values()) if name not in map(name_of, kept)]
    notes = [f"Left out {', '.join(needless)}: Python 3 includes it."] if needless else []
    notes += [f"{wrong} is installed under its own name, {name}." for wrong, name in misnamed.items()]
    overrides = [f"{OVERRIDE}{name}; {_NEVER}" for name in dict.fromkeys(map(name_of, (*needless, *misnamed)))]
    return Mended((*kept, *right), (*overrides, *right), tuple(notes))


def exact(lines: Iterable[str]) -> list[str]:
    """The lines that name a release: `==1.2`, `==1.2.*`, `~=1.2`."""
    return [line for line in lines if any(clause.operator in ("==", "===", "~=") for clause in clauses(line))]


def bounded(lines: Iterable[str]) -> list[str]:
    """The lines that leave out every release from some time on."""
    return [line for line in lines if any(clause.operator not in (">", ">=", "!=") for clause in clauses(line))]


def compiled(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if name_of(line) in COMPILED]


def at_least(lines: Iterable[str]) -> list[str]:
    """For each line that names a release: that one or a later one."""
    found = []
    for line in exact(lines):
        requirement = parsed(line)
        assert requirement is not None
        extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        version = next(one.version for one in clauses(line) if one.operator in ("==", "===", "~="))
        marker = f"; {requirement.marker}" if requirement.marker else ""
        found.append(f"{normal_name(requirement.name)}{extras}>={version.removesuffix('.*')}{marker}")
    return found


def allows(line: str, release: str) -> bool:
    """Whether a requirement line leaves room for `name==1.2.*` of the same library, and names no release itself."""
    requirement = parsed(line)
    if requirement is None or requirement.url or line in bounded([line]):
        return False
    return requirement.specifier.contains(release.partition("==")[2].replace("*", "99"))


def at_most(release: str) -> str:
    """For `name==1.15.*` or `name==1.15.2`: any release up to that minor version, `name<1.16`."""
    name, _, version = release.partition("==")
    major, minor = version.split(".")[:2]
    return f"{name}<{major}.{int(minor) + 1}"


def clauses(line: str) -> list[Specifier]:
    requirement = parsed(line)
    return list(requirement.specifier) if requirement is not None and not requirement.url else []


def parsed(line: str) -> Requirement | None:
    """None for an option or a bare URL."""
    try:
        return Requirement(without_hashes(line))
    except InvalidRequirement:
        return None


def _is_needless(name: str) -> bool:
    return name in _BACKPORTS or (name in sys.stdlib_module_names and name != "dataclasses")
