"""Packages written for AI Platform: what their scripts submit, as a job of ours."""

import re
from collections.abc import Iterator
from typing import Any

from stoker.compat.migrate.containers import job_of as job_of_container
from stoker.compat.migrate.containers import read_dockerfile
from stoker.compat.migrate.directory import Call, Directory
from stoker.compat.migrate.findings import Finding, Verdict
from stoker.errors import ConfigError, StokerError
from stoker.schema.dialects import aiplatform, training_input
from stoker.schema.dialects.reading import Values, overlay

_UNRESOLVED = re.compile(r"\$[\w({]")
_TASKS = ("task", "main", "train", "trainer")


def evidence(directory: Directory) -> Iterator[str]:
    """What says that it was written for AI Platform."""
    for where in dict.fromkeys(call.where for call in directory.calls):
        yield f"{where} submits a training job"
    for path, document in directory.documents.items():
        if aiplatform.is_dialect(document):
            yield f"{path} is a Job resource"
    use = directory.first_use("hypertune")
    if use is not None:
        yield f"{use.where} imports hypertune"
    for path in directory.paths:
        if re.fullmatch(r"(.*/)?(trainer/)?task\.py", path) and "trainer/" in f"/{path}":
            yield f"{path} is a trainer's task"


def job_of(directory: Directory) -> tuple[Values, list[Finding]]:
    """The job that its first script submits, with its config files' search."""
    values: Values = {}
    findings: list[Finding] = []
    call = next((call for call in directory.calls if call.flag("module-name")), None)
    if call is None and directory.calls:
        call = directory.calls[0]
    if call is not None:
        values, notes = _of_call(call)
        findings += notes
    for path, document in directory.documents.items():
        if aiplatform.is_dialect(document):
            values = overlay(values, _of_file(path, _with_flags(document), findings))
    if not values.get("module") and not values.get("command"):
        values = overlay(values, _guessed(directory, findings))
    return values, findings


def _of_call(call: Call) -> tuple[Values, list[Finding]]:
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


def _of_file(path: str, document: dict[str, Any], findings: list[Finding]) -> Values:
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
    return {name: value for name, value in reading.values.items() if name != "name"}


def _guessed(directory: Directory, findings: list[Finding]) -> Values:
    """Without a script that says: the container's entrypoint, or the only module that looks like a task."""
    dockerfiles = [path for path in directory.paths if path.rsplit("/", 1)[-1] == "Dockerfile"]
    if dockerfiles:
        context = directory.root
        container = read_dockerfile(context / dockerfiles[0], context=context)
        if container.command:
            findings.append(
                Finding(
                    Verdict.RUNS,
                    "container",
                    "its entrypoint and requirements are used, its image is not",
                    dockerfiles[0],
                )
            )
            return job_of_container(container, context)
        findings.append(
            Finding(Verdict.CANNOT, "container", "it has no ENTRYPOINT or CMD that can be read", dockerfiles[0])
        )
    for name in _TASKS:
        modules = [path for path in directory.paths if path.endswith(f"/{name}.py") and path.count("/") == 1]
        if len(modules) == 1:
            module = modules[0].removesuffix(".py").replace("/", ".")
            findings.append(Finding(Verdict.NOTE, "module", f"taken for what to run: {module}", modules[0]))
            return {"module": module}
    return {}
