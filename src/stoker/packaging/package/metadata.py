"""What pyproject.toml and setup.cfg declare, read as text; nothing of the package is run."""

import configparser
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker.errors import UsageError
from stoker.packaging.package.requirements import read_requirements, without_comment


@dataclass(slots=True)
class Declared:
    """What one file says of a project; None where it says nothing."""

    name: str | None = None
    version: str | None = None
    requirements: list[str] | None = None
    python_requires: str | None = None
    extras: dict[str, list[str]] = field(default_factory=dict)
    import_roots: list[str] | None = None
    builds: str | None = None  # what would have to be compiled
    files: list[Path] = field(default_factory=list)  # others that were read
    archives: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_pyproject(file: Path) -> Declared:
    """[project], and poetry's table where there is no [project]."""
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not TOML: {error}.") from error
    tool = _table(values, "tool")
    if "project" in values:
        return _standard(_table(values, "project"), tool, file)
    if "poetry" in tool:
        return _poetry(_table(tool, "poetry"))
    return Declared(import_roots=_setuptools_roots(_table(tool, "setuptools")))


def read_setup_cfg(file: Path) -> Declared:
    """The declarative part: [metadata] and [options]."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(file.read_text(encoding="utf-8"), source=str(file))
    except (configparser.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {' '.join(str(error).split())}.") from error
    options = dict(parser["options"]) if parser.has_section("options") else {}
    metadata = dict(parser["metadata"]) if parser.has_section("metadata") else {}
    declared = Declared(name=metadata.get("name"), python_requires=options.get("python_requires"))
    version = metadata.get("version", "")
    declared.version = None if version.startswith(("attr:", "file:")) else version or None
    if "install_requires" in options:
        declared.requirements = _cfg_requirements(options["install_requires"], file, declared)
    if parser.has_section("options.extras_require"):
        declared.extras = {name: _lines(value) for name, value in parser["options.extras_require"].items()}
    folders = dict(part.partition("=")[::2] for part in _lines(options.get("package_dir", ""), ","))
    where = _lines(parser.get("options.packages.find", "where", fallback=""), ",")
    declared.import_roots = roots_of({k.strip(): v.strip() for k, v in folders.items()}) or where or None
    return declared


def roots_of(package_dir: Mapping[str, str]) -> list[str]:
    """The folders to put on sys.path for setuptools' `package_dir`."""
    roots = []
    for package, folder in package_dir.items():
        parts = Path(folder).parts
        own = tuple(package.split(".")) if package else ()
        if own and parts[-len(own) :] != own:
            continue  # the folder is called otherwise than the package: nothing on sys.path could express that
        root = Path(*parts[: len(parts) - len(own)]).as_posix()
        roots.append(root)
    return list(dict.fromkeys(roots))


def poetry_specifier(text: str) -> str:
    """Poetry's `^1.2`, `~1.2`, `1.2.*`, `1.2.3` and `*` in the standard's words."""
    parts = [part.strip() for part in text.split(",")]
    return ",".join(filter(None, map(_poetry_part, parts)))


def _standard(project: Mapping[str, Any], tool: Mapping[str, Any], file: Path) -> Declared:
    setuptools = _table(tool, "setuptools")
    declared = Declared(
        name=_text(project.get("name")),
        version=_text(project.get("version")),
        python_requires=_text(project.get("requires-python")),
        import_roots=_setuptools_roots(setuptools),
    )
    extras = project.get("optional-dependencies", {})
    declared.extras = {name: list(lines) for name, lines in extras.items()} if isinstance(extras, dict) else {}
    dynamic = project.get("dynamic", [])
    if "dependencies" in project or "dependencies" not in dynamic:
        declared.requirements = [str(line) for line in project.get("dependencies", [])]
        return declared
    named = _table(_table(setuptools, "dynamic"), "dependencies").get("file")
    if named is not None:
        for name in [named] if isinstance(named, str) else named:
            found = read_requirements(file.parent / name)
            declared.requirements = [*(declared.requirements or []), *found.lines]
            declared.files += found.files
            declared.archives += found.archives
    return declared


