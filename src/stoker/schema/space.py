"""What may vary between the trials of a search: parameters, maps of them, and when each applies.

A map with a `type` is a parameter, a map without one is nested, anything else is a constant. Errors are collected over
the whole space and name each field by its path.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from stoker.schema.model import Model

Number = Annotated[float, Field(allow_inf_nan=False)]
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
GridCount = Annotated[int, Field(ge=1, description="how many points of a grid")]
Path = tuple[str, ...]
Loc = tuple[str | int, ...]  # a path in a document
Space = dict[str, Any]  # names to parameters, or to maps of them


class Scale(StrEnum):
    """How the range is walked: AI Platform's UNIT_LINEAR, UNIT_LOG and UNIT_REVERSE_LOG."""

    LINEAR = "linear"
    LOG = "log"  # as many values between 0.01 and 0.1 as between 0.1 and 1
    REVERSE_LOG = "reverse_log"  # the same, with the crowd at the top


class _Parameter(Model):
    when: dict[str, Any] = Field({}, description="other parameters (dotted) and the value, or values, they must have")


class Const(_Parameter):
    type: Literal["const"] = "const"
    value: Any


class _Range(_Parameter):
    scale: Scale = Scale.LINEAR
    count: GridCount | None = None

    @field_validator("min", check_fields=False)
    @classmethod
    def _log_is_of_something(cls, low: float, info: ValidationInfo) -> float:
        scale = info.data.get("scale", Scale.LINEAR)
        if scale is not Scale.LINEAR and low <= 0:
            raise ValueError(f"a {scale} scale needs a range above zero")
        return low

    @field_validator("max", check_fields=False)
    @classmethod
    def _range_is_one(cls, high: float, info: ValidationInfo) -> float:
        if "min" in info.data and info.data["min"] >= high:
            raise ValueError(f"must be more than min, which is {info.data['min']:g}")
        return high


class Int(_Range):
    """Whole numbers, both ends included."""

    type: Literal["int"] = "int"
    min: Int64
    max: Int64


class Double(_Range):
    """Real numbers. `type: log` is short for this with `scale: log`."""

    type: Literal["double"] = "double"
    min: Number
    max: Number
    base: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 10.0  # of a log scale: its grid falls on whole powers


def _not_empty(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("needs at least one value")
    return values


class Categorical(_Parameter):
    """One of these, in no order; the values may be anything."""

    type: Literal["categorical"] = "categorical"
    values: tuple[Any, ...]

    _has_some = field_validator("values")(_not_empty)


def check_rising(values: tuple[int | float, ...]) -> tuple[int | float, ...]:
    """What a discrete parameter's values must be; ValueError says what they are not."""
    _not_empty(values)
    if not all(math.isfinite(value) for value in values):
        raise ValueError("must be finite numbers")
    if any(a >= b for a, b in pairwise(values)):
        raise ValueError("must be strictly increasing")
    return values


class Discrete(_Parameter):
    """One of these numbers, given in rising order."""

    type: Literal["discrete"] = "discrete"
    values: tuple[int | float, ...]

    _rises = field_validator("values")(check_rising)


Parameter = Const | Int | Double | Categorical | Discrete
PARAMETERS: dict[str, type[Model]] = {
    "const": Const,
    "int": Int,
    "double": Double,
    "categorical": Categorical,
    "discrete": Discrete,
}
MAX_GRID_AXIS = 1_000_000  # a search keeps all points of an axis in memory
_TYPES = ("const", "int", "double", "log", "categorical", "discrete")


def leaves(space: Mapping[str, Any]) -> dict[Path, Parameter]:
    """Every parameter by its path, maps walked in sorted order: the order of a grid's axes."""
    return dict(_leaves(space, ()))


def grid_size(parameter: Parameter) -> int:
    """How many points a grid has on this axis, at most."""
    match parameter:
        case Const():
            return 1
        case Categorical() | Discrete():
            return len(parameter.values)
        case Int():
            size = parameter.max - parameter.min + 1
            return min(parameter.count or size, size)
        case Double():
            return parameter.count or 1


def is_possible(parameter: Parameter, value: Any) -> bool:
    """Whether a parameter can ever have this value."""
    match parameter:
        case Const():
            return bool(parameter.value == value)
        case Categorical() | Discrete():
            return value in parameter.values
        case _:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return number and parameter.min <= value <= parameter.max


def wanted_values(wanted: Any) -> tuple[Any, ...]:
    """The right side of a `when`: a list means any of these."""
    return tuple(wanted) if isinstance(wanted, list | tuple) else (wanted,)


def parse_space(values: Any, errors: "Errors", *, read: "ReadParameter | None" = None) -> Space:
    """Plain values to parameters; whatever is wrong goes to `errors` and leaves a hole.

    `read` reads one map with a `type`; dialects with other words for the same things bring their own.
    """
    if not isinstance(values, Mapping):
        errors.add((), "must be a map of names to parameters", values)
        return {}
    names: dict[str, Path] = {}
    space = _parse_map(values, (), _Walk(errors, names, read or _read_parameter))
    _check_names(names, errors)
    _check_conditions(leaves(space), names, errors)
    return space


class Errors:
    """Findings with their paths, raised together."""

    def __init__(self) -> None:
        self.found: list[InitErrorDetails] = []

    def add(self, loc: Loc, message: str, value: Any) -> None:
        # The message is passed as a parameter: braces in it must not be read as a template.
        problem = PydanticCustomError("value_error", "{message}", {"message": message})
        self.found.append(InitErrorDetails(type=problem, loc=loc, input=value))

    def take(self, loc: Loc, error: ValidationError, *, rename: Callable[[Loc], Loc] = lambda loc: loc) -> None:
        """Another model's findings, moved under this path, or to where `rename` says they lie in the user's file."""
        for item in error.errors(include_url=False):
            kind: Any = item["type"]
            problem = PydanticCustomError(kind, "{message}", {"message": item["msg"]})
            self.found.append(InitErrorDetails(type=problem, loc=(*loc, *rename(item["loc"])), input=item["input"]))

    def raise_any(self, title: str) -> None:
        if self.found:
            raise ValidationError.from_exception_data(title, self.found)


ReadParameter = Callable[[Mapping[str, Any], Path, Errors], Any]


def pick_kind(kinds: Mapping[str, type[Model]], *, what: str, key: str = "name") -> Callable[[Any], Any]:
    """A validator for `NAME` or `{name: NAME, …}`, whose errors carry the user's path and not a union's tag."""

    def pick(value: Any) -> Any:
        if isinstance(value, tuple(kinds.values())):
            return value
        given = {key: value} if isinstance(value, str) else value
        if not isinstance(given, Mapping) or key not in given:
            raise ValueError(f"must be the name of a {what}, or a map with `{key}`. There are: {', '.join(kinds)}")
        if not isinstance(given[key], str) or given[key] not in kinds:
            raise ValueError(f"no such {what}: {given[key]}. There are: {', '.join(kinds)}")
        return kinds[given[key]].model_validate(given)

    return pick


@dataclass(frozen=True, slots=True)
class _Walk:
    """What parsing collects on its way: findings, and the name of every parameter, good or bad."""

    errors: Errors
    names: dict[str, Path]
    read: "ReadParameter"


def _leaves(space: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Parameter]]:
    for name in sorted(space):
        node = space[name]
        if isinstance(node, dict):
            yield from _leaves(node, (*path, name))
        elif node is not None:
            yield (*path, name), node


