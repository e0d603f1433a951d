"""What a table is: its columns, what each one means, what is to be predicted, and what a missing value is."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from stoker.errors import ConfigError
from stoker.schema.model import config_error

Task = Literal["binary", "multiclass", "regression"]


@dataclass(frozen=True, slots=True)
class Numeric:
    """A number. Without stats, mean and std are taken from the training data; `log` is for long-tailed amounts.

    `buckets`: into how many quantiles the wide side cuts it (0: it does not); `boundaries` says where instead.
    """

    name: str
    mean: float | None = None
    std: float | None = None
    log: bool = False
    buckets: int = 10
    boundaries: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Categorical:
    """One of several values: a vocabulary (learnt from the training data if not given), whole numbers below
    `identity`, or strings hashed into `hash_buckets`. Of a learnt vocabulary the `max_size` most frequent are kept.
    """

    name: str
    vocabulary: tuple[str, ...] = ()
    identity: int = 0
    hash_buckets: int = 0
    max_size: int = 10_000
    embedding: int = 0  # its size on the deep side; 0: by the vocabulary's


@dataclass(frozen=True, slots=True)
class Date:
    """A date or time: becomes its day as a number, and its month, weekday and hour as categories.

    `format` as in strptime; without, ISO 8601 (`2014-07-25 11:43:29`)."""

    name: str
    format: str | None = None


@dataclass(frozen=True, slots=True)
class GeoPoint:
    """A place in degrees, from two columns."""

    name: str
    latitude: str
    longitude: str


@dataclass(frozen=True, slots=True)
class Metadata:
    """The whole description. `header` has all columns of the files, in their order; what no other field names is
    left aside. `missing`: "indicate" takes the mean and tells the model so; "error" refuses the row."""

    task: Task
    header: tuple[str, ...]
    target: str
    labels: tuple[str, ...] = ()
    numeric: tuple[Numeric, ...] = ()
    categorical: tuple[Categorical, ...] = ()
    dates: tuple[Date, ...] = ()
    points: tuple[GeoPoint, ...] = ()
    distances: tuple[tuple[str, str], ...] = ()  # pairs of points: how far apart, in km
    crosses: tuple[tuple[str, ...], ...] = ()  # columns whose values count together, on the wide side
    cross_buckets: int = 1000
    weight: str | None = None
    missing: Literal["indicate", "error"] = "indicate"
    missing_values: tuple[str, ...] = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")

    def __post_init__(self) -> None:
        if problems := tuple(_problems(self)):
            raise ConfigError("The table's metadata cannot be right:", problems)

    @property
    def num_outputs(self) -> int:
        return len(self.labels) if self.task == "multiclass" else 1

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """The columns of a file that features are made from, in the header's order."""
        used = {item.name for item in self.numeric} | {item.name for item in self.categorical}
        used |= {item.name for item in self.dates}
        used.update(name for point in self.points for name in (point.latitude, point.longitude))
        return tuple(name for name in self.header if name in used)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any, *, source: str) -> "Metadata":
        try:
            return TypeAdapter(cls).validate_python(values)
        except ValidationError as error:
            raise config_error(error, source=source) from error


def to_source(metadata: Metadata) -> str:
    """The Python that makes it: what `stoker recipes infer` writes."""
    lines = []
    for field in fields(metadata):
        value = getattr(metadata, field.name)
        if field.name in ("task", "header", "target") or value != field.default:
            lines.append(f"    {field.name}={_in_source(value)},")
    return "Metadata(\n" + "\n".join(lines) + "\n)"


def _in_source(value: Any) -> str:
    if not isinstance(value, tuple):
        return _literal(value)
    if all(isinstance(item, str) for item in value):
        return _tuple(value, indent=4)
    return "(\n" + "".join(f"        {_call(item)},\n" for item in value) + "    )"


