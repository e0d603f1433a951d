"""A job file, YAML or JSON, as plain values; and which dialect it is written in."""

import importlib
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from stoker.compat.dialects import aiplatform
from stoker.errors import ConfigError, UsageError
from stoker.submission import job_file as stoker_yaml
from stoker.submission.reading import Reading, Values

_DETERMINED = frozenset({"entrypoint", "entrypoint_script", "hyperparameters", "searcher"})


def load(path: Path) -> Values:
    """The mapping in a YAML (or JSON, which is YAML) file. UsageError if there is no such file, or no mapping in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"Cannot read {path}: {reason}.") from error
    try:
        found = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {_where(error)}.") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} holds no fields: expected `key: value` lines, like `trainingInput:`.")
    return {str(key): value for key, value in found.items()}


def is_aiplatform(document: Values) -> bool:
    """AI Platform's Job resource, or a file that looks like none we know, which is judged as one."""
    if aiplatform.is_dialect(document):
        return True
    return not stoker_yaml.is_dialect(document) and not is_determined(document)


def is_determined(document: Values) -> bool:
    """Determined's experiment file, by the fields that every one of them has one of, and no other file has any.

    An App Engine's app.yaml has an entrypoint, too, beside its `runtime`.
    """
    return not _DETERMINED.isdisjoint(document) and not aiplatform.is_dialect(document) and "runtime" not in document


def read(document: Values, *, source: str) -> Reading:
    """Part of a JobSpec, from whichever dialect it is: Determined's, AI Platform's, or our own."""
    if is_aiplatform(document):
        return aiplatform.read(document, source=source)
    if is_determined(document):
        # Loaded when needed: its models take longer to build than all the rest of reading a file.
        determined = importlib.import_module("stoker.compat.dialects.determined")
        reading: Reading = determined.read(document, source=source)
        return reading
    return stoker_yaml.read(document, source=source)


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
