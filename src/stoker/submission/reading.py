"""What a dialect makes of a job file: values in the shape of stoker.yaml, and laying one over another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Values = dict[str, Any]  # in the shape of stoker.yaml (JobSpec's fields), any of them missing


@dataclass(frozen=True, slots=True)
class Reading:
    """Part of a JobSpec, and what does not fit in one."""

    values: Values
    packages: tuple[str, ...] = ()  # archives it names, as paths or URLs
    ignored: tuple[str, ...] = ()  # fields that mean nothing off Google's cloud
    notes: tuple[str, ...] = ()  # what was understood in another way than it was written, a line each


def overlay(base: Mapping[str, Any], over: Mapping[str, Any]) -> Values:
    """`base` with the fields of `over` laid on top, field by field; lists are replaced whole.

    Where `base` has something else than the section expected there, it stays, for the schema to complain about.
    """
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if not isinstance(value, Mapping) or below is None:
            merged[key] = value
        elif isinstance(below, Mapping):
            merged[key] = overlay(below, value)
    return merged


def origin_of(values: Mapping[str, Any]) -> Values:
    """Where the job came from (the fields of schema's Origin); empty if it is our own."""
    return values.get("origin") or {}


def as_words(values: object) -> object:
    """A list of command-line words as written in YAML: numbers become text, the rest is for the schema to judge."""
    if not isinstance(values, list):
        return values
    return [str(v) if isinstance(v, int | float) and not isinstance(v, bool) else v for v in values]