def _call(item: Any) -> str:
    """`Numeric("age", log=True)`: the name, then what is not the default."""
    if isinstance(item, tuple):
        return _tuple(item, indent=8)
    parts = [_literal(item.name)]
    for field in fields(item)[1:]:
        value = getattr(item, field.name)
        if value != field.default:
            parts.append(f"{field.name}={_tuple(value, indent=8) if isinstance(value, tuple) else _literal(value)}")
    return f"{type(item).__name__}({', '.join(parts)})"


def _tuple(values: tuple[Any, ...], *, indent: int) -> str:
    """On one line if it fits, else on as many as it takes."""
    items = [_literal(value) for value in values]
    whole = ", ".join(items) + ("," if len(items) == 1 else "")
    if len(whole) < 70:
        return f"({whole})"
    lines = [""]
    for item in items:
        if len(lines[-1]) + len(item) > 100 - indent:
            lines.append("")
        lines[-1] += f"{item}, "
    inside = "".join(f"{' ' * (indent + 4)}{line.rstrip()}\n" for line in lines)
    return f"(\n{inside}{' ' * indent})"


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _problems(metadata: Metadata) -> Iterator[str]:
    header = metadata.header
    yield from (f"header: {name!r} is there twice" for name in _repeated(header))
    if metadata.target not in header:
        yield f"target: no column {metadata.target!r} in the header"
    if metadata.weight is not None and metadata.weight not in header:
        yield f"weight: no column {metadata.weight!r} in the header"
    yield from _label_problems(metadata)
    yield from _column_problems(metadata)
    yield from _cross_problems(metadata)


def _label_problems(metadata: Metadata) -> Iterator[str]:
    count = len(metadata.labels)
    yield from (f"labels: {label!r} is there twice" for label in _repeated(metadata.labels))
    if metadata.task == "regression" and count:
        yield "labels: a regression has none; a classification is task='binary' or 'multiclass'"
    if metadata.task == "binary" and count != 2:
        yield f"labels: task='binary' needs two (the second is the positive one), and there are {count}"
    if metadata.task == "multiclass" and count < 3:
        yield f"labels: task='multiclass' needs three or more, and there are {count}"


def _column_problems(metadata: Metadata) -> Iterator[str]:
    kinds = (metadata.numeric, metadata.categorical, metadata.dates)
    named = [item.name for kind in kinds for item in kind]
    read = [*named, *(name for point in metadata.points for name in (point.latitude, point.longitude))]
    for name in dict.fromkeys(read):
        if name not in metadata.header:
            yield f"no column {name!r} in the header"
        elif name in (metadata.target, metadata.weight):
            yield f"{name!r} is the target or the weight, and cannot be a feature too"
    yield from (f"{name!r} is described twice" for name in _repeated(named))
    if not read:
        yield "there is no feature: name some under numeric, categorical, dates or points"
    for item in metadata.categorical:
        given = [bool(item.vocabulary), bool(item.identity), bool(item.hash_buckets)]
        if sum(given) > 1:
            yield f"{item.name!r}: vocabulary, identity or hash_buckets, and only one of them"
        yield from (f"{item.name!r}: {value!r} is in the vocabulary twice" for value in _repeated(item.vocabulary))
    for number in metadata.numeric:
        if number.std is not None and not number.std > 0:
            yield f"{number.name!r}: std is {number.std}, expected more than 0"
        if list(number.boundaries) != sorted(set(number.boundaries)):
            yield f"{number.name!r}: boundaries must rise"


def _cross_problems(metadata: Metadata) -> Iterator[str]:
    points = [point.name for point in metadata.points]
    for pair in metadata.distances:
        yield from (f"distances: no point {name!r}" for name in pair if name not in points)
    columns = {item.name for kind in (metadata.numeric, metadata.categorical) for item in kind}
    columns.update(f"{date.name}.{part}" for date in metadata.dates for part in ("month", "weekday", "hour"))
    for cross in metadata.crosses:
        if len(cross) < 2:
            yield f"crosses: {cross} has fewer than two columns"
        yield from (f"crosses: {name!r} is no numeric or categorical column" for name in cross if name not in columns)


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if list(names).count(name) > 1]
