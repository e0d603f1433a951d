"""The environments that legacy code may run in, in a fixed order: the first that resolves is taken.

docs/environments.md has the order and its reasons.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from packaging.requirements import Requirement

from stoker.compat.eras import pins
from stoker.compat.eras.era import Era, Index, era_by_hints, places
from stoker.compat.eras.images import shipped
from stoker.compat.eras.program import TENSORFLOWS, Program
from stoker.errors import NotFoundError, UsageError
from stoker.host.home import Home
from stoker.packaging.environment.distributions import Installed
from stoker.packaging.environment.runtimes import Runtime, choose, list_runtimes
from stoker.packaging.package.requirements import OVERRIDE, name_of

_OF_STAND_IN = (3, 11)  # the first Python that our `determined` can be imported by
_KERAS_3 = "2023-11-27"  # until then Keras ran on TensorFlow, and did not declare it
_UNDATED = Era(None, "The package index serves no upload dates, so the newest releases that fit are taken")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A Python, a date, and the lines that the job gets on top of its own."""

    runtime: Runtime
    as_of: str | None
    libraries: tuple[str, ...]
    beside: tuple[str, ...]
    why: str = ""
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidates:
    """Of one program, with the Python that the job asks for."""

    program: Program
    asked: Runtime
    home: Home
    has_exact_image: bool = True  # the releases of its image, and not earlier ones

    @cached_property
    def own(self) -> pins.Mended:
        return self.program.own

    @cached_property
    def base(self) -> Runtime:
        """The Python that was asked for, or else that of the job's image, if it names one."""
        python = self.program.image.python
        if self.is_named or self._keeps_torch or python is None:
            return self.asked
        try:
            found = choose(self.home, python=python).runtime
        except (NotFoundError, UsageError):
            return self.asked
        return found if found.minor != self.asked.minor else self.asked

    @property
    def is_named(self) -> bool:
        """Whether the job names its Python."""
        return bool(self.program.environment.get("python")) or self.asked.origin == "added"

    def all(self, era: Era, index: Index) -> Iterator[Candidate]:
        if self.program.is_determineds and self.base.interpreter.numbers >= _OF_STAND_IN:
            yield from self._with_stand_in(era)
            return
        if era.date is None:
            yield self._at(self.base, Era(), None)
            era = era_by_hints(self.own.lines, self.program.root, index)
        runtimes = [self.base, *self._others()]
        is_first = self.is_named or self._keeps_torch or self.base is not self.asked
        tries = list(places(runtimes, era, is_first=is_first)) if era.date else []
        yield from (self._at(runtime, era, date) for runtime, date in tries)
        if self.program.image.libraries:  # which the package's pins may rule out
            earlier = replace(self, has_exact_image=False)
            yield from (earlier._at(runtime, era, date) for runtime, date in tries)
        lines = (*self.own.lines, *self.implied(self.base, era.date))
        if not index.release_dates(sorted({name_of(line) or line for line in lines})):
            yield from (self._at(runtime, _UNDATED, None) for runtime in runtimes)
        if tries and not era.is_explicit:
            yield from self._loosely(tries, era, runtimes, index)
        yield self._without_libraries()

    def implied(self, runtime: Runtime, date: str | None) -> tuple[str, ...]:
        """Libraries that the code imports and the package does not declare; at a date also those of the runtime.

        Those have to go with the numpy of the date. Not torch, for which another one would be gigabytes.
        """
        wanted = shipped(self.program.uses.modules)
        if "keras" in wanted and date is not None and date < _KERAS_3:
            wanted.setdefault("tensorflow", "tensorflow")
        if not wanted:
            return ()
        declared = {name_of(line) for line in self.own.lines}
        if declared & {*TENSORFLOWS}:
            declared.add("tensorflow")
        installed = Installed(runtime) if date is None else Installed(runtime).only("torch")
        of_image = self.program.image.libraries
        if not self.has_exact_image:
            of_image = {module: pins.at_most(line) for module, line in of_image.items()}
        missing = {
            module: line
            for module, line in wanted.items()
            if name_of(line) not in declared and not _has(installed, line)
        }
        return tuple({**missing, **of_image}.values())

    @property
    def _keeps_torch(self) -> bool:
        """Whether it uses a torch that it does not pin, which the runtime has."""
        is_used = "torch" in shipped(self.program.uses.modules) or "torch" in map(name_of, self.own.lines)
        return is_used and "torch" not in map(name_of, pins.bounded(self.own.lines))

    def _others(self) -> list[Runtime]:
        """None, where the job names a runtime that someone added: it is what they want."""
        if self.asked.origin == "added":
            return []
        return [one for one in list_runtimes(self.home) if one.minor != self.base.minor and one.origin != "added"]

    def _at(self, runtime: Runtime, era: Era, date: str | None) -> Candidate:
        moved = f"; moved from {era.date}, before wheels for Python {runtime.minor}" if date != era.date else ""
        return Candidate(runtime, date, self.implied(runtime, date), self.own.added, f"{era.reason}{moved}")

    def _loosely(
        self, tries: Sequence[tuple[Runtime, str]], era: Era, runtimes: Sequence[Runtime], index: Index
    ) -> Iterator[Candidate]:
        exact = pins.compiled(pins.exact(self.own.lines))
        gone = [line for line in exact if not any(index.has_wheel(line, runtime) for runtime in runtimes)]
        why = f"no Python here has a wheel of {', '.join(gone)}, so pins are lower bounds"
        loose = tuple(f"{OVERRIDE}{line}" for line in pins.at_least(self.own.lines))
        for runtime, date in tries if gone else ():
            candidate = self._at(runtime, replace(era, reason=why), date)
            yield replace(candidate, beside=(*loose, *self.own.added))

    def _with_stand_in(self, era: Era) -> Iterator[Candidate]:
        """For Determined's code: our `determined` is for this Python, and its trials for the torch of today.

        Determined had what its images had and read no requirements.txt: the pins there were for someone's laptop.
        """
        torch = [name for line in pins.bounded(self.own.lines) if (name := name_of(line)) in ("torch", "torchvision")]
        if not torch:
            yield self._at(self.base, era, era.date)
            yield self._at(self.base, Era(), None)
        loose = {name_of(line): f"{OVERRIDE}{line}" for line in (*torch, *pins.at_least(self.own.lines))}
        why = Era(None, "Pins are lower bounds for code that imports determined")
        yield replace(self._at(self.base, why, None), beside=(*loose.values(), *self.own.added))
        yield self._without_libraries()

    def _without_libraries(self) -> Candidate:
        return Candidate(self.base, None, (), self.own.added, lacking=self.implied(self.base, None))


def _has(installed: Installed, line: str) -> bool:
    """In any release, but for setuptools, whose newer ones lack the very module."""
    requirement = Requirement(line)
    if requirement.name == "setuptools":
        return installed.satisfies(requirement)
    return installed.get(requirement.name) is not None or (
        requirement.name == "xgboost" and installed.get("xgboost-cpu") is not None
    )
