"""The one pydantic base of every noun, and the one way to turn its complaints into ours."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from stoker.errors import ConfigError


class Model(BaseModel):
    """Frozen; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    @classmethod
    def parse(cls, values: Mapping[str, Any], *, source: str) -> Self:
        """Build from plain values; every bad field is named, with its path, in one ConfigError."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise config_error(error, source=source) from error

    def with_(self, **changes: Any) -> Self:
        """A copy with these fields changed, validated again (`model_copy` would not)."""
        return type(self).model_validate({**dict(self), **changes})


def config_error(error: ValidationError, *, source: str) -> ConfigError:
    """Pydantic's findings as lines a person can act on: `path: what is wrong (got …)`."""
    problems = []
    for item in error.errors(include_url=False):
        path = ".".join(str(part) for part in item["loc"]) or "(top)"
        if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            problems.append(f"{path}: no such field")
        elif item["type"] == "missing":
            problems.append(f"{path}: is required")
        else:
            problems.append(f"{path}: {_lower_first(item['msg'])} (got {_short(item['input'])})")
    return ConfigError(f"{source} has {len(problems)} bad field{'s' if len(problems) > 1 else ''}:", problems)


def _lower_first(text: str) -> str:
    text = text.removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
