"""The same job as a file for another system: leaving is as easy as coming."""

import shlex
from collections.abc import Callable, Mapping

import yaml

from stoker.submission.reading import Document, JobValues

_TUNED = "the search over hyperparameters is not carried over: this runs one set of them"


def to_vertex(values: JobValues, name: str) -> str:
    """For `gcloud ai custom-jobs create --region=R --display-name=N --config=FILE`."""
    replicas = _replicas(values)
    spec: Document = {"executorImageUri": "YOUR-EXECUTOR-IMAGE"}
    if values.get("module"):
        spec |= {"packageUris": [f"gs://YOUR-BUCKET/{name}.tar.gz"], "pythonModule": values["module"]}
        spec["args"] = list(values.get("args", ()))
        work: Document = {"pythonPackageSpec": spec}
    else:
        work = {"containerSpec": {"imageUri": "YOUR-IMAGE", "command": list(values.get("command", ()))}}
    pools = [{"machineSpec": {"machineType": "n1-standard-8"}, "replicaCount": 1, **work}]
    if replicas > 1:
        pools.append({"machineSpec": {"machineType": "n1-standard-8"}, "replicaCount": replicas - 1, **work})
    document: Document = {"workerPoolSpecs": pools}
    if values.get("job_dir"):
        document["baseOutputDirectory"] = {"outputUriPrefix": values["job_dir"]}
    return _comment(
        values, f"gcloud ai custom-jobs create --display-name={name} --region=REGION --config=THIS"
    ) + yaml.safe_dump(document, sort_keys=False)


def to_ray(values: JobValues, name: str) -> str:
    """A script with `ray job submit`."""
    requirements = list(values.get("environment", {}).get("requirements", ()))
    runtime: Document = {"working_dir": ".", **({"pip": requirements} if requirements else {})}
    resources = values.get("resources", {})
    words = ["ray", "job", "submit", "--submission-id", name, "--runtime-env-json", _json(runtime)]
    if resources.get("cpus"):
        words += ["--entrypoint-num-cpus", f"{float(resources['cpus']):g}"]
    if resources.get("gpus"):
        words += ["--entrypoint-num-gpus", f"{float(resources['gpus']):g}"]
    return (
        "#!/bin/sh\n" + _comment(values, "set RAY_ADDRESS first") + shlex.join([*words, "--", *_words(values)]) + "\n"
    )


def to_slurm(values: JobValues, name: str) -> str:
    """A script for `sbatch`."""
    resources = values.get("resources", {})
    lines = [f"#SBATCH --job-name={name}", f"#SBATCH --ntasks={_replicas(values)}"]
    lines.append(f"#SBATCH --cpus-per-task={max(int(float(resources.get('cpus', 1))), 1)}")
    if resources.get("gpus"):
        lines.append(f"#SBATCH --gpus-per-task={int(resources['gpus'])}")
    if resources.get("memory_gb"):
        lines.append(f"#SBATCH --mem-per-cpu={int(resources['memory_gb'])}G")
    limit = values.get("limits", {}).get("max_running_s")
    if limit:
        lines.append(f"#SBATCH --time={-(-int(limit) // 60)}")
    lines += [f"export {key}={shlex.quote(str(value))}" for key, value in _variables(values).items()]
    if _replicas(values) > 1:
        lines.append(
            'export MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)" MASTER_PORT=29400'
        )
        inner = 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID exec "$@"'
        return _script(values, lines, ["srun", "sh", "-c", inner, "sh", *_words(values)])
    return _script(values, lines, ["srun", *_words(values)])


SYSTEMS: dict[str, Callable[[JobValues, str], str]] = {"vertex": to_vertex, "ray": to_ray, "slurm": to_slurm}


def _script(values: JobValues, lines: list[str], command: list[str]) -> str:
    return "\n".join(["#!/bin/bash", *lines, _comment(values, "sbatch THIS").rstrip("\n"), shlex.join(command), ""])


def _words(values: JobValues) -> list[str]:
    if module := values.get("module"):
        own = [word for key, value in values.get("hparams", {}).items() for word in (f"--{key}", str(value))]
        return ["python", "-m", module, *map(str, values.get("args", ())), *own]
    return [str(word) for word in values.get("command", ())]


def _replicas(values: JobValues) -> int:
    resources = values.get("resources", {})
    roles = resources.get("roles")
    if roles:
        return sum(int(role.get("count", 1)) for name, role in roles.items() if name in ("chief", "worker"))
    return {"STANDARD_1": 5, "PREMIUM_1": 20}.get(str(resources.get("tier")), int(resources.get("slots", 1)))


def _variables(values: JobValues) -> Mapping[str, str]:
    return values.get("environment", {}).get("variables", {})


def _comment(values: JobValues, usage: str) -> str:
    lines = [f"# Written by `stoker migrate`: {usage}"]
    if values.get("search"):
        lines.append(f"# Note: {_TUNED}.")
    requirements = values.get("environment", {}).get("requirements")
    if requirements:
        lines.append(f"# It requires: {' '.join(requirements)}")
    return "\n".join(lines) + "\n"


def _json(values: Document) -> str:
    import json  # noqa: PLC0415

    return json.dumps(values)
