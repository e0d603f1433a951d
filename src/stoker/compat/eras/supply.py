"""What code of another time is given that it does not name: its platform's libraries, what goes with them, a Python.

The one place that decides it: submission gives it, and `stoker migrate` tells of it beforehand.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from stoker.compat.eras.bases import Base, base_of, base_of_runtime, is_ai_platforms
from stoker.compat.eras.images import (
    FOR_PYTHON_2,
    MISNAMED,
    OF_RUNTIME_1,
    OLD_PYTHON,
    WITH_TF,
    WITH_TF_1,
    as_in_image,
    at_least,
    compiled_pins,
    in_images,
    is_before_trainer,
    is_of_runtime_1,
    later_tf,
    loosened,
    numpy_before_tf,
    uses_of,
    went_with,
    without_bounds,
)
from stoker.compat.eras.refusals import refusal
from stoker.errors import NotFoundError, UsageError
from stoker.submission.reading import origin_of

if TYPE_CHECKING:
    from stoker.compat.eras.images import Uses
    from stoker.host.home import Home
    from stoker.packaging.environment.distributions import Installed
    from stoker.packaging.environment.runtimes import Runtime

_ON_NUMPY = frozenset("h5py matplotlib pandas pyarrow scikit-learn scipy xgboost".split())
_NEVER = 'python_version < "3"'  # as a marker: a line that is left out
_OF_STAND_IN = (3, 11)  # the first Python that our `determined` can be imported by


@dataclass(frozen=True, slots=True)
class Supply:
    """What a job gets on top of what it and its package say."""

    python: str | None = None
    libraries: tuple[str, ...] = ()  # imported, not declared, in the platforms' images: requirements
    beside: tuple[str, ...] = ()  # requirements that old releases work with
    lacking: tuple[str, ...] = ()  # libraries of the images that cannot be had
    notes: tuple[str, ...] = ()  # a line each, to say
    variables: Mapping[str, str] = field(default_factory=dict)
    refusal: str | None = None  # why the job cannot run, whatever it is given
    is_settled: bool = True  # the same next time, while nothing changes; not so where something could not be had

    @property
    def requirements(self) -> tuple[str, ...]:
        return (*self.libraries, *self.beside)


@dataclass(frozen=True)
class Program:
    """The code, as far as this is about it."""

    files: Mapping[str, bytes]  # modules
    requirements: tuple[str, ...]  # the package's and the job's own
    values: Mapping[str, Any]  # the job's
    image: Base = Base()  # AI Platform's, where its runtime is none of those here
    aside: tuple[str, ...] = ()  # of the requirements, those that AI Platform would not have read

    @property
    def environment(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.values.get("environment", {})
        return found

    @cached_property
    def base(self) -> Base:
        """The image that its Dockerfile starts from, if it has one; else AI Platform's."""
        own = origin_of(self.values).get("image")
        return base_of(own) if own else self.image

    @property
    def is_determineds(self) -> bool:
        return any(name.split(".")[0] == "determined" for name in self.uses.modules)

    @cached_property
    def uses(self) -> "Uses":
        found = uses_of(self.files, entries=list(entries_of(self.values)))
        runtime = self.environment.get("runtime") or self.base.runtime
        is_old = found.is_old or is_of_runtime_1(found, self.requirements, runtime)
        return replace(found, is_old=is_old)

    @property
    def in_images(self) -> dict[str, str]:
        """What it imports that its image had: of a Dockerfile's own the releases that it names."""
        found = in_images(self.uses)
        return found if self.uses.is_old else {**found, **{k: v for k, v in self.base.libraries.items() if k in found}}


def supply_for(program: Program, *, home: "Home", here: bool = True, look_up: bool = True) -> Supply:
    """Find out. Without `look_up` the package index is not asked; not `here`, the server's Pythons are not known."""
    found = _supply(program, home=home, here=here, look_up=look_up)
    if here and look_up:
        found = _with_later(program, found, home=home)
    if here and look_up and program.aside and is_ai_platforms(program.environment.get("runtime")):
        found = _without_aside(program, found, home=home)
    folders = sorted(program.uses.folders) if program.values.get("module") else []
    variables = {"PYTHONPATH": ":".join(folders)} if folders else {}
    if names := " ".join(sorted(program.uses.builtins_of_2)):
        variables["STOKER_BUILTINS"] = names
        found = replace(
            found, notes=(*found.notes, f"{names}: of Python 2; in the job that is what Python 3 has in its place.")
        )
    return replace(found, variables=variables) if variables else found


