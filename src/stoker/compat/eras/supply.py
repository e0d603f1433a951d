"""What legacy code is given that it does not name: a Python and a date of its time, and its platform's libraries.

The one place that decides it: submission gives it, and `stoker migrate` tells of it beforehand.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from stoker.compat.eras import pins
from stoker.compat.eras.era import Era, Index, era_by_hints, era_of, places, python_at
from stoker.compat.eras.images import RUNTIME_1, Image, image_of, image_of_runtime, shipped
from stoker.compat.eras.refusals import refusal
from stoker.compat.eras.uses import Uses, entries_of, uses_of
from stoker.errors import UsageError
from stoker.packaging.dates import COMPILED, is_date
from stoker.packaging.requirements import OVERRIDE, name_of, normal_name

if TYPE_CHECKING:
    from stoker.host.home import Home
    from stoker.packaging.runtimes import Runtime

_OF_STAND_IN = (3, 11)  # the first Python that our `determined` can be imported by
_KERAS_3 = "2023-11-27"  # until then Keras ran on TensorFlow, and did not declare it
_TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly")
_OF_TORCH = ("torch", "torchvision")


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


@dataclass(frozen=True)
class Program:
    """The code, as far as this is about it."""

    files: Mapping[str, bytes]  # modules
    requirements: tuple[str, ...]  # the package's and the job's own
    values: Mapping[str, Any]  # the job's
    root: Path | None = None  # the directory, for its history

    @property
    def environment(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.values.get("environment", {})
        return found

    @cached_property
    def uses(self) -> Uses:
        return uses_of(self.files, entries=list(entries_of(self.values)))

    @property
    def is_determineds(self) -> bool:
        return any(name.split(".")[0] == "determined" for name in self.uses.modules)

    @cached_property
    def image(self) -> Image:
        """Its Dockerfile's, or AI Platform's; with the libraries that the code imports and the package allows."""
        own = self.values.get("data", {}).get("stoker", {}).get("base")
        found = image_of(own) if own else image_of_runtime(self.environment.get("runtime"))
        if self.uses.is_of_runtime_1 and not found.libraries:
            found = replace(RUNTIME_1, name="code for TensorFlow 1 or scikit-learn 0.20")
        libraries = {module: line for module, line in found.libraries.items() if self._takes(module, line)}
        is_used = bool(libraries) or self.uses.is_of_runtime_1
        return replace(found, libraries=libraries, date=found.date if is_used else None)

    def _takes(self, module: str, line: str) -> bool:
        if module not in shipped(self.uses.modules):
            return False
        names = _TENSORFLOWS if module == "tensorflow" else (name_of(line),)
        declared = [own for own in pins.mended(self.requirements).lines if name_of(own) in names]
        return all(name_of(own) == name_of(line) and pins.allows(own, line) for own in declared)


def supply_for(
    program: Program, *, home: "Home", here: bool = True, look_up: bool = True, index: Index | None = None
) -> Supply:
    """Find out. Without `look_up` the package index is not asked; not `here`, the server's Pythons are not known."""
    as_of = program.environment.get("as_of")
    if program.environment.get("prefer_runtime"):  # its versions are what the user wants, whatever the package pins
        found = Supply()
    elif not here:
        found = Supply(as_of=as_of if is_date(as_of) else None)
    else:
        asked = _asked(program, home)
        why_not = _refusal(program, asked)
        if why_not is not None:
            return Supply(refusal=why_not, is_settled=False)
        search = _Search(program, asked, home, (index or _UvIndex(program, home)) if look_up else None)
        found = Supply() if as_of == "today" else search.supply()
    return _with_variables(program, found)


def _with_variables(program: Program, found: Supply) -> Supply:
    """The folders and built-in names that Python 2 would have found."""
    folders = sorted(program.uses.folders) if program.values.get("module") else []
    variables = {"PYTHONPATH": ":".join(folders)} if folders else {}
    names = " ".join(sorted(program.uses.builtins_of_2))
    if not names:
        return replace(found, variables=variables)
    text = f"The code calls {names}, of Python 2: in the job these are their equivalents of Python 3."
    return replace(found, variables={**variables, "STOKER_BUILTINS": names}, notes=(*found.notes, text))


