"""Which platform, and what then: the whole of `stoker migrate`, without printing."""

from pathlib import Path

from stoker.compat.migrate import aiplatform, determined
from stoker.compat.migrate.directory import Directory, read_directory
from stoker.compat.migrate.findings import Assessment, Finding, Platform, Verdict
from stoker.compat.migrate.imports import undeclared
from stoker.errors import StokerError, UsageError
from stoker.home import Home
from stoker.packaging.check import Report, check
from stoker.packaging.project import read_project
from stoker.packaging.runtimes import choose, list_runtimes
from stoker.packaging.tree import source_of_directory, walk
from stoker.schema.dialects.reading import Values, overlay

_TF1 = (
    "tensorflow.contrib",
    "tensorflow.Session",
    "tensorflow.placeholder",
    "tensorflow.app",
    "tensorflow.logging",
    "tensorflow.gfile",
    "tensorflow.train.AdamOptimizer",
    "tensorflow.get_variable",
    "tensorflow.variable_scope",
)
_OF_OLD_SKLEARN = ("sklearn.externals",)
_UNSUPPORTED = {
    "horovod": "Horovod is not supported. Use torch.distributed (ranks are started for you) or TF_CONFIG",
    "tensorflow.contrib.tpu": "TPUs cannot be had here",
    "tensorflow.distribute.TPUStrategy": "TPUs cannot be had here",
    "deepspeed": "DeepSpeed is not supported on CPUs. Use FSDP, or GPUs and a runtime that has DeepSpeed",
}


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
    values = _with_old_python(directory, values, findings, home)
    findings += _code(directory)
    values = _with_undeclared(directory, values, findings, home, chosen)
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


def _with_old_python(directory: Directory, values: Values, findings: list[Finding], home: Home) -> Values:
    """Code for TensorFlow 1 or for scikit-learn of its time gets the Python that those need."""
    use = directory.first_use(*_TF1)
    if use is not None and directory.first_use("tensorflow.compat.v1") is None:
        return _on_python_37(use.name, use.where, "tensorflow==1.15.5", values, findings, home)
    use = directory.first_use(*_OF_OLD_SKLEARN)
    if use is not None:
        return _on_python_37(use.name, use.where, "scikit-learn==0.20.4", values, findings, home)
    return values


def _on_python_37(
    name: str, where: str, requirement: str, values: Values, findings: list[Finding], home: Home
) -> Values:
    asked = values.get("environment", {}).get("requirements", [])
    try:
        choose(home, python="3.7")
    except StokerError:
        nearest = ", ".join(runtime.minor for runtime in list_runtimes(home))
        detail = (
            f"it is of {requirement}, which needs Python 3.7; the Pythons here are {nearest}. Install 3.7 (pyenv, uv)."
        )
        findings.append(Finding(Verdict.NEEDS, name, detail, where))
    else:
        findings.append(Finding(Verdict.RUNS, name, f"on Python 3.7 with {requirement}", where))
    needs: Values = {"python": "3.7", "requirements": [*asked, requirement]}
    return overlay(values, {"environment": needs})


def _with_undeclared(
    directory: Directory, values: Values, findings: list[Finding], home: Home, platform: Platform
) -> Values:
    """AI Platform's images had much in them that nobody declared. What this Python lacks is added to the job."""
    if values.get("environment", {}).get("python"):
        return values  # another Python, of which this one knows nothing
    asked = list(values.get("environment", {}).get("requirements", ()))
    project = read_project(walk(source_of_directory(directory.root)), home=home)
    refused = {finding.what.split(".")[0] for finding in findings if finding.verdict is Verdict.CANNOT}
    found = undeclared(directory, [*asked, *project.requirements])
    missing = [(requirement, use) for requirement, use in found if use.name.split(".")[0] not in refused]
    for requirement, use in missing:
        if platform is Platform.DETERMINED:
            detail = f"it is imported, and neither required nor in the runtime: add {requirement} to a requirements.txt"
            findings.append(Finding(Verdict.NEEDS, use.name.split(".")[0], detail, use.where))
        else:
            detail = f"it is imported and not declared: {requirement} is in the job's requirements"
            findings.append(Finding(Verdict.NOTE, use.name.split(".")[0], detail, use.where))
    if not missing or platform is Platform.DETERMINED:
        return values
    return overlay(values, {"environment": {"requirements": [*asked, *(name for name, _ in missing)]}})


def _code(directory: Directory) -> list[Finding]:
    findings = [Finding(Verdict.CANNOT, "Python 2", reason) for reason in directory.old_python[:5]]
    for name, why in _UNSUPPORTED.items():
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
