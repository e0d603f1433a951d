"""A job file, YAML or JSON, as plain values; and which dialect it is written in."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from stoker.errors import ConfigError, UsageError
from stoker.schema.dialects import aiplatform, stoker_yaml
from stoker.schema.dialects.reading import Values


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
    """AI Platform's Job resource, or our stoker.yaml? A file that looks like neither is judged as the former."""
    return aiplatform.is_dialect(document) or not stoker_yaml.is_dialect(document)


class _Loader(yaml.SafeLoader):
    """Refuses a key written twice, where YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = key_node.value
            if isinstance(key, str) and key in seen and key != "<<":
                raise yaml.MarkedYAMLError(problem=f"{key!r} is there twice", problem_mark=key_node.start_mark)
            seen.add(str(key))
        return super().construct_mapping(node, deep=deep)


def _where(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return str(error).splitlines()[0]