@dataclass(frozen=True, slots=True)
class _Candidate:
    runtime: "Runtime"
    as_of: str | None
    libraries: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    why: str = ""
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Search:
    """Candidates in a fixed order, of which the first that resolves is taken."""

    program: Program
    asked: "Runtime"
    home: "Home"
    index: Index | None
    has_exact_image: bool = True  # the image's releases, and not earlier ones

    @cached_property
    def own(self) -> pins.Mended:
        return pins.mended(self.program.requirements)

    def supply(self) -> Supply:
        era = era_of(self.program.environment.get("as_of"), self.program.image, self.own.lines, self.index)
        implied = self._implied(self.asked, era.date)
        base = self._start()
        python = base.minor if base.name != self.asked.name else None
        if not self.own.lines and not implied:
            text = f"Its image is {self.program.image.name}; the job runs on {base}."
            return Supply(python, notes=(text,)) if python else Supply()
        if self.index is None:
            return self._unchecked(era, implied, python)
        for candidate in self._candidates(base, era, self.index):
            lines = [*self.program.requirements, *candidate.libraries, *candidate.beside]
            if self.index.resolves(candidate.runtime, lines, candidate.as_of):
                return self._taken(candidate)
        return Supply(as_of=era.date if era.is_explicit else None, is_settled=False)

    def _start(self) -> "Runtime":
        """The Python that was asked for, or else that of the job's image, if it names one."""
        from stoker.packaging.runtimes import choose  # noqa: PLC0415 - reads the machine's Pythons

        python = self.program.image.python
        if self._is_named or self._keeps_torch or python is None:
            return self.asked
        try:
            found = choose(self.home, python=python).runtime
        except UsageError:
            return self.asked
        return found if found.minor != self.asked.minor else self.asked

    @property
    def _is_named(self) -> bool:
        return bool(self.program.environment.get("python")) or self.asked.origin == "added"

    @property
    def _keeps_torch(self) -> bool:
        """Whether it uses a torch that it does not pin: the runtime has one, and another would be gigabytes."""
        is_used = "torch" in shipped(self.program.uses.modules) or "torch" in map(name_of, self.own.lines)
        return is_used and "torch" not in map(name_of, pins.bounded(self.own.lines))

    def _candidates(self, base: "Runtime", era: Era, index: Index) -> Iterator[_Candidate]:
        """1. As declared. 2. As of the era's date. 3. With pins as lower bounds. 4. Without undeclared libraries."""
        if self.program.is_determineds and base.interpreter.numbers >= _OF_STAND_IN:
            yield from self._with_stand_in(base, era)
            return
        if era.date is None:
            yield self._candidate(base, Era(), None)
            era = era_by_hints(self.own.lines, self.program.root, index)
        is_first = self._is_named or self._keeps_torch or base.name != self.asked.name
        runtimes = [base, *self._others(base)]
        tries = list(places(runtimes, era, is_first=is_first)) if era.date else []
        yield from (self._candidate(runtime, era, date) for runtime, date in tries)
        if self.program.image.libraries:  # which other pins may rule out
            earlier = replace(self, has_exact_image=False)
            yield from (earlier._candidate(runtime, era, date) for runtime, date in tries)
        if not index.release_dates(sorted({name_of(line) or line for line in self._any_lines(era)})):
            why = "the package index serves no upload dates, so the newest releases that fit are taken"
            yield from (self._candidate(runtime, Era(None, why), None) for runtime in runtimes)
        gone = self._without_wheel(runtimes, index) if tries and not era.is_explicit else []
        if gone:
            loose = tuple(f"{OVERRIDE}{line}" for line in pins.at_least(self.own.lines))
            why = f"no Python here has a wheel of {', '.join(gone)}, so pins are lower bounds"
            for runtime, date in tries:
                candidate = self._candidate(runtime, replace(era, reason=why), date)
                yield replace(candidate, beside=(*loose, *self.own.added))
        yield self._without_libraries(base)

    def _any_lines(self, era: Era) -> tuple[str, ...]:
        return (*self.own.lines, *self._implied(self.asked, era.date))

    def _with_stand_in(self, base: "Runtime", era: Era) -> Iterator[_Candidate]:
        """For Determined's code: our `determined` is for this Python, and its trials for the torch of today.

        Determined had what its images had and read no requirements.txt: the pins there were for someone's laptop.
        """
        torch = [line for line in pins.bounded(self.own.lines) if name_of(line) in _OF_TORCH]
        if not torch:
            yield self._candidate(base, era, era.date)
            yield self._candidate(base, Era(), None)
        loose = tuple(f"{OVERRIDE}{line}" for line in [*pins.at_least(self.own.lines), *map(_any_release, torch)])
        why = f"Determined's code runs on {base}, with pins as lower bounds"
        yield replace(self._candidate(base, Era(None, why), None), beside=(*_last(loose), *self.own.added))
        yield self._without_libraries(base)

    def _without_libraries(self, base: "Runtime") -> _Candidate:
        return _Candidate(base, None, beside=self.own.added, lacking=self._implied(base, None))

    def _candidate(self, runtime: "Runtime", era: Era, date: str | None) -> _Candidate:
        moved = f"; moved from {era.date}, before wheels for Python {runtime.minor}" if date != era.date else ""
        why = f"{era.reason}{moved}"
        return _Candidate(runtime, date, self._implied(runtime, date), self.own.added, why)

    def _implied(self, runtime: "Runtime", date: str | None) -> tuple[str, ...]:
        """Libraries that the code imports and the package does not declare: as the image had them, or at the date."""
        from stoker.packaging.installed import Installed  # noqa: PLC0415 - 40 ms, and rarely wanted

        wanted = shipped(self.program.uses.modules)
        if "keras" in wanted and date is not None and date < _KERAS_3:
            wanted.setdefault("tensorflow", "tensorflow")
        if not wanted:
            return ()
        declared = {name_of(line) for line in self.own.lines}
        if declared & {*_TENSORFLOWS}:
            declared.add("tensorflow")
        installed = Installed(runtime)
        if date is not None:
            installed = installed.only("torch")
        of_image = self.program.image.libraries
        if not self.has_exact_image:
            of_image = {module: pins.at_most(line) for module, line in of_image.items()}
        lines = {module: line for module, line in wanted.items() if normal_name(name_of(line) or line) not in declared}
        missing = {module: line for module, line in lines.items() if not _has(installed, line)}
        return tuple({**missing, **of_image}.values())

    def _others(self, base: "Runtime") -> list["Runtime"]:
        """None beside a runtime that someone added by name: it is what they want."""
        from stoker.packaging.runtimes import list_runtimes  # noqa: PLC0415 - as above

        if self.asked.origin == "added":
            return []
        return [one for one in list_runtimes(self.home) if one.minor != base.minor and one.origin != "added"]

    def _without_wheel(self, runtimes: Sequence["Runtime"], index: Index) -> list[str]:
        lines = pins.compiled(pins.exact(self.own.lines))
        return [line for line in lines if not any(index.has_wheel(line, runtime) for runtime in runtimes)]

    def _unchecked(self, era: Era, implied: tuple[str, ...], python: str | None) -> Supply:
        """Without the index: the Python of the date, if there is a date."""
        if era.date is None:
            return Supply(python, None, implied, self.own.added, notes=self.own.notes)
        is_named = self.program.environment.get("python") or self.asked.origin == "added"
        return Supply(None if is_named else python_at(era.date), era.date, implied, self.own.added)

    def _taken(self, found: _Candidate) -> Supply:
        python = found.runtime.minor if found.runtime.name != self.asked.name else None
        notes = []
        if found.as_of:
            notes.append(f"Libraries as of {found.as_of} ({found.why}); the job runs on {found.runtime}.")
        elif found.why or python:
            because = f"{found.why[:1].upper()}{found.why[1:]}" if found.why else f"Its image is {self._image_name}"
            notes.append(f"{because}; the job runs on {found.runtime}.")
        if found.libraries:
            notes.append(
                f"Added {', '.join(found.libraries)}: imported and not declared; the platform's images had it."
            )
        if found.lacking:
            notes.append(f"{', '.join(found.lacking)}: imported, not declared and not available here.")
        notes += self.own.notes
        given = (found.libraries, found.beside, found.lacking, tuple(notes))
        return Supply(python, found.as_of, *given, is_settled=not found.lacking)

    @property
    def _image_name(self) -> str:
        return self.program.image.name


