"""Blocks of CSV and Parquet as tables, and tables of predictions as lines, without a Python object for each row."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow
import pyarrow.csv

from stoker.predict.online.encoding import encode
from stoker.schema.bundle import FieldSpec, Signature

_TYPES: dict[str, Any] = {
    "float": pyarrow.float64(),
    "integer": pyarrow.int64(),
    "boolean": pyarrow.bool_(),
    "string": pyarrow.string(),
}
_TRUE, _FALSE = ["true", "True", "TRUE", "1", "yes"], ["false", "False", "FALSE", "0", "no"]


@dataclass(frozen=True, slots=True)
class Keyed:
    """A table of the model's inputs, and the rows' keys if they have any."""

    table: pyarrow.Table
    keys: Sequence[Any] | None


def from_csv(
    data: bytes, signature: Signature, *, columns: list[str] | None, key: tuple[str | None, int | None]
) -> Keyed | None:
    """None when the model's inputs are no plain columns, or anything in the block is odd: row by row says what."""
    inputs = {spec.name: spec for spec in signature.inputs}
    if not _are_columns(signature.inputs):
        return None
    names = list(columns) if columns is not None else list(inputs)
    key_name, key_at = key
    if key_name is not None and key_at is not None and key_name not in inputs:
        names.insert(key_at, key_name)
    types = {name: _TYPES.get(inputs[name].dtype, pyarrow.string()) for name in names if name in inputs}
    try:
        table = pyarrow.csv.read_csv(
            io.BytesIO(data),
            read_options=pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=max(len(data), 1)),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={**types, **({key_name: pyarrow.string()} if key_name is not None else {})},
                null_values=[""],
                strings_can_be_null=True,
                true_values=_TRUE,
                false_values=_FALSE,
            ),
        )
    except pyarrow.ArrowInvalid:
        return None
    return from_table(table, signature, key=key_name)


def from_table(table: pyarrow.Table, signature: Signature, *, key: str | None) -> Keyed | None:
    """The model's columns of a table, in its order; None if they are not what it takes."""
    if not _are_columns(signature.inputs):
        return None
    keys = None
    if key is not None:
        if key not in table.column_names:
            return None
        keys = table.column(key).to_pylist()
        if not any(spec.name == key for spec in signature.inputs):
            table = table.drop_columns([key])
    known = {spec.name: spec for spec in signature.inputs}
    if any(name not in known for name in table.column_names):
        return None
    if any(name not in table.column_names and not spec.nullable for name, spec in known.items()):
        return None
    arrays = [_filled(table.column(name), known[name]) for name in table.column_names]
    return Keyed(pyarrow.table(arrays, names=table.column_names), keys)


def lines_of(answer: pyarrow.Table, *, key: str | None, keys: Sequence[Any] | None) -> bytes:
    """A JSON value a line: of one output without a name its bare value, else an object."""
    if keys is None and (written := _written_by_polars(answer)) is not None:
        return written
    texts = [_texts(answer.column(name)) for name in answer.column_names]
    if answer.column_names == [""]:
        lines = texts[0]
    else:
        form = "{" + ", ".join(f"{_escaped(name)}: %s" for name in answer.column_names) + "}"
        lines = [form % cells for cells in zip(*texts, strict=True)]
    if keys is not None:
        form = "{" + _escaped(str(key)) + ': %s, "prediction": %s}'
        lines = [form % pair for pair in zip(map(json.dumps, keys), lines, strict=True)]
    return "\n".join([*lines, ""]).encode()


