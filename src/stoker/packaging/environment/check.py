"""What a package requires beside what a runtime has, and whether the two come together: `stoker check`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from stoker.errors import UsageError
from stoker.host.home import Home
from stoker.packaging.environment.distributions import Installed
from stoker.packaging.environment.needs import Needs
from stoker.packaging.environment.resolution import Resolution
from stoker.packaging.environment.resolver import (
    Endless,
    Unresolvable,
    Wanted,
    has_wheels,
    is_met,
    parse,
    resolve_needs,
    without_wheel,
)
from stoker.packaging.environment.runtimes import Runtime, choose, list_runtimes
from stoker.packaging.package.archive import hash_of
from stoker.packaging.package.project import Project, read_project
from stoker.packaging.package.requirements import ARCHIVE_SUFFIXES, name_of, without_hashes
from stoker.packaging.package.tree import source_of_package, walk


class Verdict(StrEnum):
    """What becomes of a requirement."""

    OK = "ok"  # the runtime has it
    NOT_NEEDED = "not needed"  # its marker leaves this Python or system out
    INSTALL = "install"
    REPLACE = "replace"  # the runtime has another version; the job gets its own
    BUILD = "build"  # there is no wheel for this Python: it is built from source, which may fail
    OTHER_PYTHON = "other python"  # the package says it is for other Pythons; it is run all the same
    CONFLICT = "conflict"  # cannot be met together with the others
    NO_BUILD = "no build"  # nothing of it for this Python
    UNKNOWN = "unknown"  # no such package, or no such version

    @property
    def can_run(self) -> bool:
        return self not in (Verdict.CONFLICT, Verdict.NO_BUILD, Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Row:
    """One requirement and its verdict."""

    requirement: str
    runtime_has: str | None
    verdict: Verdict
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All of them. `also` are installed because others need them."""

    package: str
    runtime: str
    python: str
    rows: tuple[Row, ...]
    also: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def can_run(self) -> bool:
        return all(row.verdict.can_run for row in self.rows)


def check(
    path: Path,
    *,
    home: Home,
    runtime: str | None = None,
    python: str | None = None,
    prefer_runtime: bool = False,
    as_of: str | None = None,
    beside: Sequence[str] = (),
) -> Report:
    """Look at a package's directory, or at an archive. Asks the package index; installs and stores nothing.

    `beside` are requirements that a job of it has besides its own.
    """
    choice = choose(home, runtime=runtime, python=python)
    project, archives, notes = _look_at(path, home, choice.runtime)
    needs = Needs(
        requirements=(*project.requirements, *beside),
        archives=tuple((hash_of(file), file.name) for file in archives),
        prefer_runtime=prefer_runtime,
        as_of=as_of,
    )
    installed = Installed(choice.runtime)
    rows, also, broken = _verdicts(needs, installed, archives, home=home)
    python_row = _python_row(project, choice.runtime, home)
    return Report(
        package=str(path),
        runtime=choice.runtime.name,
        python=choice.runtime.version,
        rows=(*([python_row] if python_row else []), *rows),
        also=also,
        notes=tuple(note for note in (choice.note, *notes, *broken) if note),
    )


def _look_at(path: Path, home: Home, runtime: Runtime) -> tuple[Project, list[Path], tuple[str, ...]]:
    if path.is_file() and path.name.endswith(ARCHIVE_SUFFIXES):
        return Project(), [Path(os.path.abspath(path))], ()
    tree = walk(source_of_package(path))
    project = read_project(tree, home=home, runtime=runtime)
    return project, [Path(file) for file in project.archives], (*tree.notes, *project.notes)


