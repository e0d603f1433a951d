"""Requirement files as people write them, flattened to lines that stand alone.

A line is what pip would accept: `six>=1.16; python_version < "3.9"`, with `--hash=…` after it or not; or one of
the options in `PASSED_ON`. A constraint is a line that begins with "-c ", followed by the requirement itself; so
does one with `OVERRIDE`, which stands for all other lines about its distribution.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from stoker.errors import UsageError

ARCHIVE_SUFFIXES = (".whl", ".tar.gz", ".tgz", ".zip", ".tar.bz2")
PASSED_ON = ("--index-url", "--extra-index-url", "--find-links", "--no-index", "--no-binary", "--only-binary", "--pre")
OVERRIDE = "--override "

_SHORT = {"-r": "--requirement", "-c": "--constraint", "-e": "--editable", "-i": "--index-url", "-f": "--find-links"}
_DROPPED = frozenset(("--require-hashes", "--prefer-binary", "--use-feature", "--trusted-host"))
_OPTION = re.compile(r"(--[a-z-]+|-[rcefi])(?:\s*=\s*|\s+)?(.*)")
_COMMENT = re.compile(r"(^|\s)#.*$")
_NAME = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(\[[^]]*\])?")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_EGG = re.compile(r"[#&]egg=([A-Za-z0-9._-]+)(\[[^]]*\])?")
# Old files name PyPI itself. It is the default; where pip is told of a mirror of it, the mirror is meant.
_PYPI = re.compile(r"--(extra-)?index-url https?://(pypi\.org|pypi\.python\.org)/(simple|pypi)/?")
# `>=1.15.*`, which pip took for `>=1.15` until the standard said that it means nothing.
_BOUND_WITH_STAR = re.compile(r"((?:>=|<=|>|<)\s*)(\d[\w.]*)\.\*")
# `torch>=1.0.0<1.1`, two bounds with no comma between them, which pip took until the standard had none of it.
_BOUNDS_WITHOUT_COMMA = re.compile(r"((?:[<>]=?|[=!~]=)[ \t]*\d[\w.*]*)[ \t]*(?=(?:[<>]=?|[=!~]=)[ \t]*\d)")
# `xgboost=0.72.1`, `numpy=1.21.2=py39h20f2e39_0`, as conda writes a version; pip has no `=`.
_OF_CONDA = re.compile(r"^([ \t]*[A-Za-z0-9][\w.-]*)[ \t]*=[ \t]*(\d[\w.]*)(?:=\w+)?(?=[ \t]*(?:[#;]|$))", re.MULTILINE)
_OF_A_BUILD = re.compile(r"^([\w.-]+(?:\[[^]]*\])?) @ file://(/\S+)", re.MULTILINE)
_HERE = re.compile(r"\./?(\[([^]]*)\])?")


@dataclass(slots=True)
class Requirements:
    """What a requirement file comes to, with all the files it names."""

    lines: list[str] = field(default_factory=list)
    archives: list[Path] = field(default_factory=list)  # wheels and sdists it names on this disk
    extras: list[str] = field(default_factory=list)  # of the package itself, by `-e .[extra]`
    files: list[Path] = field(default_factory=list)  # every file that was read


def read_requirements(file: Path) -> Requirements:
    """Read a requirements.txt and what it includes; UsageError, with file and line, for what cannot be shipped."""
    found = Requirements()
    _read_file(Path(os.path.abspath(file)), found, as_constraints=False)
    return found


def name_of(line: str) -> str | None:
    """The distribution a requirement line is about, in its normal form; None for options and bare URLs."""
    match = _NAME.match(line)
    if match is None or _URL.match(line):
        return None
    return normal_name(match[1])


def normal_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def check_requirement(line: str, *, where: str) -> None:
    """UsageError when a line is no requirement by the standard."""
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415  20 ms, not on a cached path

    try:
        Requirement(without_hashes(line))
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise UsageError(f"{where}: {line!r} is not a requirement: {reason}.") from error


def as_of_today(line: str) -> str:
    """Requirements in the words of today's standard, where pip of their time took others, or conda's wrote them."""
    bounds = _BOUNDS_WITHOUT_COMMA.sub(r"\1,", _BOUND_WITH_STAR.sub(r"\1\2", line))
    return _OF_A_BUILD.sub(_without_place, _OF_CONDA.sub(r"\1==\2", bounds))


def without_comment(line: str) -> str:
    """setuptools and pip pass over what follows a `#` that has a space before it."""
    return _COMMENT.sub("", line).strip()


def _without_place(found: re.Match[str]) -> str:
    """conda's pip writes down where a package was built, which was a folder of the builder's machine."""
    return found[0] if os.path.exists(unquote(found[2])) else found[1]


def without_hashes(line: str) -> str:
    return line.split(" --", 1)[0].strip()


def hashes_of(line: str) -> tuple[str, ...]:
    return tuple(re.findall(r"--hash[= ](\S+)", line))


def _read_file(file: Path, found: Requirements, *, as_constraints: bool) -> None:
    if file in found.files:
        return
    found.files.append(file)
    try:
        data = file.read_bytes()
        # PowerShell's `pip freeze > requirements.txt` writes UTF-16.
        text = data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except OSError as error:
        raise UsageError(f"Cannot read the requirement file {file}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"The requirement file {file} is not UTF-8 text. Save it as UTF-8.") from error
    for number, line in _logical_lines(as_of_today(text)):
        where = f"{file}, line {number}"
        if as_constraints:
            _add_constraint(line, where, file, found)
        elif line.startswith("-"):
            _add_option(line, where, file, found)
        else:
            _add_requirement(line, where, file, found)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, joined where they end in a backslash, with the number of their first."""
    pending, start = "", 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        start = start if pending else number
        continued = line.endswith("\\") and not line.lstrip().startswith("#")
        pending += (line[:-1] if continued else line) + " "
        if not continued:
            whole = " ".join(_COMMENT.sub("", pending).split())
            pending = ""
            if whole:
                yield start, whole