def _supply(program: Program, *, home: "Home", here: bool, look_up: bool) -> Supply:
    own = list(program.requirements)
    if program.environment.get("prefer_runtime"):  # its versions are what the user wants, whatever the package pins
        return Supply()
    if not here:
        return Supply(beside=tuple(went_with(own)))
    uses = program.uses
    asked = _asked(program.environment, home)
    if asked.origin != "added":
        program = replace(program, image=base_of_runtime(program.environment.get("runtime")))
    why_not = refusal(program.values, uses.modules, is_installed=lambda name: _is_there(name, asked, own))
    if why_not is None and uses.python_2 is not None:
        why_not = (
            f"{uses.python_2.rstrip('.')}. That is Python 2; stoker runs Python 3.7 and later. Convert it: `2to3 -w .`"
        )
    if why_not is not None:
        return Supply(refusal=why_not, is_settled=False)
    place = _with_numpy(program, _place(program, asked, is_old=uses.is_old, home=home, look_up=look_up))
    runtime = place.runtime
    python = runtime.minor if runtime.name != asked.name else None
    own, overrides, text = _replaced(own, place.overrides)
    if text:
        place = replace(place, notes=(*place.notes, text))
    missing = missing_in(runtime, program.in_images, own)
    names = ", ".join(missing)
    kept = as_in_image(uses, own) if runtime.minor == OLD_PYTHON else []
    kept += [line for line in _of_base(program) if line not in missing]
    if own or missing:
        kept += _of_runtime(runtime, program.in_images, own)
    if not missing:
        beside = (*overrides, *kept, *went_with([*own, *kept]))
        return Supply(python, (), beside, (), place.notes, is_settled=place.is_settled)
    beside = (*overrides, *kept, *went_with([*own, *kept, *missing]))
    if look_up and not _can_be_had([*own, *missing, *beside], program.environment, python, home=home):
        text = f"{names}: imported, not declared, and not to be had here. The job runs without it."
        beside = (*overrides, *went_with(own))
        return Supply(python, (), beside, tuple(missing), (*place.notes, text), is_settled=False)
    text = f"{names}: imported and not declared; the platforms' images had it. It is in the job's requirements."
    return Supply(python, tuple(missing), beside, (), (*place.notes, text), is_settled=place.is_settled)


def _with_later(program: Program, found: Supply, *, home: "Home") -> Supply:
    """Libraries of runtime 1's time as what came after them, where they do not go with what the package declares."""
    from stoker.packaging.package.requirements import name_of  # noqa: PLC0415 - as above

    given = found.libraries or found.lacking
    of_then = [line for module, line in OF_RUNTIME_1.items() if module != "tensorflow" or not program.uses.is_of_tf_1]
    later = tuple(name_of(line) or line if line in of_then else line for line in given)
    if later == given or not program.requirements or (not found.lacking and _goes(program, found, home=home)):
        return found
    gone = set(went_with([*program.requirements, *given])) - set(went_with([*program.requirements, *later]))
    beside = tuple(line for line in found.beside if line not in gone)
    names = [line for line in given if line not in later]
    text = (
        f"{', '.join(names)}: not with what the package requires; the job has later ones. {', '.join(later)}: imported"
    )
    text += " and not declared; in the job's requirements."
    second = replace(found, libraries=later, beside=beside, lacking=(), notes=(*found.notes[:-1], text))
    return second if _goes(program, second, home=home) else found


def _without_aside(program: Program, found: Supply, *, home: "Home") -> Supply:
    """As AI Platform had it, by setup.py alone, where that can be met and the whole cannot."""
    from stoker.packaging.package.requirements import OVERRIDE, name_of  # noqa: PLC0415 - as above

    if found.refusal or _goes(program, found, home=home):
        return found
    declared = tuple(line for line in program.requirements if line not in program.aside)
    alone = replace(program, requirements=declared, aside=())
    second = _supply(alone, home=home, here=True, look_up=True)
    if not _goes(alone, second, home=home):
        return found
    given = {name_of(line): line for line in second.requirements}
    names = dict.fromkeys(name_of(line) for line in program.aside if name_of(line) not in map(name_of, declared))
    overrides = [f"{OVERRIDE}{given[name]}" if name in given else f"{OVERRIDE}{name}; {_NEVER}" for name in names]
    text = "requirements.txt cannot be met here, and AI Platform never read it: the job goes by what setup.py declares."
    return replace(second, beside=(*second.beside, *overrides), notes=(text, *second.notes))


