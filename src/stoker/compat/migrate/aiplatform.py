"""Packages written for AI Platform: what their scripts submit, as a job of ours."""

import re
from collections.abc import Collection, Iterator
from typing import Any

from stoker.compat.dialects import aiplatform, training_input
from stoker.compat.migrate.containers import job_of as job_of_container
from stoker.compat.migrate.containers import read_dockerfile
from stoker.compat.migrate.directory import PAGES, Call, Directory
from stoker.compat.migrate.findings import Finding, Verdict
from stoker.errors import ConfigError, StokerError
from stoker.submission.reading import JobValues, overlay

_UNRESOLVED = re.compile(r"\$[\w({]")
_TASKS = ("task", "main", "train", "trainer")
_DOCKERFILE = re.compile(r"(?:.*/)?(?:[Dd]ockerfile(?:[.-]\w+)?|[\w-]+\.[Dd]ockerfile)")
_API = re.compile(r"""\bbuild\(\s*(?:serviceName\s*=\s*)?["']ml["']""")
_BY_API = (
    "it asks Google's API itself, which is not here. A job: write the body with its trainingInput to a file, and"
    " `stoker jobs submit training NAME --config FILE`. Predictions: `stoker predict`, or `stoker serve`"
)


def evidence(directory: Directory) -> Iterator[str]:
    """What says that it was written for AI Platform."""
    for where in dict.fromkeys(call.where for call in directory.calls):
        yield f"{where} submits a training job"
    for path, document in directory.documents.items():
        if aiplatform.is_dialect(document):
            yield f"{path} is a Job resource"
    for finding in _by_api(directory):
        yield f"{finding.where} asks AI Platform's API"
    use = directory.first_use("hypertune")
    if use is not None:
        yield f"{use.where} imports hypertune"
    for path in directory.paths:
        if re.fullmatch(r"(.*/)?(trainer/)?task\.py", path) and "trainer/" in f"/{path}":
            yield f"{path} is a trainer's task"


def job_of(directory: Directory) -> tuple[JobValues, list[Finding]]:
    """The job that its first script submits, with its config files' search."""
    values: JobValues = {}
    findings: list[Finding] = []
    call = _first_call(directory)
    if call is not None:
        values, notes = _of_call(call)
        findings += notes
    for path in _job_files(directory, call, home_of(values.get("module"), directory.paths) or ""):
        values = overlay(values, _of_file(path, _with_flags(directory.documents[path]), findings))
    if not values.get("module") and not values.get("command"):
        values = overlay(values, _guessed(directory, findings))
    findings += _by_api(directory)
    return values, findings


def _by_api(directory: Directory) -> Iterator[Finding]:
    """Modules that ask ml.googleapis.com themselves: they are no part of a job, and the job is."""
    for path in dict.fromkeys(use.where.partition(":")[0] for use in directory.uses if _is_of_api(use.name)):
        if _API.search((directory.root / path).read_text(encoding="utf-8", errors="replace")):
            yield Finding(Verdict.NOTE, "googleapiclient", _BY_API, path)


def _is_of_api(name: str) -> bool:
    return name.split(".")[0] in ("googleapiclient", "apiclient")


def home_of(module: str | None, paths: Collection[str]) -> str | None:
    """The folder from which the module is imported, the one nearest to the top; None where it is nowhere."""
    if not module:
        return None
    inner = module.replace(".", "/")
    ends = (f"/{inner}.py", f"/{inner}/__main__.py", f"/{inner}/__init__.py")
    found = [f"/{path}"[: -len(end)] for path in paths for end in ends if f"/{path}".endswith(end)]
    return min((folder.lstrip("/") for folder in found), key=lambda folder: (folder.count("/"), folder), default=None)


def _first_call(directory: Directory) -> Call | None:
    """Of those that name a module which is here, the one nearest to the top; scripts before pages."""
    depths = {call: (call.where.endswith(PAGES), call.where.count("/")) for call in directory.calls}
    near = sorted(directory.calls, key=lambda call: depths[call])
    named = [call for call in near if call.flag("module-name")]
    here = [call for call in named if home_of(call.flag("module-name"), directory.paths) is not None]
    return next(iter([*here, *named, *near]), None)


