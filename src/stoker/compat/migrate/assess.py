"""Which platform, and what then: the whole of `stoker migrate`, without printing."""

from pathlib import Path

from stoker.compat.migrate import aiplatform, determined
from stoker.compat.migrate.directory import Directory, read_directory
from stoker.compat.migrate.findings import Assessment, Finding, Platform, Verdict
from stoker.compat.migrate.supplied import with_supply
from stoker.compat.refusals import UNSUPPORTED
from stoker.errors import StokerError, UsageError
from stoker.home import Home
from stoker.packaging.check import Report, check
from stoker.schema.dialects.reading import Values


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
    findings += _code(directory)
    values = with_supply(directory, values, findings, home, look_up=look_up)
    if look_up:
        findings += _requirements(directory, values, home)
    if _runnable(values) and not any(finding.verdict is Verdict.CANNOT for finding in findings):
        commands = commands or ["stoker jobs submit training NAME --config stoker.yaml"]
        what = values.get("module") or " ".join(values.get("command") or ())
        findings.insert(0, Finding(Verdict.RUNS, "job", what))
    return Assessment(str(path), chosen, tuple(found[chosen]), tuple(findings), values, tuple(commands))


def _chosen(path: Path, found: dict[Platform, list[str]]) -> Platform:
    named = [platform for platform, evidence in found.items() if evidence]
    if not named:
        raise UsageError(
            f"{path} was written for neither AI Platform nor Determined: it has no experiment file, no script that"
            " submits a job, no trainer/task.py. To run any code, see `stoker jobs submit command --help`."
        )
    if len(named) > 1:
        reasons = "; ".join(f"{platform.in_words}: {found[platform][0]}" for platform in named)
        raise UsageError(f"{path} looks written for both ({reasons}). Say which: --platform {' or '.join(named)}.")
    return named[0]


def _runnable(values: Values) -> bool:
    return bool(values.get("module") or values.get("command"))


def _code(directory: Directory) -> list[Finding]:
    findings = []
    for name, why in UNSUPPORTED.items():
        use = directory.first_use(name)
        if use is not None:
            findings.append(Finding(Verdict.CANNOT, name, why, use.where))
    return findings


def _requirements(directory: Directory, values: Values, home: Home) -> list[Finding]:
    environment = values.get("environment", {})
    try:
        report = check(directory.root, home=home, runtime=environment.get("runtime"), python=environment.get("python"))
    except StokerError as error:
        return [Finding(Verdict.NEEDS, "environment", str(error))]
    return _of_report(report)


def _of_report(report: Report) -> list[Finding]:
    return [
        Finding(Verdict.NEEDS, row.requirement, row.detail or str(row.verdict))
        for row in report.rows
        if not row.verdict.can_run
    ]