def _goes(program: Program, found: Supply, *, home: "Home") -> bool:
    """Whether uv can say what to install; what is left to pip of old may fail after minutes."""
    from stoker.packaging.environment.cache import resolve  # noqa: PLC0415 - as above

    lines = list(dict.fromkeys([*program.requirements, *found.requirements]))
    spec = {**program.environment, "requirements": lines}
    try:
        return resolve({**spec, "python": found.python} if found.python else spec, home=home).installer != "pip"
    except (NotFoundError, UsageError):
        return False


def entries_of(values: Mapping[str, Any]) -> Iterator[str]:
    """The files that a job starts with, as far as its words name them."""
    if module := values.get("module"):
        yield from _of_module(module)
    for word in " ".join(values.get("command") or ()).split():
        if word.endswith(".py"):
            yield word.removeprefix("./")
        else:
            yield from _of_module(word.split(":")[0])


def missing_in(runtime: "Runtime", wanted: Mapping[str, str], own: Sequence[str]) -> list[str]:
    """Those that neither the package declares nor the runtime has."""
    if not wanted:
        return []
    from stoker.packaging.environment.distributions import Installed  # noqa: PLC0415 - 40 ms, and rarely wanted
    from stoker.packaging.package.requirements import name_of, normal_name  # noqa: PLC0415

    installed = Installed(runtime)
    declared = {normal_name(name) for line in own if (name := name_of(line))}
    # A library under its other names, and what comes with it.
    if declared & {"tensorflow-cpu", "tensorflow-gpu", "tf-nightly"}:
        declared |= {"tensorflow"}
    if "attrdict" in declared:
        declared |= {"attrdict3"}
    if installed.get("xgboost-cpu") is not None:
        declared |= {"xgboost"}
    names = {normal_name(name_of(line) or line): line for line in wanted.values()}
    if {"tensorflow", "keras"} <= {*names, *declared} and "==" not in names.get("keras", ""):
        names.pop("keras", None)  # it comes with it; not so with TensorFlow 1
    if "tensorflow" in names or "tensorflow" in declared:
        names = {name: line for name, line in names.items() if name not in ("numpy", "six", "h5py", "absl-py")}
    return [line for name, line in names.items() if name not in declared and not _is_met(installed, name, line)]


def _of_runtime(runtime: "Runtime", wanted: Mapping[str, str], own: Sequence[str]) -> list[str]:
    """Libraries that the code takes from the runtime, to be resolved with the rest: they must go with its numpy.

    Not torch's, for which another one would be gigabytes.
    """
    from stoker.packaging.environment.distributions import Installed  # noqa: PLC0415 - as above
    from stoker.packaging.package.requirements import name_of  # noqa: PLC0415

    installed, declared = Installed(runtime), {name_of(line) for line in own}
    names = {name for line in wanted.values() if (name := name_of(line)) and name in _ON_NUMPY}
    return sorted(name for name in names - declared if installed.get(name) is not None)


def _is_met(installed: "Installed", name: str, line: str) -> bool:
    """By any release, but for setuptools, whose newer ones lack the very module."""
    return bool(installed.satisfies(Requirement(line))) if name == "setuptools" else installed.get(name) is not None


@dataclass(frozen=True, slots=True)
class _Place:
    runtime: "Runtime"
    notes: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()  # for pins that no Python here has a build of
    is_settled: bool = True


def _place(program: Program, asked: "Runtime", *, is_old: bool, home: "Home", look_up: bool) -> _Place:
    """The runtime that was asked for. Where that has no build of what is pinned: the nearest that has.

    A runtime that somebody added by name is what they want, whatever the package pins.
    """
    from stoker.packaging.environment.runtimes import list_runtimes  # noqa: PLC0415 - as above

    if asked.origin == "added":
        return _Place(asked)
    is_named = bool(program.environment.get("python"))
    pins = compiled_pins([*program.requirements, *_of_base(program)]) if look_up else []
    if is_old and not is_named:
        return _of_old(program, asked, pins, home)
    if pins and asked.interpreter.numbers >= _OF_STAND_IN and program.is_determineds:
        return _with_stand_in(program, asked, pins)
    if (of_image := _of_image(program, asked, home)) is not None and (not pins or _has(of_image.runtime, pins)):
        return of_image
    if not pins or _has(asked, pins):
        return _Place(asked)
    others = [one for one in list_runtimes(home) if one.minor != asked.minor]
    if is_named:
        others.sort(key=lambda one: abs(one.interpreter.numbers[1] - asked.interpreter.numbers[1]))
    for runtime in others:
        if _has(runtime, pins):
            text = f"{', '.join(pins)}: not built for Python {asked.minor}; the job runs on {runtime}."
            return _Place(runtime, (text,))
    oldest = min([asked, *others], key=lambda one: one.interpreter.numbers)
    return _loosely(asked if is_named else oldest, program.requirements, ())