def _job_files(directory: Directory, call: Call | None, home: str) -> list[str]:
    """Job resources: the one that the call names; else all but those of other projects below."""
    found = [path for path, document in directory.documents.items() if aiplatform.is_dialect(document)]
    name = ((call.flag("config") if call else None) or "").rpartition("/")[2]
    named = [path for path in found if path.rpartition("/")[2] == name]
    if named:
        return [min(named, key=lambda path: path.count("/"))]
    folders = {path: path.rpartition("/")[0] for path in found}
    return [path for path, folder in folders.items() if folder in ("", home) or not _is_project(folder, directory)]


def _is_project(folder: str, directory: Directory) -> bool:
    return f"{folder}/setup.py" in directory.paths


def _of_call(call: Call) -> tuple[JobValues, list[Finding]]:
    tier = call.flag("scale-tier")
    training: dict[str, Any] = {
        "pythonModule": call.flag("module-name"),
        "runtimeVersion": call.flag("runtime-version"),
        "pythonVersion": call.flag("python-version"),
        "scaleTier": training_input.tier_name(tier) if tier and not _UNRESOLVED.search(tier) else None,
        "masterType": call.flag("master-machine-type"),
    }
    given = {name: value for name, value in training.items() if value and not _UNRESOLVED.search(value)}
    if given.get("scaleTier") != "CUSTOM" or "masterType" not in given:
        given.pop("masterType", None)
        given = {name: value for name, value in given.items() if value != "CUSTOM"}
    args = [word for word in call.args]
    findings = []
    open_words = [word for word in args if _UNRESOLVED.search(word)]
    if open_words:
        text = f"its arguments use variables that it does not set: {' '.join(open_words)}. Write their values there."
        findings.append(Finding(Verdict.NOTE, "arguments", text, call.where))
    reading = training_input.translate({"trainingInput": {**given, "args": args}}, source=call.where)
    return reading.values, findings


def _with_flags(document: dict[str, Any]) -> dict[str, Any]:
    """The file as it is submitted: of a size, one half is often given by a flag."""
    training = document.get("trainingInput")
    if not isinstance(training, dict):
        return document
    if training.get("masterType") and not training.get("scaleTier"):
        training = {**training, "scaleTier": "CUSTOM"}
    if str(training.get("scaleTier", "")).upper() == "CUSTOM" and not training.get("masterType"):
        training = {name: value for name, value in training.items() if name != "scaleTier"}
    return {**document, "trainingInput": training}


def _of_file(path: str, document: dict[str, Any], findings: list[Finding]) -> JobValues:
    try:
        reading = aiplatform.read(document, source=path)
    except ConfigError as error:
        problems = "; ".join(error.problems) or str(error)
        findings.append(Finding(Verdict.CANNOT, "config", f"it is not a Job resource as it stands: {problems}", path))
        return {}
    except StokerError as error:
        findings.append(Finding(Verdict.CANNOT, "config", str(error), path))
        return {}
    if reading.ignored:
        detail = f"of no meaning off Google's cloud: {', '.join(reading.ignored)}"
        findings.append(Finding(Verdict.NOTE, "config", detail, path))
    values = reading.values.copy()
    values.pop("name", None)
    return values


def _guessed(directory: Directory, findings: list[Finding]) -> JobValues:
    """Without a script that says: the container's entrypoint, or the only module that looks like a task."""
    dockerfiles = [path for path in directory.paths if _DOCKERFILE.fullmatch(path)]
    dockerfiles.sort(key=lambda path: (path.count("/"), not path.endswith("Dockerfile"), path))
    for path in dockerfiles:
        container = read_dockerfile(directory.root / path, context=directory.root)
        if container.command:
            text = "its entrypoint and requirements are used, its image is not"
            findings.append(Finding(Verdict.RUNS, "container", text, path))
            return job_of_container(container, directory.root)
    for name in _TASKS:
        modules = [path for path in directory.paths if path.endswith(f"/{name}.py") and path.count("/") == 1]
        if len(modules) == 1:
            module = modules[0].removesuffix(".py").replace("/", ".")
            findings.append(Finding(Verdict.NOTE, "module", f"taken for what to run: {module}", modules[0]))
            return {"module": module, "origin": {"platform": "aiplatform"}}
    if dockerfiles:
        text = "it has no ENTRYPOINT or CMD that can be read"
        findings.append(Finding(Verdict.CANNOT, "container", text, dockerfiles[0]))
    return {}
