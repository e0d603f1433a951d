"""AI Platform's Job resource, as plain values already known to be well formed, translated into JobSpec's fields.

Apart from the models that judge such a document (`aiplatform.py`), because flags need the translation only, and every
submit would pay for building the models.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stoker.errors import ConfigError
from stoker.submission.reading import Document, JobValues, Reading

# The runtime version from which TF_CONFIG says `chief` rather than `master`.
_CHIEF_SINCE = (2, 1)

# Our role, AI Platform's fields for its machine type, its count and its other settings.
_ROLES = (
    ("chief", "masterType", None, "masterConfig"),
    ("worker", "workerType", "workerCount", "workerConfig"),
    ("ps", "parameterServerType", "parameterServerCount", "parameterServerConfig"),
    ("evaluator", "evaluatorType", "evaluatorCount", "evaluatorConfig"),
)
_MEANINGLESS = ("serviceAccount", "network", "encryptionConfig", "enableWebAccess", "nasJobSpec")
_MEANINGLESS_IN_SCHEDULING = ("strategy", "resilientToWorkerRestart")
_MEANINGLESS_IN_A_ROLE = ("imageUri", "containerCommand", "containerArgs", "diskConfig", "tpuTfVersion")


def translate(document: Mapping[str, Any], *, source: str) -> Reading:
    """Part of a JobSpec, only what was given. ConfigError names all fields that contradict one another."""
    training: Mapping[str, Any] = document.get("trainingInput") or {}
    if document.get("predictionInput") is not None:
        raise ConfigError(f"{source}: predictionInput asks for batch prediction; a training job needs trainingInput.")
    problems = list(_contradictions(training))
    if problems:
        raise ConfigError(f"{source} has {len(problems)} bad field{'s' if len(problems) > 1 else ''}:", problems)
    return Reading(
        values=_values(document, training),
        packages=tuple(training.get("packageUris") or ()),
        ignored=tuple(_ignored(training)),
    )


def tier_name(text: str) -> str:
    """`standard-1`, `STANDARD_1`: gcloud takes both, the API says the latter."""
    return text.upper().replace("-", "_")


def _contradictions(training: Mapping[str, Any]) -> Iterator[str]:
    at = "trainingInput."
    tier = tier_name(training["scaleTier"]) if training.get("scaleTier") else "no scaleTier"
    for _, machine, count, _ in _ROLES:
        for name in filter(None, (machine, count)):
            if training.get(name) and tier != "CUSTOM":
                yield f"{at}{name}: is for scaleTier CUSTOM (got {tier})"
        wanted = tier == "CUSTOM" and (count is None or training.get(count))
        if wanted and not training.get(machine):
            yield f"{at}{machine}: is required when {f'{count} is more than 0' if count else 'scaleTier is CUSTOM'}"
    master = training.get("masterConfig") or {}
    if training.get("runtimeVersion") and master.get("imageUri"):
        yield f"{at}runtimeVersion: is not for jobs with masterConfig.imageUri; only one of them can be set"
    if training.get("args") and master.get("containerArgs"):
        yield f"{at}args: is not for jobs with masterConfig.containerArgs; only one of them can be set"


def _values(document: Mapping[str, Any], training: Mapping[str, Any]) -> JobValues:
    scheduling = training.get("scheduling") or {}
    job: Any = _given(
        origin={"platform": "aiplatform"},
        name=document.get("jobId"),
        labels=document.get("labels"),
        module=training.get("pythonModule"),
        args=training.get("args"),
        job_dir=training.get("jobDir"),
        pool=training.get("region"),
        priority=scheduling.get("priority"),
        chief_name=_chief_name(training),
        resources=_resources(training) or None,
        environment=_given(runtime=training.get("runtimeVersion"), python=training.get("pythonVersion")) or None,
        limits=_given(
            max_running_s=_seconds(scheduling.get("maxRunningTime")),
            max_waiting_s=_seconds(scheduling.get("maxWaitTime")),
        )
        or None,
    )
    values: JobValues = job
    return values


def _resources(training: Mapping[str, Any]) -> Document:
    tier = tier_name(training["scaleTier"]) if training.get("scaleTier") else None
    if tier != "CUSTOM":
        gpus = _gpus(training, "masterConfig")
        # A master accelerator beside a plain tier: one machine, with that GPU.
        return {"roles": {"chief": gpus}} if gpus else _given(tier=tier)
    roles: Document = {}
    for role, machine, count, config in _ROLES:
        number = 1 if count is None else training.get(count) or 0
        if number:
            roles[role] = {"count": number, "machine": training[machine], **_gpus(training, config)}
    return {"roles": roles}


def _gpus(training: Mapping[str, Any], config: str) -> Document:
    accelerator = (training.get(config) or {}).get("acceleratorConfig")
    if not accelerator or not accelerator["count"]:
        return {}
    return {"gpus": accelerator["count"], "gpu_type": accelerator["type"]}


def _chief_name(training: Mapping[str, Any]) -> str | None:
    """`master` for runtimes older than 2.1; None leaves our own default, `chief`."""
    if training.get("useChiefInTfConfig"):
        return "chief"
    number = re.match(r"(\d+)\.(\d+)", training.get("runtimeVersion") or "")
    old = number is not None and (int(number[1]), int(number[2])) < _CHIEF_SINCE
    return "master" if old else None


def _ignored(training: Mapping[str, Any]) -> Iterator[str]:
    yield from (name for name in _MEANINGLESS if training.get(name))
    scheduling = training.get("scheduling") or {}
    yield from (f"scheduling.{name}" for name in _MEANINGLESS_IN_SCHEDULING if scheduling.get(name))
    for _, _, _, config in _ROLES:
        settings = training.get(config) or {}
        yield from (f"{config}.{name}" for name in _MEANINGLESS_IN_A_ROLE if settings.get(name))


def _seconds(text: str | None) -> float | None:
    return None if text is None else float(text.removesuffix("s"))


def _given(**fields: Any) -> Document:
    return {name: value for name, value in fields.items() if value is not None}
