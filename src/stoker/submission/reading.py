"""A job's fields as plain values: what a dialect makes of a job file, and laying one over another.

The values have the shape of stoker.yaml. They are typed dictionaries and not JobSpec, because importing pydantic takes
longer than the rest of a submission; the server validates them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

Document = dict[str, Any]  # a file or section that is not known to be well formed


class ArchiveValues(TypedDict):
    """An uploaded wheel, sdist or zip."""

    hash: str
    filename: str


class EnvironmentValues(TypedDict, total=False):
    """The fields of EnvironmentSpec."""

    runtime: str | None
    python: str | None
    requirements: Sequence[str]
    archives: Sequence[ArchiveValues]
    prefer_runtime: bool
    as_of: str | None
    variables: Mapping[str, str]


class JobOptions(TypedDict, total=False):
    """How a job runs: those fields of JobSpec that `stoker.submit` takes as they are."""

    command: Sequence[str]
    hparams: Mapping[str, Any]
    data: Mapping[str, Any]
    job_dir: str | None
    resources: Mapping[str, Any]
    environment: EnvironmentValues
    restarts: Mapping[str, Any]
    limits: Mapping[str, Any]
    priority: int
    seed: int
    labels: Mapping[str, str]
    search: Mapping[str, Any]


class JobValues(JobOptions, total=False):
    """The fields of JobSpec (schema/job.py), any of them missing."""

    name: str
    kind: str
    package: str | None
    import_roots: Sequence[str]
    module: str | None
    args: Sequence[str]
    pool: str | None
    chief_name: str
    origin: Mapping[str, Any]  # the fields of stoker.origin's Origin


_Values = TypeVar("_Values", bound=Mapping[str, Any])


@dataclass(frozen=True, slots=True)
class Reading:
    """Part of a JobSpec, and what does not fit in one."""

    values: JobValues
    packages: tuple[str, ...] = ()  # archives it names, as paths or URLs
    ignored: tuple[str, ...] = ()  # fields that are ignored outside Google Cloud
    notes: tuple[str, ...] = ()  # a line for each thing understood in another way than it was written


def overlay(base: _Values, over: Mapping[str, Any]) -> _Values:
    """`base` with the fields of `over` laid on top, field by field; lists are replaced whole.

    Where `base` has something else than the section expected there, it stays, for the schema to complain about.
    """
    merged: Any = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if not isinstance(value, Mapping) or below is None:
            merged[key] = value
        elif isinstance(below, Mapping):
            merged[key] = overlay(below, value)
    result: _Values = merged
    return result


def origin_of(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where the job came from (the fields of schema's Origin); empty if it is our own."""
    return values.get("origin") or {}


def as_words(values: object) -> object:
    """A list of command-line words as written in YAML: numbers become strings, the rest is for the schema to judge."""
    if not isinstance(values, list):
        return values
    return [str(v) if isinstance(v, int | float) and not isinstance(v, bool) else v for v in values]
