"""Give code of another time what it had: its platform's undeclared libraries, releases that go together, a Python.

AI Platform's and Determined's images had much in them that no package declared, and were built for the Python of their
time. All of it is found out before anything is stored, and said in a line each.
"""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stoker.cli.output import say
from stoker.errors import UsageError
from stoker.schema.dialects.reading import Values, overlay

if TYPE_CHECKING:
    from stoker.cli.shipment import Code
    from stoker.home import Home
    from stoker.packaging.runtimes import Runtime


def with_old_times(values: Values, code: "Code", *, home: "Home") -> Values:
    """The job with the requirements and the Python that its code needs and does not name."""
    environment = values.get("environment", {})
    if environment.get("prefer_runtime"):  # its versions are what the user wants, whatever the package pins
        return values
    own = [*code.project.requirements, *environment.get("requirements", ())]
    from stoker.compat.images import in_images, uses_of, went_with

    uses = uses_of(_sources(code), entries=list(_entries(values)))
    wanted = in_images(uses)
    if os.environ.get("STOKER_SERVER"):  # its Pythons are its own, and not known here
        return _adding(values, went_with(own))
    runtime = _runtime(environment, own, is_old=uses.is_old, home=home)
    if runtime.name != _asked(environment, home).name:
        values = overlay(values, {"environment": {"python": runtime.minor}})
    plain = _adding(values, went_with(own))
    missing = _missing(wanted, own, runtime)
    if not missing:
        return plain
    whole = _adding(values, [*missing, *went_with([*own, *missing])])
    names = ", ".join(missing)
    if _can_be_had(whole, code, home=home):
        say(f"{names}: imported and not declared; the platforms' images had it. It is in the job's requirements.")
        return whole
    say(f"{names}: imported, not declared, and not to be had here. The job runs without it.")
    return plain


def _can_be_had(values: Values, code: "Code", *, home: "Home") -> bool:
    from stoker.packaging.environment import resolve

    environment = values["environment"]
    lines = [*code.project.requirements, *environment["requirements"]]
    try:
        resolve({**environment, "requirements": list(dict.fromkeys(lines))}, home=home)
    except UsageError:
        return False
    return True


def _adding(values: Values, requirements: Sequence[str]) -> Values:
    if not requirements:
        return values
    own = list(values.get("environment", {}).get("requirements", ()))
    return overlay(values, {"environment": {"requirements": [*own, *requirements]}})


def _asked(environment: Values, home: "Home") -> "Runtime":
    from stoker.packaging.runtimes import choose

    return choose(home, runtime=environment.get("runtime"), python=environment.get("python")).runtime


def _runtime(environment: Values, own: list[str], *, is_old: bool, home: "Home") -> "Runtime":
    """The one that was asked for. Where no Python was, and this one has no build of what is pinned: one that has."""
    from stoker.compat.images import OLD_PYTHON, compiled_pins
    from stoker.packaging.runtimes import list_runtimes

    asked = _asked(environment, home)
    if environment.get("python") or asked.origin != "default":
        return asked
    if is_old:
        for runtime in list_runtimes(home):
            if runtime.minor == OLD_PYTHON:
                say(f"This code is for TensorFlow 1 or scikit-learn 0.20: the job runs on {runtime}.")
                return runtime
        return asked
    pins = compiled_pins(own)
    if not pins or _has(asked, pins):
        return asked
    for runtime in list_runtimes(home):
        if runtime.origin != "default" and _has(runtime, pins):
            say(f"{', '.join(pins)}: not built for Python {asked.minor}; the job runs on {runtime}.")
            return runtime
    return asked


def _has(runtime: "Runtime", pins: list[str]) -> bool:
    from stoker.packaging.installed import Installed
    from stoker.packaging.resolver import has_wheels, parse

    installed = Installed(runtime)
    wanted = [line for line in pins if (found := parse(line)) is not None and not installed.satisfies(found)]
    applying = [line for line in wanted if (found := parse(line)) is not None and installed.applies(found)]
    return not applying or has_wheels(applying, runtime)


def _missing(wanted: dict[str, str], own: list[str], runtime: "Runtime") -> list[str]:
    """Those that neither the package declares nor the runtime has."""
    if not wanted:
        return []
    from stoker.packaging.installed import Installed
    from stoker.packaging.requirements import name_of, normal_name

    installed = Installed(runtime)
    declared = {normal_name(name) for line in own if (name := name_of(line))}
    # A library under its other names, and what comes with it.
    if declared & {"tensorflow-cpu", "tensorflow-gpu", "tf-nightly"}:
        declared |= {"tensorflow"}
    if installed.get("xgboost-cpu") is not None:
        declared |= {"xgboost"}
    names = {normal_name(name_of(line) or line): line for line in wanted.values()}
    if {"tensorflow", "keras"} <= {*names, *declared}:
        names.pop("keras", None)
    if "tensorflow" in names or "tensorflow" in declared:
        names = {name: line for name, line in names.items() if name not in ("numpy", "six", "h5py", "absl-py")}
    return [line for name, line in names.items() if name not in declared and installed.get(name) is None]


def _sources(code: "Code") -> dict[str, bytes]:
    entries = [entry for entry in code.tree.entries if entry.path.endswith(".py") and not entry.is_dir]
    return {entry.path: entry.file.read_bytes() for entry in entries if entry.link is None}


def _entries(values: Values) -> Iterator[str]:
    """The files that the job starts with, as far as its words name them."""
    if module := values.get("module"):
        yield from _of_module(module)
    for word in " ".join(values.get("command") or ()).split():
        if word.endswith(".py"):
            yield word.removeprefix("./")
        else:
            yield from _of_module(word.split(":")[0])


def _of_module(module: str) -> list[str]:
    path = module.replace(".", "/")
    return [f"{path}.py", f"{path}/__main__.py", f"{path}/__init__.py"]
