"""What gcloud's own habits mean here: its global flags, `--format`, `--filter`, task names, its Job resource.

So that an old script goes on working when `gcloud ai-platform` in it is replaced by `stoker`.
"""

import json
import re
from argparse import SUPPRESS
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stoker.errors import UsageError
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.schema.record import Job, JobSummary

# gcloud takes these on every command. The first have a meaning on Google's cloud alone; the others change nothing here.
_CLOUD_FLAGS = ("--project", "--account", "--billing-project", "--configuration", "--impersonate-service-account")
_QUIET_FLAGS = ("--verbosity", "--access-token-file", "--trace-token", "--flatten")


def add_global_flags(parser: Parser) -> None:
    """Accept gcloud's global flags, without a line in the help."""
    for flag in (*_CLOUD_FLAGS, *_QUIET_FLAGS):
        parser.add_argument(flag, help=SUPPRESS)
    parser.add_argument("--quiet", "-q", action="store_true", help=SUPPRESS)
    parser.add_argument("--log-http", action="store_true", help=SUPPRESS)
    parser.add_argument("--user-output-enabled", nargs="?", help=SUPPRESS)


def add_region_flag(parser: Parser) -> None:
    """Accept --region where there is but one place, without a line in the help."""
    parser.add_argument("--region", help=SUPPRESS)


def unused_global_flags(arguments: Arguments) -> list[str]:
    return [flag for flag in _CLOUD_FLAGS if getattr(arguments, flag[2:].replace("-", "_"), None)]


def add_format_flag(parser: Parser) -> None:
    parser.add_argument("--format", metavar="FORMAT", help="gcloud's: json, yaml or value(FIELD,…) of its Job resource")


def replica_of_task(task: str) -> str:
    """`master-replica-0`, as gcloud's --task-name has it, in our words: `chief-0`."""
    if task == "service":
        return "supervisor"
    match = re.fullmatch(r"(master|chief|worker|ps|evaluator)-replica-(\d+)", task)
    if match is None:
        return task
    return f"{'chief' if match[1] == 'master' else match[1]}-{match[2]}"


_SORTABLE = ("jobId", "state", "createTime", "startTime", "endTime")


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list."""

    states: tuple[str, ...] = ()
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


_TERM = re.compile(r"([\w.]+)\s*(:|=)\s*[\"']?([^\"'()]+?)[\"']?")


def read_filter(text: str) -> JobFilter:
    """gcloud's --filter, as far as jobs need it: `jobId:census* AND state:FAILED AND labels.team=a`."""
    states: list[str] = []
    name: str | None = None
    labels: dict[str, str] = {}
    for term in re.split(r"\s+AND\s+", text.strip()):
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise _bad_term(term)
        key, operator, value = match.groups()
        if key.lower() in ("jobid", "name", "id"):
            name = value if operator == "=" or "*" in value else f"*{value}*"
        elif key.lower() in ("state", "status"):
            states.append(value.upper())
        elif key.startswith("labels."):
            labels[key.removeprefix("labels.")] = value
        else:
            raise _bad_term(term)
    return JobFilter(states=tuple(states), name=name, labels=labels)


def _bad_term(term: str) -> UsageError:
    return UsageError(
        f"Cannot filter by {term!r}. What works: jobId:GLOB, state:STATE, labels.KEY=VALUE, joined with AND"
        " (or the flags --name, --state, --label)."
    )


def sort_by(field: str, jobs: "Sequence[JobSummary]") -> "tuple[JobSummary, ...]":
    """gcloud's --sort-by: a field of its Job resource, `~` before it for the other way round."""
    name = field.removeprefix("~")
    if name not in _SORTABLE:
        raise UsageError(f"Cannot sort by {name!r}. What works: {', '.join(_SORTABLE)}, with ~ before it or not.")
    return tuple(sorted(jobs, key=lambda job: str(resource(job).get(name, "")), reverse=field.startswith("~")))


def print_as(format: str, jobs: "Sequence[JobSummary | Job]", *, single: bool) -> None:
    """Print jobs as gcloud would with this --format."""
    resources = [resource(job) for job in jobs]
    values = re.fullmatch(r"value\((.+)\)", format)
    if format == "json":
        print(json.dumps(resources[0] if single else resources, indent=2))
    elif format == "yaml":
        import yaml

        print("---\n".join(yaml.safe_dump(item, sort_keys=False) for item in resources), end="")
    elif values is not None:
        for item in resources:
            print("\t".join(_field(item, path) for path in values[1].split(",")))
    else:
        raise UsageError(f"Cannot print as {format!r}. What works: --format json, yaml or value(FIELD,…); or --json.")


def resource(job: "JobSummary | Job") -> dict[str, Any]:
    """A job in the shape of AI Platform's Job resource."""
    from stoker.schema.record import Job

    shown: dict[str, Any] = {"jobId": job.id, "state": job.state.value, "createTime": _timestamp(job.created)}
    if job.started is not None:
        shown["startTime"] = _timestamp(job.started)
    if job.ended is not None:
        shown["endTime"] = _timestamp(job.ended)
    if job.state == "FAILED" and job.reason:
        shown["errorMessage"] = job.reason
    if job.labels:
        shown["labels"] = job.labels
    if isinstance(job, Job) and job.spec.kind == "predict":
        shown |= _prediction(job)
    elif isinstance(job, Job):
        spec = job.spec
        training = {"pythonModule": spec.module, "args": list(spec.args), "jobDir": spec.job_dir, "region": job.pool}
        training |= {"scaleTier": spec.resources.tier, "runtimeVersion": spec.environment.runtime}
        training |= {"pythonVersion": spec.environment.python}
        shown["trainingInput"] = {key: value for key, value in training.items() if value}
    return shown


def _prediction(job: "Job") -> dict[str, Any]:
    """predictionInput and predictionOutput; its counts are texts, as all int64s of that API."""
    asked = job.spec.data.get("prediction", {})
    model = asked.get("model", {})
    named = {"versionName": model["reference"]} if "reference" in model else {"uri": model.get("url")}
    data_format = str(asked.get("data_format", "")).replace("-", "_").upper()
    given = {"dataFormat": data_format, "inputPaths": asked.get("input_paths"), "outputPath": asked.get("output_path")}
    counted = job.trials[-1].metrics if job.trials else {}
    counts = {name: str(int(counted.get(name, 0))) for name in ("predictionCount", "errorCount")}
    return {
        "predictionInput": {**named, **given, "region": job.pool, "batchSize": str(asked.get("batch_size", 64))},
        "predictionOutput": {"outputPath": asked.get("output_path"), **counts},
    }


def _field(item: Mapping[str, Any], path: str) -> str:
    value: Any = item
    for part in path.strip().split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
