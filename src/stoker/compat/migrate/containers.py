"""A Dockerfile as far as it says what to run, what that needs, and where in the image the files come to lie."""

import json
import posixpath
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from stoker.packaging.package.requirements import as_of_today, without_comment
from stoker.submission.reading import Document, EnvironmentValues, JobValues

PIP = re.compile(r"(?:pip3?|python3?\s+-m\s+pip)\s+install\s+([^&|;]+)")
_VALUED = ("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-c", "--constraint", "-t", "--target")
_TOOLS = re.compile(r"(pip|setuptools|wheel|cloudml-hypertune)\b", re.IGNORECASE)  # of the environment's, or ours
_PYTHON = re.compile(r"(?:.*/)?python3?(?:\.\d+)?")
_MODULE = re.compile(r"\bpython[\d.]*\s(?:-\w\s+)*?-m\s+([\w.-]+)")
_APT = re.compile(r"\bapt(?:-get)?\s+(?:-\S+\s+)*install\s+([^&|;]+)")
_OF_BUILDING = re.compile(
    r"apt-\S+|build-essential|ca-certificates|cmake|curl|g\+\+|gcc|git|gnupg2?|make|pkg-config|python[\d.]*(-\S+)?|\S+-dev"
    r"|software-properties-common|unzip|vim|wget"
)
_NAMES = ("Dockerfile", "dockerfile")


@dataclass(frozen=True, slots=True)
class Container:
    """What it would run, and what it installs."""

    base: str | None
    command: tuple[str, ...]  # ENTRYPOINT and CMD
    requirements: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    folder: str = "/"  # where the command runs
    copies: tuple[tuple[str, str], ...] = ()  # a path of the context, and where it is in the image
    entrypoint: tuple[str, ...] = ()
    system: tuple[str, ...] = ()  # packages of apt that it installs

    def started(self, command: Iterable[str] = (), *, has_args: bool = False) -> "Container":
        """As a job starts it: its own command stands for the ENTRYPOINT and CMD, its arguments for the CMD alone."""
        if own := tuple(command):
            return replace(self, command=own)
        # With a CMD alone the arguments come after it: in its place they would be no command.
        return replace(self, command=self.entrypoint) if has_args and self.entrypoint else self


def read_dockerfile(path: Path, *, context: Path | None = None) -> Container:
    """The last FROM, ENTRYPOINT and CMD, what is copied and set, and the packages of every `pip install`."""
    base: str | None = None
    words: dict[str, tuple[str, ...]] = {}
    requirements: list[str] = []
    variables: dict[str, str] = {}
    folder, copies = "/", []
    system: list[str] = []
    for instruction, rest in _instructions(path):
        match instruction:
            case "FROM":
                base = rest.split()[0] if rest.split() else None
            case "ENTRYPOINT" | "CMD":
                words[instruction] = _command(rest)
            case "RUN":
                for found in PIP.finditer(rest):
                    requirements += pip_packages(found[1], beside=path.parent, context=context)
                system += _of_apt(rest)
            case "WORKDIR":
                folder = posixpath.join(folder, rest)
            case "ENV":
                variables |= _variables(rest)
            case "COPY" | "ADD":
                copies += _copies(rest, folder)
    command = words.get("ENTRYPOINT", ()) + words.get("CMD", ())
    entrypoint = words.get("ENTRYPOINT", ())
    unique = tuple(dict.fromkeys(requirements))
    return Container(base, command, unique, variables, folder, tuple(copies), entrypoint, tuple(dict.fromkeys(system)))


def find_dockerfile(folder: Path) -> Path | None:
    return next((folder / name for name in _NAMES if (folder / name).is_file()), None)


def job_of(container: Container, context: Path) -> JobValues:
    """Its command as a job's, in the words of the directory that the image was built of."""
    words = [_outside(word, container, context) for word in container.command]
    variables = dict(container.variables)
    if (root := _module_root(container, context)) is not None:
        variables["PYTHONPATH"] = root  # seen from the package, where the command runs
    return as_job(words, container, variables)


def as_job(words: list[str], container: Container, variables: dict[str, str]) -> JobValues:
    """A container's command as a job's, with what it needs."""
    if words and _PYTHON.fullmatch(words[0]):
        words = ["python", *words[1:]]
    origin: Document = {"platform": "aiplatform", "container": True}
    if container.base:
        origin["image"] = container.base
    job: JobValues = {"kind": "command", "command": words, "origin": origin}
    environment: EnvironmentValues = {}
    if lines := list(container.requirements):
        environment["requirements"] = lines
    if own := {name: value for name, value in variables.items() if name != "PATH" and "$" not in value}:
        environment["variables"] = own
    return {**job, "environment": environment} if environment else job