@dataclass(frozen=True, slots=True)
class _UvIndex:
    """The real one."""

    program: Program
    home: "Home"

    def release_dates(self, lines: Sequence[str]) -> dict[str, str]:
        from stoker.packaging.dates import release_dates  # noqa: PLC0415 - as above
        from stoker.packaging.runtimes import default_runtime  # noqa: PLC0415

        return release_dates(lines, default_runtime())

    def resolves(self, runtime: "Runtime", lines: Sequence[str], as_of: str | None) -> bool:
        from stoker.packaging.environment import resolve  # noqa: PLC0415 - as above

        # What has to be built from source counts as not there: it takes minutes, and mostly fails.
        wheels = [f"--only-binary {name}" for name in COMPILED] if as_of is None else []
        spec = {"requirements": [*wheels, *dict.fromkeys(lines)], "as_of": as_of}
        named = {"runtime": runtime.name} if runtime.origin == "added" else {"python": runtime.minor}
        try:
            resolve({**spec, **named}, home=self.home)
        except UsageError:
            return False
        return True

    def has_wheel(self, line: str, runtime: "Runtime") -> bool:
        from stoker.packaging.resolver import has_wheels  # noqa: PLC0415 - as above

        return has_wheels([line], runtime)


def _refusal(program: Program, asked: "Runtime") -> str | None:
    own = program.requirements
    why_not = refusal(program.values, program.uses.modules, is_installed=lambda name: _is_there(name, asked, own))
    if why_not is None and program.uses.python_2 is not None:
        where = program.uses.python_2.rstrip(".")
        return f"{where}. That is Python 2; stoker runs Python 3.7 and later. Convert it: `2to3 -w .`"
    return why_not


