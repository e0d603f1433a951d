"""A Dockerfile as far as it says what to run and what that needs."""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

PIP = re.compile(r"(?:pip3?|python3?\s+-m\s+pip)\s+install\s+([^&|;]+)")
_VALUED = ("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-c", "--constraint", "-t", "--target")


@dataclass(frozen=True, slots=True)
class Container:
    """What it would run, and what it installs."""

    base: str | None
    command: tuple[str, ...]
    requirements: tuple[str, ...]


def read_dockerfile(path: Path) -> Container:
    """The last FROM, ENTRYPOINT and CMD, and the packages of every `pip install`."""
    base: str | None = None
    words: dict[str, tuple[str, ...]] = {}
    requirements: list[str] = []
    for line in path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ").splitlines():
        instruction, _, rest = line.strip().partition(" ")
        match instruction.upper():
            case "FROM":
                base = rest.split()[0] if rest.split() else None
            case "ENTRYPOINT" | "CMD":
                words[instruction.upper()] = _command(rest.strip())
            case "RUN":
                for found in PIP.finditer(rest):
                    requirements += pip_packages(found[1], beside=path.parent)
    return Container(base, words.get("ENTRYPOINT", ()) + words.get("CMD", ()), tuple(dict.fromkeys(requirements)))


def _command(text: str) -> tuple[str, ...]:
    try:
        found = json.loads(text)
        if isinstance(found, list):
            return tuple(map(str, found))
    except ValueError:
        pass
    return ("sh", "-c", text) if text else ()


def pip_packages(text: str, *, beside: Path) -> list[str]:
    """What the words after `pip install` name, those of its -r files among them."""
    found: list[str] = []
    words = iter(shlex.split(text, comments=True))
    for word in words:
        if word in ("-r", "--requirement"):
            file = beside / next(words, "").lstrip("./").rsplit("/", 1)[-1]
            if file.is_file():
                found += [
                    line.strip() for line in file.read_text().splitlines() if line.strip() and line[0] not in "#-"
                ]
        elif word in _VALUED:
            next(words, None)
        elif not word.startswith("-") and word not in (".", "./"):
            found.append(word)
    return found