def pip_packages(text: str, *, beside: Path, context: Path | None = None) -> list[str]:
    """What the words after `pip install` name, those of its -r files among them."""
    found: list[str] = []
    words = iter(shlex.split(text, comments=True))
    for word in words:
        if word in ("-r", "--requirement"):
            name = next(words, "").lstrip("./").rsplit("/", 1)[-1]
            file = next((at / name for at in (beside, context or beside) if (at / name).is_file()), None)
            if file is not None:
                lines = map(without_comment, file.read_text(encoding="utf-8", errors="replace").splitlines())
                found += [line for line in lines if line and not line.startswith("-")]
        elif word in _VALUED:
            next(words, None)
        elif not word.startswith(("-", "/")) and word not in (".", "./") and "$" not in word:
            found.append(word)
    return [as_of_today(line) for line in found if not _TOOLS.match(line)]


def apt_packages(text: str) -> list[str]:
    """What shell text installs of the system's packages."""
    words = [word for found in _APT.finditer(text) for word in found[1].split()]
    return [word for word in words if not word.startswith("-")]


def _of_apt(text: str) -> list[str]:
    """Packages that a RUN line installs of the system's; not those that only its own other lines need."""
    names = [word.partition("=")[0] for word in apt_packages(text) if "$" not in word]
    return [name for name in names if not _OF_BUILDING.fullmatch(name)]


def _instructions(path: Path) -> Iterable[tuple[str, str]]:
    text = path.read_text(encoding="utf-8", errors="replace")
    kept = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(kept).replace("\\\n", " ").splitlines():
        instruction, _, rest = line.strip().partition(" ")
        yield instruction.upper(), rest.strip()


def _command(text: str) -> tuple[str, ...]:
    try:
        found = json.loads(text)
        if isinstance(found, list):
            return tuple(map(str, found))
    except ValueError:
        pass
    return ("sh", "-c", text) if text else ()


def _variables(text: str) -> dict[str, str]:
    """`ENV A=1 B="x y"`, and the older `ENV A 1`."""
    words = shlex.split(text)
    if words and "=" not in words[0]:
        return {words[0]: " ".join(words[1:])}
    return dict(word.split("=", 1) for word in words if "=" in word)


def _copies(text: str, folder: str) -> list[tuple[str, str]]:
    listed = _command(text) if text.startswith("[") else shlex.split(text)
    words = [word for word in listed if not word.startswith("--")]
    if len(words) < 2:
        return []
    target = posixpath.join(folder, words[-1])
    if len(words) > 2 or words[-1] in (".", ".."):
        target = f"{target.rstrip('/')}/"  # several go into a folder
    return [(posixpath.normpath(source), target) for source in words[:-1]]


def _outside(word: str, container: Container, context: Path) -> str:
    """A path in the image as the path in the context that was copied there; any other word as it is."""
    if word.startswith("-") or not word.endswith((".py", ".sh")):
        return word
    if not word.startswith("/") and (context / word).is_file():
        return word
    inside = posixpath.normpath(posixpath.join(container.folder, word))
    for source, target in reversed(container.copies):
        for candidate in _sources(inside, source, target):
            if (context / candidate).is_file():
                return candidate
    return word


def _module_root(container: Container, context: Path) -> str | None:
    """The folder of the context that the module of `python -m MODULE` is to be looked for in; None: the context."""
    named = _MODULE.search(" ".join(container.command))
    if named is None:
        return None
    files = [named[1].replace(".", "/") + end for end in (".py", "/__main__.py")]
    if any((context / file).is_file() for file in files):
        return None
    for file in files:
        inside = posixpath.normpath(posixpath.join(container.folder, file))
        for source, target in reversed(container.copies):
            for candidate in _sources(inside, source, target):
                if (context / candidate).is_file():
                    return candidate.removesuffix(file).rstrip("/") or None
    return None


def _sources(inside: str, source: str, target: str) -> Iterable[str]:
    """Where a file of the image may come from: from the very file copied, or from below a copied folder."""
    target = posixpath.normpath(target)
    if inside == target:
        yield source
    if inside.startswith(target.rstrip("/") + "/"):
        rest = inside[len(target.rstrip("/")) + 1 :]
        yield posixpath.normpath(posixpath.join(source, rest))
        if rest == posixpath.basename(source):
            yield source
