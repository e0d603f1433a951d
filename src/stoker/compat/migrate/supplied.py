"""What submission would give the directory's code unasked, as findings: `compat/eras/supply.py` decides both."""

from collections.abc import Collection, Mapping, Sequence

from stoker.compat.eras.images import SHIPPED
from stoker.compat.eras.supply import Program, Supply, supply_for
from stoker.compat.eras.uses import is_of_old, python_2
from stoker.compat.migrate.directory import Directory, Use
from stoker.compat.migrate.findings import Finding, Verdict
from stoker.compat.migrate.imports import unprovided
from stoker.errors import StokerError
from stoker.host.home import Home
from stoker.packaging.environment.runtimes import choose, list_runtimes
from stoker.packaging.package.project import read_project
from stoker.packaging.package.requirements import name_of
from stoker.packaging.package.tree import source_of_directory, walk
from stoker.submission.reading import EnvironmentValues, JobValues, overlay


def with_supply(
    directory: Directory, values: JobValues, findings: list[Finding], home: Home, *, look_up: bool
) -> tuple[JobValues, Supply | None]:
    """The job with a Python and libraries of its time, and what was found of them added to `findings`."""
    tree = walk(source_of_directory(directory.root))
    environment = values.get("environment", {})
    own = (*read_project(tree, home=home).requirements, *environment.get("requirements", ()))
    modules = {
        entry.path: entry.file.read_bytes()
        for entry in tree.entries
        if entry.path.endswith(".py") and not entry.is_dir and entry.link is None
    }
    program = Program(modules, own, values, root=directory.root)
    findings += _unreadable(directory, modules, program.uses.files)
    try:
        supply = supply_for(program, home=home, look_up=look_up)
    except StokerError as error:  # a runtime or Python that it asks for is not here
        findings.append(Finding(Verdict.NEEDS, "environment", str(error)))
        return values, None
    said = [finding.detail for finding in findings if finding.verdict is Verdict.CANNOT]
    if supply.refusal and not any(detail in supply.refusal or supply.refusal.startswith(detail) for detail in said):
        findings.append(Finding(Verdict.CANNOT, "job", supply.refusal))
    refused = {finding.what.split(".")[0] for finding in findings if finding.verdict is Verdict.CANNOT}
    python = supply.python or environment.get("python")
    if python is None:
        findings += [
            Finding(Verdict.NEEDS, use.name.split(".")[0], _ADD.format(requirement), use.where)
            for requirement, use in unprovided(directory, program.uses, own)
            if use.name.split(".")[0] not in refused
        ]
    findings += _of_libraries(directory, supply, refused)
    old = next((use for use in directory.uses if is_of_old(use.name)), None)
    if supply.as_of and python:
        findings.append(_of_era(old, supply.as_of, python, supply.libraries, home))
    needs: EnvironmentValues = {"python": python} if python else {}
    if supply.as_of:
        needs["as_of"] = supply.as_of
    given = [line for line in supply.libraries if name_of(line) not in refused]
    if given:
        needs["requirements"] = [*environment.get("requirements", ()), *given]
    return (overlay(values, {"environment": needs}) if needs else values), supply


def _unreadable(directory: Directory, modules: Mapping[str, bytes], reached: Collection[str]) -> list[Finding]:
    """Files that Python 3 cannot read: they keep the job from running only where it comes to them."""
    found = []
    for reason in directory.old_python[:5]:
        path = reason.partition(":")[0]
        what = "Python 2" if python_2({path: modules.get(path, b"")}) else "syntax"
        if path in reached:
            found.append(Finding(Verdict.CANNOT, what, reason))
        else:
            found.append(Finding(Verdict.NOTE, what, f"{reason}; the job does not come to it"))
    return found


_ADD = "it is imported, and neither required nor in the runtime or the platforms' images: add {} to a requirements.txt"


def _of_libraries(directory: Directory, supply: Supply, refused: set[str]) -> list[Finding]:
    modules = {name_of(requirement): module for module, requirement in SHIPPED.items()}
    found = []
    for verdict, lines, detail in (
        (Verdict.NOTE, supply.libraries, "it is imported and not declared: {} is in the job's requirements"),
        (Verdict.NEEDS, supply.lacking, "it is imported, not declared, and {} is not available here"),
    ):
        for line in lines:
            module = modules.get(name_of(line), line)
            use = directory.first_use(module)
            if module.split(".")[0] not in refused:
                found.append(Finding(verdict, module, detail.format(line), use.where if use else ""))
    return found


def _of_era(use: Use | None, date: str, python: str, libraries: Sequence[str], home: Home) -> Finding:
    """The date and the Python that the code runs with, and the use that tells its time where there is one."""
    what, where = (use.name, use.where) if use else ("environment", "")
    libraries_text = f" with {', '.join(libraries)}" if libraries else ""
    try:
        choose(home, python=python)
    except StokerError:
        nearest = ", ".join(runtime.minor for runtime in list_runtimes(home))
        detail = f"it needs Python {python}; the Pythons here are {nearest}. Install {python} (pyenv, uv)"
        return Finding(Verdict.NEEDS, what, detail, where)
    return Finding(Verdict.RUNS, what, f"on Python {python} as of {date}{libraries_text}", where)