def _add_option(line: str, where: str, file: Path, found: Requirements) -> None:
    match = _OPTION.match(line)
    option, value = (_SHORT.get(match[1], match[1]), match[2].strip()) if match else (line, "")
    if option in ("--requirement", "--constraint"):
        if _URL.match(value):
            raise UsageError(f"{where}: {value} is on the network; stoker reads requirement files from this disk only.")
        _read_file(_beside(file, value), found, as_constraints=option == "--constraint")
    elif option == "--editable":
        _add_requirement(value, where, file, found, editable=True)
    elif option == "--find-links" and not _URL.match(value):
        folder = _beside(file, value)
        if not folder.exists():
            raise UsageError(f"{where}: there is no {folder} to find links in.")
        found.lines.append(f"--find-links {folder}")
    elif option in PASSED_ON:
        if not _PYPI.fullmatch(f"{option} {value}"):
            found.lines.append(f"{option} {value}".strip())
    elif option not in _DROPPED:
        raise UsageError(f"{where}: stoker does not know the option {option}. Known: {', '.join(PASSED_ON)}.")


def _add_requirement(line: str, where: str, file: Path, found: Requirements, *, editable: bool = False) -> None:
    here = _HERE.fullmatch(line)
    if here is not None:
        # The package itself is on the path already; only its extras bring something new.
        found.extras += [extra.strip() for extra in (here[2] or "").split(",") if extra.strip()]
        return
    path = _local_path(line, file)
    if path is not None:
        if not path.is_file():
            raise UsageError(
                f"{where}: {line} is a folder or not there. Build a wheel of it (`pip wheel {line}`) and name that."
            )
        found.archives.append(path)
        return
    if _URL.match(line):
        egg = _EGG.search(line)
        line = f"{egg[1]}{egg[2] or ''} @ {_EGG.sub('', line)}" if egg else line
    elif editable:
        raise UsageError(f"{where}: `-e {line}` is neither this package nor a URL; stoker cannot ship it.")
    else:
        check_requirement(line, where=where)
    found.lines.append(line)


def _add_constraint(line: str, where: str, file: Path, found: Requirements) -> None:
    if line.startswith("-"):
        match = _OPTION.match(line)
        if match and match[1] in ("-c", "-r", "--constraint", "--requirement"):
            _read_file(_beside(file, match[2].strip()), found, as_constraints=True)
        return
    check_requirement(line, where=where)
    found.lines.append(f"-c {without_hashes(line)}")


def _local_path(line: str, file: Path) -> Path | None:
    """The path a line names, `./wheels/x.whl` or `x @ file:///…`; None when it names something else."""
    target = line.split(" @ ", 1)[1].strip() if " @ " in line else line
    if target.startswith("file:"):
        return _beside(file, unquote(re.sub(r"^file:(//)?", "", target).split("#")[0]))
    if " @ " in line or _URL.match(line):
        return None
    word = line.split(";")[0].strip()
    looks_local = word.startswith((".", "/", "~")) or word.endswith(ARCHIVE_SUFFIXES)
    return _beside(file, word) if looks_local else None


def _beside(file: Path, path: str) -> Path:
    return Path(os.path.abspath(file.parent / Path(path.strip("\"'")).expanduser()))