def _written_by_polars(answer: pyarrow.Table) -> bytes | None:
    """The same, for plain columns and no gaps, many times as quickly; None where it cannot, or is not installed."""
    try:
        import polars  # noqa: PLC0415  an extra
    except ImportError:
        return None
    parts: list[Any] = []
    for name in answer.column_names:
        texts = _series(answer.column(name), polars)
        if texts is None:
            return None
        head = _escaped(name).replace("%%", "%") + ": " if name else ""
        cells = [texts[0]] if len(texts) == 1 else ["[", *_between(texts, ", "), "]"]
        parts += [", " if parts else "", head, *cells]
    ends = ("", "\n") if answer.column_names == [""] else ("{", "}\n")
    words = [part if isinstance(part, polars.Series) else polars.lit(part) for part in (ends[0], *parts, ends[1])]
    lines = polars.select(polars.concat_str(words)).to_series()
    # Their letters lie one behind the other there.
    return bytes(lines.to_arrow().buffers()[2]) if len(lines) else b""


def _series(column: pyarrow.ChunkedArray, polars: Any) -> "list[Any] | None":
    """A column as JSON texts, a list of so many values as so many columns; None when it takes more than that."""
    kind = column.type
    if column.null_count or not len(column):
        return None
    if pyarrow.types.is_fixed_size_list(kind) and kind.list_size and pyarrow.types.is_floating(kind.value_type):
        flat = polars.from_arrow(column.combine_chunks().flatten())
        texts = _number_texts(flat, polars)
        return None if texts is None else [texts.gather_every(kind.list_size, at) for at in range(kind.list_size)]
    if pyarrow.types.is_dictionary(kind):
        coded = column.combine_chunks()
        distinct = polars.Series([json.dumps(value) for value in coded.dictionary.to_pylist()])
        return [distinct.gather(polars.from_arrow(coded.indices))]
    values = polars.from_arrow(column)
    if pyarrow.types.is_floating(kind):
        texts = _number_texts(values, polars)
        return None if texts is None else [texts]
    if pyarrow.types.is_integer(kind):
        return [values.cast(polars.String)]
    if pyarrow.types.is_string(kind):
        distinct = values.unique()
        if len(distinct) * 4 <= len(values):  # labels; else each is a text of its own
            return [values.replace_strict(distinct, [json.dumps(text) for text in distinct])]
    return None


def _number_texts(values: Any, polars: Any) -> Any:
    """As Python writes them, but for an exponent's zero; None if one is no JSON number."""
    if values.null_count() or not values.is_finite().all():
        return None
    return values.cast(polars.Float64).cast(polars.String)


def _between(items: list[Any], separator: str) -> list[Any]:
    return [each for item in items for each in (separator, item)][1:]


def _escaped(name: str) -> str:
    return json.dumps(name).replace("%", "%%")


def _texts(column: pyarrow.ChunkedArray | pyarrow.Array) -> list[str]:
    """Each value as JSON. A list of plain values is written in one go: its separator is a line's end."""
    if len(column) == 0:
        return []
    kind = column.type
    if pyarrow.types.is_fixed_size_list(kind) and kind.list_size and not column.null_count:
        inner = iter(_texts(column.combine_chunks().flatten() if hasattr(column, "chunks") else column.flatten()))
        form = f"[{', '.join(['%s'] * kind.list_size)}]"
        return [form % cells for cells in zip(*[inner] * kind.list_size, strict=True)]
    values = column.to_pylist()
    try:
        if not pyarrow.types.is_nested(kind):
            return _AT_ONCE(values)[1:-1].split("\n")
    except (ValueError, TypeError):
        pass  # NaN and its kin have words of their own, value by value
    return [encode(value).decode() for value in values]


_AT_ONCE = json.JSONEncoder(allow_nan=False, separators=("\n", ":")).encode


def _are_columns(inputs: Sequence[FieldSpec]) -> bool:
    return bool(inputs) and all(spec.name and spec.shape in ((), None) for spec in inputs)


def _filled(column: pyarrow.ChunkedArray, spec: FieldSpec) -> pyarrow.ChunkedArray:
    """An empty cell is the empty text where texts are wanted and nothing may be missing, as for single rows."""
    if spec.dtype == "string" and not spec.nullable and pyarrow.types.is_string(column.type) and column.null_count:
        return column.fill_null("")
    return column
