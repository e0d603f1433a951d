"""Determined's startup-hook.sh, taken apart: what it installs, what a machine must have, and what is left to run."""

import re
from dataclasses import dataclass
from pathlib import Path

from stoker.compat.migrate.containers import PIP, apt_packages, pip_packages

NAME = "startup-hook.sh"

_FRONT = re.compile(r"(?:sudo\s+(?:-\w+\s+)*)?(?:/\S+/(?=pip|python))?")
_APT = re.compile(r"(?:apt|apt-get)\s+(?:-\S+\s+)*(?:update|upgrade|install|clean|autoclean|autoremove)\b[^|;]*")


@dataclass(frozen=True, slots=True)
class Hook:
    """`left` is shell, or nothing; `system` are the packages of the image's own that it wanted."""

    left: str = ""
    requirements: tuple[str, ...] = ()
    system: tuple[str, ...] = ()


def read_hook(root: Path) -> Hook:
    """Of a package's folder; an empty one where there is none."""
    file = root / NAME
    return split_hook(file.read_text(encoding="utf-8", errors="replace"), beside=root) if file.is_file() else Hook()


def split_hook(text: str, *, beside: Path) -> Hook:
    rest: list[str] = []
    requirements: list[str] = []
    system: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        command = _FRONT.sub("", line.strip(), count=1)
        if line[:1].isspace():
            rest.append(line)  # within an `if`, which must not be left empty
        elif (found := PIP.fullmatch(command)) and not _is_of_hook(packages := pip_packages(found[1], beside=beside)):
            requirements += packages
        elif _is_apt(command):
            system += [word for part in command.split("&&") for word in apt_packages(part.split("#")[0])]
        else:
            rest.append(line)
    is_code = any(line.strip() and not line.lstrip().startswith("#") for line in rest)
    only_settings = all(re.fullmatch(r"\s*(#.*|set [-+]\w+)?\s*", line) for line in rest)
    left = "\n".join(rest) if is_code and not only_settings else ""
    return Hook(left, tuple(dict.fromkeys(requirements)), tuple(dict.fromkeys(system)))


def _is_of_hook(packages: list[str]) -> bool:
    """Whether one is a folder, which the hook itself must have made."""
    return any("/" in package and "://" not in package and "@" not in package for package in packages)


def _is_apt(command: str) -> bool:
    """All of the line: there is no container to install into, and what comes of it is the machine's."""
    return all(_APT.fullmatch(_FRONT.sub("", part.strip(), count=1)) for part in command.split("&&"))
