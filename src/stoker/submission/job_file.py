"""Our own stoker.yaml: the fields of JobSpec, `name` optional."""

from collections.abc import Mapping
from typing import Any

from stoker.origin import from_0_1
from stoker.schema.job import JobSpec
from stoker.submission.reading import Reading, Values, as_words


def is_dialect(document: Mapping[str, Any]) -> bool:
    """Whether this looks like a stoker.yaml: it has at least one of its fields."""
    return not JobSpec.model_fields.keys().isdisjoint(document)


def read(document: Mapping[str, Any], *, source: str) -> Reading:
    """Part of a JobSpec. ConfigError names every bad field, also those of other sections, at once."""
    values: Values = dict(document)
    if isinstance(values.get("data"), dict):
        values = from_0_1(values)  # `stoker migrate --write` of 0.1.0 wrote such files
    for words in ("args", "command"):
        if words in values:
            values[words] = as_words(values[words])
    placeholders = {"name": "x"} if "name" not in values else {}
    if "command" in values and "module" not in values:
        values.setdefault("kind", "command")
    if values.get("kind") != "command" and "module" not in values:
        placeholders["module"] = "x"  # may still come from a flag
    JobSpec.parse({**values, **placeholders}, source=source)
    return Reading(values=values)