def _with_stand_in(program: Program, asked: "Runtime", pins: list[str]) -> _Place:
    """For Determined's code: its `determined` here is for this Python, and its trials for a torch of today.

    Determined had what its images had, and read no requirements.txt: the pins there were for somebody's laptop.
    """
    lacking = [pin for pin in pins if is_before_trainer(pin) or not _has(asked, [pin])]
    if not lacking:
        return _Place(asked)
    instead = without_bounds(pins)
    text = f"{', '.join(lacking)}: not for {asked}, which Determined's code runs on; the job has {', '.join(instead)}."
    return _Place(asked, (text,), (*instead, *at_least(program.requirements)))


def _of_old(program: Program, asked: "Runtime", pins: list[str], home: "Home") -> _Place:
    """For code of TensorFlow 1 or of scikit-learn's time: the Python that they were built for, if it is here."""
    from stoker.packaging.environment.runtimes import list_runtimes  # noqa: PLC0415
    from stoker.packaging.package.requirements import name_of  # noqa: PLC0415 - as above

    runtime = next((one for one in list_runtimes(home) if one.minor == OLD_PYTHON), None)
    if runtime is None:
        return _Place(asked, is_settled=False)
    text = f"This code is for TensorFlow 1 or scikit-learn 0.20: the job runs on {runtime}."
    if program.uses.is_of_tf_1 and (later := later_tf(program.requirements)):
        instead = [
            OF_RUNTIME_1["tensorflow"],
            *at_least(program.requirements),
            *(f"{one}; {_NEVER}" for one in WITH_TF),
        ]
        because = f"{later}: the code calls what TensorFlow 1 alone has; the job has {OF_RUNTIME_1['tensorflow']}."
        return _Place(runtime, (text, because), tuple({name_of(line): line for line in instead}.values()))
    if not pins or _has(runtime, pins):
        return _Place(runtime, (text,))
    return _loosely(runtime, program.requirements, (text,))


def _with_numpy(program: Program, place: _Place) -> _Place:
    """For TensorFlow 1.15 beside a pin of numpy that went with an earlier one: the numpy that it takes."""
    has_tf = program.uses.is_old and OF_RUNTIME_1["tensorflow"] in program.in_images.values()
    pinned = numpy_before_tf(program.requirements) if has_tf and place.runtime.minor == OLD_PYTHON else None
    if pinned is None or any(line.startswith("numpy") for line in place.overrides):
        return place
    text = f"{pinned}: not with {OF_RUNTIME_1['tensorflow']}; the job has {WITH_TF_1}."
    return replace(place, notes=(*place.notes, text), overrides=(*place.overrides, WITH_TF_1))


def _of_base(program: Program) -> list[str]:
    """The releases in its image that the code gets from there: what it declares loosely was met, and kept."""
    from stoker.packaging.environment.resolver import parse  # noqa: PLC0415
    from stoker.packaging.package.requirements import normal_name  # noqa: PLC0415 - as above

    parsed = {normal_name(found.name): found for line in program.requirements if (found := parse(line)) is not None}
    wanted = program.in_images.values()
    return [line for line in program.base.libraries.values() if line in wanted and _is_loose(line, parsed)]


def _is_loose(line: str, declared: "Mapping[str, Requirement]") -> bool:
    """Whether the release of a line `name==1.2.*` is one that the declaration, if any, allows and does not name."""
    name, _, version = line.partition("==")
    if name == "tensorflow" and declared.keys() & {"tensorflow-cpu", "tf-nightly"}:
        return False
    found = declared.get(name) or declared.get(f"{name}-gpu")
    if found is None:
        return True
    newest = version.replace("*", "99")
    is_bound = any(clause.operator in ("==", "~=", "<", "<=") for clause in found.specifier)
    return not found.url and not is_bound and found.specifier.contains(newest)


def _of_image(program: Program, asked: "Runtime", home: "Home") -> _Place | None:
    """The Python that the Dockerfile's image is of, where nothing else names one and the default is another.

    Not for torch that is not bound to a release: the default runtime has one, and to install it again takes gigabytes.
    """
    from stoker.packaging.environment.runtimes import choose  # noqa: PLC0415
    from stoker.packaging.package.requirements import name_of  # noqa: PLC0415 - as above

    python = program.base.python
    if python is None or program.environment.get("python") or program.environment.get("runtime"):
        return None
    has_torch = "torch" in program.in_images or "torch" in map(name_of, program.requirements)
    if has_torch and not any(name_of(line) == "torch" for line in compiled_pins(program.requirements)):
        return None
    try:
        runtime = choose(home, python=python).runtime
    except UsageError:
        return None  # none here is near: what the code itself says decides
    text = f"Its image is of {program.base.image}: the job runs on {runtime}."
    return _Place(runtime, (text,)) if runtime.minor != asked.minor else None


