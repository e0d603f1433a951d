"""A job file, YAML or JSON, as plain values; and our own stoker.yaml: the fields of JobSpec, `name` optional."""

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from stoker.errors import ConfigError, UsageError
from stoker.origin import from_0_1
from stoker.schema.job import JobSpec
from stoker.submission.reading import Document, JobValues, Reading, as_words


def load(path: Path) -> Document:
    """The mapping in a YAML (or JSON, which is YAML) file. UsageError if there is no such file, or no mapping in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"Cannot read {path}: {reason}.") from error
    try:
        document = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {_where(error)}.") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} holds no fields: expected `key: value` lines, like `trainingInput:`.")
    return {str(key): value for key, value in document.items()}


def is_dialect(document: Mapping[str, Any]) -> bool:
    """Whether this looks like a stoker.yaml: it has at least one of its fields."""
    return not JobSpec.model_fields.keys().isdisjoint(document)


def read(document: Mapping[str, Any], *, source: str) -> Reading:
    """Part of a JobSpec. ConfigError names every bad field, also those of other sections, at once."""
    values: Any = dict(document)
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
    job: JobValues = values
    return Reading(values=job)


class _Loader(yaml.SafeLoader):
    """Refuses a key written twice, where YAML would silently take the last; and reads 1e-4 as the number it is."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = key_node.value
            if isinstance(key, str) and key in seen and key != "<<":
                raise yaml.MarkedYAMLError(problem=f"{key!r} is there twice", problem_mark=key_node.start_mark)
            seen.add(str(key))
        return super().construct_mapping(node, deep=deep)


# YAML 1.1 wants a dot in a number with an exponent, and PyYAML takes `1e-4` for a text; YAML 1.2 and people do not.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _where(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return str(error).splitlines()[0]