def _parse_map(values: Mapping[Any, Any], path: Path, walk: _Walk) -> Space:
    space: Space = {}
    for name, value in values.items():
        here = (*path, str(name))
        if not isinstance(name, str) or not name or name.startswith("-") or any(c.isspace() or c == "=" for c in name):
            walk.errors.add(here, "a parameter's name is a word without blanks or '=', not starting with '-'", name)
        else:
            space[name] = _parse_node(value, here, walk)
    return space


def _parse_node(value: Any, path: Path, walk: _Walk) -> Any:
    # A nested map may hold a parameter that is itself called `type`.
    if isinstance(value, Mapping) and ("type" not in value or isinstance(value["type"], Mapping | Model)):
        return _parse_map(value, path, walk)
    name = ".".join(path)
    if name in walk.names:
        walk.errors.add(path, "this name is there twice", name)
    walk.names[name] = path
    if isinstance(value, tuple(PARAMETERS.values())):
        return value
    return walk.read(value, path, walk.errors) if isinstance(value, Mapping) else Const(value=value)


def _read_parameter(value: Mapping[str, Any], path: Path, errors: Errors) -> Any:
    kind, fields = value["type"], dict(value)
    if kind not in _TYPES:
        errors.add((*path, "type"), f"no such type. There are: {', '.join(_TYPES)}", kind)
        return None
    if kind == "log":
        kind = "double"
        if "scale" in fields:
            errors.add((*path, "scale"), "type: log has the log scale; for another use type: double", fields["scale"])
        fields |= {"type": "double", "scale": Scale.LOG}
    try:
        return PARAMETERS[kind].model_validate(fields)
    except ValidationError as error:
        errors.take(path, error)
        return None


def _check_names(names: Mapping[str, Path], errors: Errors) -> None:
    seen: dict[str, str] = {}
    for name, path in names.items():
        # argparse keeps --learning-rate and --learning_rate under one name.
        plain = name.replace("-", "_")
        if plain in seen:
            errors.add(path, f"clashes with {seen[plain]}", name)
        if name == "job-dir":
            errors.add(path, "clashes with --job-dir, which every trial gets", name)
        seen[plain] = name


def _check_conditions(parameters: Mapping[Path, Parameter], names: Mapping[str, Path], errors: Errors) -> None:
    by_name = {".".join(path): parameter for path, parameter in parameters.items()}
    for path, parameter in parameters.items():
        for other, wanted in parameter.when.items():
            loc = (*path, "when", other)
            if other not in names:
                errors.add(loc, f"no such parameter. There are: {', '.join(names)}", wanted)
            elif _depends_on(other, ".".join(path), by_name):
                errors.add(loc, "a condition may not lead back to the parameter itself", wanted)
            elif other in by_name:
                for value in wanted_values(wanted):
                    if not is_possible(by_name[other], value):
                        errors.add(loc, f"{other} is never {value!r}", wanted)


def _depends_on(start: str, target: str, by_name: Mapping[str, Parameter]) -> bool:
    waiting, seen = [start], set()
    while waiting:
        name = waiting.pop()
        if name == target:
            return True
        if name in by_name and name not in seen:
            seen.add(name)
            waiting.extend(by_name[name].when)
    return False
