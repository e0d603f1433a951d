"""What legacy code is given that it does not name: a Python and a date of its time, and its platform's libraries.

The one place that decides it: submission gives it, and `stoker migrate` tells of it beforehand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from stoker.compat.eras.candidates import Candidate, Candidates
from stoker.compat.eras.era import Era, Index, era_of, python_at
from stoker.compat.eras.program import Program
from stoker.compat.eras.refusals import refusal
from stoker.errors import NotFoundError, UsageError
from stoker.host.home import Home
from stoker.packaging.environment.cache import resolve
from stoker.packaging.environment.dates import COMPILED, is_date, release_dates
from stoker.packaging.environment.distributions import Installed
from stoker.packaging.environment.resolver import has_wheels
from stoker.packaging.environment.runtimes import Runtime, choose, default_runtime
from stoker.packaging.package.requirements import name_of

__all__ = ["Program", "Supply", "supply_for"]


@dataclass(frozen=True, slots=True)
class Supply:
    """What a job gets on top of what it and its package say."""

    python: str | None = None
    as_of: str | None = None
    libraries: tuple[str, ...] = ()  # imported, not declared, in the platforms' images: requirements
    beside: tuple[str, ...] = ()  # lines that stand for some of the package's own
    lacking: tuple[str, ...] = ()  # libraries of the images that are not available
    notes: tuple[str, ...] = ()  # a line each, to say
    variables: Mapping[str, str] = field(default_factory=dict)
    refusal: str | None = None  # why the job cannot run, whatever it is given
    is_settled: bool = True  # the same next time, while nothing changes

    @property
    def requirements(self) -> tuple[str, ...]:
        return (*self.libraries, *self.beside)


def supply_for(
    program: Program, *, home: Home, here: bool = True, look_up: bool = True, index: Index | None = None
) -> Supply:
    """Find out. Without `look_up` the package index is not asked; not `here`, the server's Pythons are not known."""
    environment = program.environment
    as_of = environment.get("as_of")
    if environment.get("prefer_runtime"):  # its versions are what the user wants, whatever the package pins
        return _with_variables(program, Supply())
    if not here:
        return _with_variables(program, Supply(as_of=as_of if is_date(as_of) else None))
    asked = choose(home, runtime=environment.get("runtime"), python=environment.get("python")).runtime
    why_not = _refusal(program, asked)
    if why_not is not None:
        return Supply(refusal=why_not, is_settled=False)
    if as_of == "today":
        return _with_variables(program, Supply())
    candidates = Candidates(program, asked, home)
    return _with_variables(program, _supply(candidates, (index or UvIndex(home)) if look_up else None))


@dataclass(frozen=True, slots=True)
class UvIndex:
    """The package index, asked through uv."""

    home: Home

    def release_dates(self, lines: Sequence[str]) -> dict[str, str]:
        return release_dates(lines, default_runtime())

    def resolves(self, runtime: Runtime, lines: Sequence[str], as_of: str | None) -> bool:
        # What has to be built from source counts as not there: it takes minutes, and mostly fails.
        wheels = [f"--only-binary {name}" for name in COMPILED] if as_of is None else []
        named = {"runtime": runtime.name} if runtime.origin == "added" else {"python": runtime.minor}
        try:
            resolve({"requirements": [*wheels, *dict.fromkeys(lines)], "as_of": as_of, **named}, home=self.home)
        except (NotFoundError, UsageError):
            return False
        return True

    def has_wheel(self, line: str, runtime: Runtime) -> bool:
        return has_wheels([line], runtime)


def _supply(candidates: Candidates, index: Index | None) -> Supply:
    program, base, asked = candidates.program, candidates.base, candidates.asked
    era = era_of(program.environment.get("as_of"), program.image, program.own.lines, index)
    implied = candidates.implied(base, era.date)
    if not program.own.lines and not implied:
        return _taken(Candidate(base, None, (), ()), asked, program)
    if index is None:
        return _unchecked(candidates, era, implied)
    for candidate in candidates.all(era, index):
        lines = [*program.requirements, *candidate.libraries, *candidate.beside]
        if index.resolves(candidate.runtime, lines, candidate.as_of):
            return _taken(candidate, asked, program)
    return Supply(as_of=era.date if era.is_explicit else None, is_settled=False)


def _unchecked(candidates: Candidates, era: Era, implied: tuple[str, ...]) -> Supply:
    """Without the index: the Python of the date, if there is a date and nothing else names one."""
    own, base = candidates.own, candidates.base
    python = base.minor if base is not candidates.asked else None
    if era.date and not candidates.is_named:
        python = python_at(era.date)
    return Supply(python, era.date, implied, own.added, notes=own.notes)


def _taken(found: Candidate, asked: Runtime, program: Program) -> Supply:
    python = found.runtime.minor if found.runtime.name != asked.name else None
    notes = []
    if found.as_of:
        notes.append(f"Libraries as of {found.as_of} ({found.why}); the job runs on {found.runtime}.")
    elif found.why or python:
        notes.append(f"{found.why or f'Its image is {program.image.name}'}; the job runs on {found.runtime}.")
    if found.libraries:
        names = ", ".join(found.libraries)
        notes.append(f"Added {names}: imported and not declared; the platform's images had it.")
    if found.lacking:
        notes.append(f"{', '.join(found.lacking)}: imported, not declared and not available here.")
    notes += program.own.notes
    given = (found.libraries, found.beside, found.lacking, tuple(notes))
    return Supply(python, found.as_of, *given, is_settled=not found.lacking)


def _with_variables(program: Program, found: Supply) -> Supply:
    """The folders and built-in names that Python 2 would have found."""
    folders = sorted(program.uses.folders) if program.values.get("module") else []
    variables = {"PYTHONPATH": ":".join(folders)} if folders else {}
    names = " ".join(sorted(program.uses.builtins_of_2))
    if not names:
        return replace(found, variables=variables)
    text = f"The code calls {names}, of Python 2: in the job these are their equivalents of Python 3."
    return replace(found, variables={**variables, "STOKER_BUILTINS": names}, notes=(*found.notes, text))


def _refusal(program: Program, asked: Runtime) -> str | None:
    declared = {name_of(line) for line in program.requirements}

    def is_installed(module: str) -> bool:
        """Whether the runtime has its library, or the package declares it and so must know."""
        library = module.split(".")[0]
        if library in ("determined", "tensorflow"):
            return False  # what is asked about is a part of it
        return library in declared or Installed(asked).get(library) is not None

    why_not = refusal(program.values, program.uses.modules, is_installed=is_installed)
    if why_not is None and program.uses.python_2 is not None:
        where = program.uses.python_2.rstrip(".")
        return f"{where}. That is Python 2; stoker runs Python 3.7 and later. Convert it: `2to3 -w .`"
    return why_not