def _setuptools_roots(setuptools: Mapping[str, Any]) -> list[str] | None:
    roots = roots_of(_table(setuptools, "package-dir"))
    where = _table(_table(setuptools, "packages"), "find").get("where", [])
    return roots or [str(folder) for folder in where] or None


def _poetry(poetry: Mapping[str, Any]) -> Declared:
    declared = Declared(name=_text(poetry.get("name")), version=_text(poetry.get("version")), requirements=[])
    assert declared.requirements is not None
    for name, wanted in _table(poetry, "dependencies").items():
        if name == "python":
            declared.python_requires = poetry_specifier(_text(wanted) or "*") or None
            continue
        for choice in wanted if isinstance(wanted, list) else [wanted]:
            line = _poetry_requirement(name, choice)
            if line is not None:
                declared.requirements.append(line)
    packages = poetry.get("packages", [])
    roots = [item["from"] for item in packages if isinstance(item, dict) and "from" in item]
    declared.import_roots = list(dict.fromkeys(roots)) or None
    return declared


def _poetry_requirement(name: str, wanted: Any) -> str | None:
    """A line for one entry; None for what is optional or lies in a folder beside the project."""
    if isinstance(wanted, str):
        return f"{name}{poetry_specifier(wanted)}"
    if not isinstance(wanted, dict) or wanted.get("optional") or "path" in wanted:
        return None
    extras = f"[{','.join(wanted['extras'])}]" if wanted.get("extras") else ""
    markers = [f"({wanted['markers']})"] if wanted.get("markers") else []
    python = poetry_specifier(str(wanted.get("python", "*")))
    for part in python.split(",") if python else ():
        bound = re.fullmatch(r"([<>=!~]+)\s*(.+)", part)
        if bound:
            variable = "python_full_version" if bound[2].count(".") > 1 else "python_version"
            markers.append(f'{variable} {bound[1]} "{bound[2]}"')
    marker = f" ; {' and '.join(markers)}" if markers else ""
    if "git" in wanted:
        revision = wanted.get("rev") or wanted.get("tag") or wanted.get("branch")
        return f"{name}{extras} @ git+{wanted['git']}{f'@{revision}' if revision else ''}{marker}"
    if "url" in wanted:
        return f"{name}{extras} @ {wanted['url']}{marker}"
    return f"{name}{extras}{poetry_specifier(str(wanted.get('version', '*')))}{marker}"


def _poetry_part(part: str) -> str:
    if part in ("", "*") or "|" in part:
        return ""  # alternatives have no form in the standard: any version is the closest
    if part[0] in "^~" and not part.startswith("~="):
        version = part[1:].strip()
        numbers = [int(number) for number in re.findall(r"\d+", version.split("-")[0])[:3]] or [0]
        return f">={version},<{_above(numbers) if part[0] == '^' else _bumped(numbers, min(len(numbers), 2) - 1)}"
    if part[0].isdigit():
        return f"=={part}"
    return part.replace(" ", "")


def _above(numbers: list[int]) -> str:
    """The first version that a caret leaves out: the leftmost number that is not zero goes up."""
    position = next((i for i, number in enumerate(numbers) if number), len(numbers) - 1)
    return _bumped(numbers, position)


def _bumped(numbers: list[int], position: int) -> str:
    return ".".join(map(str, [*numbers[:position], numbers[position] + 1]))


def _cfg_requirements(value: str, file: Path, declared: Declared) -> list[str]:
    if not value.strip().startswith("file:"):
        return _lines(value)
    lines: list[str] = []
    for name in value.strip().removeprefix("file:").split(","):
        found = read_requirements(file.parent / name.strip())
        lines += found.lines
        declared.files += found.files
        declared.archives += found.archives
    return lines


def _lines(value: str, separator: str = ";") -> list[str]:
    """A setup.cfg list: one item a line, or all in one line with a separator."""
    lines = value.splitlines() if "\n" in value else value.split(separator)
    return [found for line in lines if (found := without_comment(line))]


def _table(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = values.get(key, {})
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