def _is_there(name: str, runtime: "Runtime", own: Iterable[str]) -> bool:
    """Whether the runtime has the library of this module, or the package declares it and so must know."""
    from stoker.packaging.installed import Installed  # noqa: PLC0415 - as above

    library = name.split(".")[0]
    if library in ("determined", "tensorflow"):
        return False  # what is asked about is a part of it
    return library in {normal_name(name_of(line) or "") for line in own} or Installed(runtime).get(library) is not None


def _asked(program: Program, home: "Home") -> "Runtime":
    from stoker.packaging.runtimes import choose  # noqa: PLC0415 - as above

    return choose(home, runtime=program.environment.get("runtime"), python=program.environment.get("python")).runtime


def _has(installed: Any, line: str) -> bool:
    """In any release, but for setuptools, whose newer ones lack the very module."""
    if name_of(line) == "setuptools":
        return bool(installed.satisfies(Requirement(line)))
    return installed.get(name_of(line)) is not None or (line == "xgboost" and installed.get("xgboost-cpu") is not None)


def _any_release(line: str) -> str:
    return name_of(line) or line


def _last(lines: Iterable[str]) -> tuple[str, ...]:
    """One line for each library, the first of them."""
    found: dict[str | None, str] = {}
    for line in lines:
        found.setdefault(name_of(line.removeprefix(OVERRIDE)), line)
    return tuple(found.values())
