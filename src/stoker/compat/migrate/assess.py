"""Which platform, and what then: the whole of `stoker migrate`, without printing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stoker.compat.eras.refusals import UNSUPPORTED
from stoker.compat.migrate import aiplatform, determined
from stoker.compat.migrate.directory import Directory, read_directory
from stoker.compat.migrate.findings import Assessment, Finding, Verdict
from stoker.compat.migrate.supplied import with_supply
from stoker.errors import NotFoundError, StokerError, UsageError
from stoker.host.home import Home
from stoker.origin import Platform
from stoker.packaging.environment.check import Report, check
from stoker.packaging.package.project import read_project
from stoker.packaging.package.tree import source_of_directory, walk
from stoker.submission.reading import JobValues


def assess(path: Path, *, home: Home, platform: Platform | None = None, look_up: bool = True) -> Assessment:
    """Read the directory and judge it. UsageError when it is neither platform's, or both's and none was named.

    With `look_up` the package index is asked whether what it requires can be had.
    """
    directory = read_directory(path)
    found = {
        Platform.AI_PLATFORM: list(aiplatform.evidence(directory)),
        Platform.DETERMINED: list(determined.evidence(directory)),
    }
    chosen = platform or _chosen(path, found)
    findings: list[Finding] = []
    commands: list[str] = []
    if chosen is Platform.DETERMINED:
        values, findings, commands = determined.job_of(directory)
    else:
        values, findings = aiplatform.job_of(directory)
    if not values and not findings:
        raise UsageError(f"{path}: nothing in it says what to run: no module, no script that submits one, no job file.")
    folder = ""
    try:
        folder = _folder(directory, values, findings, home)
        below = read_directory(path / folder) if folder else directory
        values, of_code = _of_code(below, values, home, look_up=look_up)
        findings += [replace(one, where=f"{folder}/{one.where}") if folder and one.where else one for one in of_code]
    except (NotFoundError, UsageError) as error:  # of a setup.py or a requirements.txt: nothing more can be known
        findings.append(Finding(Verdict.CANNOT, "project", str(error)))
    findings += _nowhere(directory, values)
    if _runnable(values) and not any(finding.verdict is Verdict.CANNOT for finding in findings):
        commands = commands or [f"stoker jobs submit training NAME --config {Path(folder) / 'stoker.yaml'}"]
        what = values.get("module") or " ".join(values.get("command") or ())
        findings.insert(0, Finding(Verdict.RUNS, "job", what, folder))
    return Assessment(str(path), chosen, tuple(found[chosen]), tuple(findings), values, tuple(commands), folder)


def _folder(directory: Directory, values: JobValues, findings: list[Finding], home: Home) -> str:
    """Where the project lies whose module is run: "" is the top. A module that is nowhere is a finding."""
    module = values.get("module")
    if not module:
        return ""
    project = read_project(walk(source_of_directory(directory.root)), home=home)
    tops = [root for root in project.import_roots if aiplatform.home_of(module, _below(root, directory.paths)) == ""]
    found = "" if tops else aiplatform.home_of(module, directory.paths)
    if found is None:
        text = "the job runs it, and no such module is here. Look at the directory that has it"
        findings.append(Finding(Verdict.CANNOT, module, text))
    return found or ""


def _nowhere(directory: Directory, values: JobValues) -> list[Finding]:
    """That nothing is named to run, or a script that is not here: the former only where no other finding says why."""
    if not _runnable(values):
        return [Finding(Verdict.CANNOT, "job", "nothing in it says what to run: name a module or a command")]
    # A shell's text is one word, and may end with a script's name.
    scripts = [word for word in values.get("command") or () if word.endswith(".py") and " " not in word]
    known = {path.rpartition("/")[2] for path in directory.paths}
    missing = [script for script in scripts[:1] if script.rpartition("/")[2] not in known]
    return [Finding(Verdict.CANNOT, script, "the job runs it, and no such file is here") for script in missing]


def _below(root: str, paths: Sequence[str]) -> list[str]:
    prefix = "" if root in ("", ".") else f"{root.rstrip('/')}/"
    return [path.removeprefix(prefix) for path in paths if path.startswith(prefix)]


def _of_code(directory: Directory, values: JobValues, home: Home, *, look_up: bool) -> tuple[JobValues, list[Finding]]:
    findings = _code(directory)
    values, supply = with_supply(directory, values, findings, home, look_up=look_up)
    if look_up:
        own = values.get("environment", {}).get("requirements", ())
        findings += _requirements(directory, values, home, beside=[*own, *(supply.requirements if supply else ())])
    return values, findings


def _chosen(path: Path, found: dict[Platform, list[str]]) -> Platform:
    named = [platform for platform, evidence in found.items() if evidence]
    if not named:
        raise UsageError(
            f"{path} was written for neither AI Platform nor Determined: it has no experiment file, no script that"
            " submits a job, no trainer/task.py. To run any command as a job, see `stoker cmd run --help`."
        )
    if len(named) > 1:
        reasons = "; ".join(f"{platform.in_words}: {found[platform][0]}" for platform in named)
        raise UsageError(f"{path} looks written for both ({reasons}). Say which: --platform {' or '.join(named)}.")
    return named[0]


def _runnable(values: JobValues) -> bool:
    return bool(values.get("module") or values.get("command"))


def _code(directory: Directory) -> list[Finding]:
    findings = []
    for name, why in UNSUPPORTED.items():
        use = directory.first_use(name)
        if use is not None:
            findings.append(Finding(Verdict.CANNOT, name, why, use.where))
    return findings


def _requirements(directory: Directory, values: JobValues, home: Home, *, beside: Sequence[str]) -> list[Finding]:
    environment = values.get("environment", {})
    runtime, python = environment.get("runtime"), environment.get("python")
    as_of = environment.get("as_of")
    try:
        lines = list(dict.fromkeys(beside))
        report = check(directory.root, home=home, runtime=runtime, python=python, as_of=as_of, beside=lines)
    except StokerError as error:
        return [Finding(Verdict.NEEDS, "environment", str(error))]
    return _of_report(report)


def _of_report(report: Report) -> list[Finding]:
    return [
        Finding(Verdict.NEEDS, row.requirement, row.detail or str(row.verdict))
        for row in report.rows
        if not row.verdict.can_run
    ]