def _loosely(runtime: "Runtime", own: Sequence[str], notes: tuple[str, ...]) -> _Place:
    """The runtime with the releases nearest to what is pinned and has no build for any Python here.

    Pins beside them become lower bounds: a `pip freeze` of then has what went with the releases that are gone.
    """
    pins = compiled_pins(own)
    lacking = [pin for pin in pins if not _has(runtime, [pin])]
    instead = [line for pin in lacking if (line := loosened(pin)) is not None]
    if not lacking or len(instead) < len(lacking) or not _has(runtime, instead):
        return _Place(runtime, notes, is_settled=False)
    text = f"{', '.join(lacking)}: not built for any Python here; the job runs on {runtime} with {', '.join(instead)}."
    return _Place(runtime, (*notes, text), (*instead, *at_least(own)))


def _replaced(own: Sequence[str], instead: Sequence[str]) -> tuple[list[str], tuple[str, ...], str]:
    """The requirements as they come to be, the lines that say so, and a note about those that are not as written."""
    from stoker.packaging.package.requirements import OVERRIDE, name_of  # noqa: PLC0415 - as above

    instead = [line for line in instead if not _is_needless(name_of(line) or "")]
    needless = [line for line in own if _is_needless(name_of(line) or "")]
    misnamed = {line: MISNAMED[line.strip()] for line in own if line.strip() in MISNAMED}
    gone = {name_of(line) for line in (*instead, *needless, *misnamed)}
    overrides = [f"{OVERRIDE}{line}" for line in instead]
    overrides += [f"{OVERRIDE}{name}; {_NEVER}" for name in map(name_of, (*needless, *misnamed))]
    notes = [f"{', '.join(needless)}: left out, for Python 3 has it."] if needless else []
    notes += [f"{name} is required by its other name: {right}." for name, right in misnamed.items()]
    known = {name_of(line) for line in own}
    added = [right for right in misnamed.values() if right not in known]
    kept = [*(line for line in own if name_of(line) not in gone), *instead, *added]
    return kept, (*overrides, *added), " ".join(notes)


def _is_needless(name: str) -> bool:
    """Whether Python 3 has it: a module of its own, a backport of one, or itself."""
    if name in FOR_PYTHON_2 or name in ("python", "pkg-resources"):  # the second is Ubuntu's pip freeze's mistake
        return True
    return name in sys.stdlib_module_names and name != "dataclasses"


def _is_there(name: str, runtime: "Runtime", own: Iterable[str]) -> bool:
    """Whether the runtime has the library of this module, or the package declares it and so must know."""
    from stoker.packaging.environment.distributions import Installed  # noqa: PLC0415 - as above
    from stoker.packaging.package.requirements import name_of, normal_name  # noqa: PLC0415

    library = name.split(".")[0]
    if library in ("determined", "tensorflow"):
        return False  # what is asked about is a part of it
    return library in {normal_name(name_of(line) or "") for line in own} or Installed(runtime).get(library) is not None


def _asked(environment: Mapping[str, Any], home: "Home") -> "Runtime":
    from stoker.packaging.environment.runtimes import choose  # noqa: PLC0415 - as above

    return choose(home, runtime=environment.get("runtime"), python=environment.get("python")).runtime


def _has(runtime: "Runtime", pins: Iterable[str]) -> bool:
    from stoker.packaging.environment.distributions import Installed  # noqa: PLC0415 - as above
    from stoker.packaging.environment.resolver import has_wheels, parse  # noqa: PLC0415

    installed = Installed(runtime)
    wanted = [line for line in pins if (found := parse(line)) is not None and not installed.satisfies(found)]
    applying = [line for line in wanted if (found := parse(line)) is not None and installed.applies(found)]
    return not applying or has_wheels(applying, runtime)


def _can_be_had(
    requirements: Iterable[str], environment: Mapping[str, Any], python: str | None, *, home: "Home"
) -> bool:
    from stoker.packaging.environment.cache import resolve  # noqa: PLC0415 - as above

    spec = {**environment, "requirements": list(dict.fromkeys(requirements))}
    try:
        resolve({**spec, "python": python} if python else spec, home=home)
    except (NotFoundError, UsageError):
        return False
    return True


def _of_module(module: str) -> list[str]:
    path = module.replace(".", "/")
    return [f"{path}.py", f"{path}/__main__.py", f"{path}/__init__.py"]