def _verdicts(
    needs: Needs, installed: Installed, archives: Sequence[Path], *, home: Home
) -> tuple[list[Row], tuple[str, ...], list[str]]:
    judge = _Judge(needs, Wanted.of(needs, installed), installed, home)
    whole = judge.attempt(needs, archives)
    rows = [judge.row(line, whole) for line in needs.requirements if not line.startswith("-")]
    rows += [judge.archive_row(file, whole) for file in archives]
    return rows, _also(needs, whole.resolution), _broken(whole.resolution, installed)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What came of resolving something: a resolution, with the lines that have no wheel; or the reason for none."""

    resolution: Resolution | None = None
    from_source: frozenset[str] = frozenset()
    reason: str = ""
    is_endless: bool = False


@dataclass(frozen=True, slots=True)
class _Judge:
    """Gives each requirement its verdict; where not all can be met together, by asking for each alone."""

    needs: Needs
    wanted: Wanted
    installed: Installed
    home: Home

    def attempt(self, needs: Needs, archives: Sequence[Path]) -> _Attempt:
        try:
            resolution = resolve_needs(needs, self.installed, home=self.home, archives=archives)
        except Unresolvable as error:
            return _Attempt(reason=error.reason, is_endless=isinstance(error, Endless))
        from_source = without_wheel(resolution.lines, self.installed) if resolution.installer == "uv" else set()
        return _Attempt(resolution, frozenset(from_source))

    def row(self, line: str, whole: _Attempt) -> Row:
        requirement = parse(line)
        has = self.installed.version(requirement.name) if requirement else None
        shown = without_hashes(line)
        if line not in self.wanted.requirements:
            return Row(shown, has, Verdict.NOT_NEEDED, "on this Python and system")
        if is_met(line, self.installed, self.needs, self.wanted):
            over_pinned = requirement is not None and not self.installed.satisfies(requirement)
            return Row(shown, has, Verdict.OK, f"{has} instead, as --prefer-runtime says" if over_pinned else "")
        if whole.resolution is not None:
            return Row(shown, has, *self._plan(line, has, whole))
        if whole.is_endless:  # each alone may take as long
            return Row(shown, has, Verdict.CONFLICT, whole.reason)
        options = tuple(one for one in self.needs.requirements if one.startswith("-"))
        alone = self.attempt(Needs(requirements=(line, *options), prefer_runtime=self.needs.prefer_runtime), ())
        if alone.resolution is None:
            verdict, detail = _trouble(alone.reason)
            return Row(shown, has, verdict, detail + (self._elsewhere(line) if verdict is Verdict.NO_BUILD else ""))
        if (name_of(line) or line) in whole.reason.lower().replace("_", "-"):
            return Row(shown, has, Verdict.CONFLICT, whole.reason)
        return Row(shown, has, *self._plan(line, has, alone))

    def archive_row(self, file: Path, whole: _Attempt) -> Row:
        if whole.resolution is not None:
            return Row(file.name, None, Verdict.INSTALL)
        return Row(file.name, None, *_trouble(whole.reason))

    def _plan(self, line: str, has: str | None, attempt: _Attempt) -> tuple[Verdict, str]:
        assert attempt.resolution is not None
        if attempt.resolution.installer == "pip":
            return Verdict.INSTALL, "by pip, because uv cannot read its metadata"
        pin = next((pin for pin in attempt.resolution.labels if name_of(pin) == name_of(line)), "")
        version = pin.partition("==")[2]
        if pin in attempt.from_source:
            minor = self.installed.runtime.minor
            return Verdict.BUILD, f"{version} from source: it has no wheel for Python {minor}.{self._elsewhere(pin)}"
        if has is not None and version:
            return Verdict.REPLACE, f"{has} by {version}, for this job alone"
        return Verdict.INSTALL, version

    def _elsewhere(self, line: str) -> str:
        """Which other Python of this machine has a wheel, the newest of them."""
        own = self.installed.runtime
        minors = dict.fromkeys(one.minor for one in list_runtimes(self.home) if one.minor != own.minor)
        fitting = next((minor for minor in minors if has_wheels([line], own, python=minor)), None)
        return f" `--python-version {fitting}` has one." if fitting else ""


def _trouble(reason: str) -> tuple[Verdict, str]:
    words = reason.lower()
    if "wheels" in words or "python>" in words or "python version" in words:
        return Verdict.NO_BUILD, reason
    if "not found" in words or "no version of" in words or "no versions of" in words:
        return Verdict.UNKNOWN, reason
    return Verdict.CONFLICT, reason


def _also(needs: Needs, resolution: Resolution | None) -> tuple[str, ...]:
    """What is installed without being asked for by name."""
    if resolution is None or resolution.installer != "uv":
        return ()
    named = {name_of(line) for line in needs.requirements}
    pairs = zip(resolution.lines, resolution.labels, strict=True)
    return tuple(label for line, label in pairs if "archive:" not in line and name_of(label) not in named)


def _broken(resolution: Resolution | None, installed: Installed) -> list[str]:
    """What in the runtime will not like the versions that come in front of its own."""
    pins = [label.partition("==") for label in (resolution.labels if resolution else ())]
    new = {name_of(name): version for name, equals, version in pins if equals}
    notes = []
    for one in installed:
        for needed in one.requires if one.name not in new else ():
            version = new.get(name_of(needed.name))
            if version and installed.applies(needed) and not needed.specifier.contains(version, prereleases=True):
                notes.append(
                    f"The runtime's {one.name} wants {needed.name}{needed.specifier}, and this job has {version}."
                )
    return notes


def _python_row(project: Project, runtime: Runtime, home: Home) -> Row | None:
    if project.python_requires is None:
        return None
    try:
        supported = SpecifierSet(project.python_requires)
    except InvalidSpecifier as error:
        raise UsageError(f"The package's python_requires, {project.python_requires!r}, is not a specifier.") from error
    shown = f"python {project.python_requires}"
    if supported.contains(runtime.version, prereleases=True):
        return Row(shown, runtime.version, Verdict.OK)
    others = [one for one in list_runtimes(home) if supported.contains(one.version, prereleases=True)]
    hint = f"--python-version {others[0].minor} would match" if others else "no such Python here"
    return Row(shown, runtime.version, Verdict.OTHER_PYTHON, hint)
