"""CSV: a header names the columns, or they come in the signature's order; cells become what the signature says."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from stoker.errors import ConfigError, InstanceError
from stoker.predict.base import Instance
from stoker.predict.instances.checking import listed, short
from stoker.schema.bundle import FieldSpec, Signature

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
_MAX_CELL = 64 << 20


def csv_instances(data: bytes, signature: Signature) -> list[Instance]:
    """Each row as an instance. The first row is a header when it names the model's fields; of a model whose fields are
    not known it must be one. InstanceError names row and column."""
    rows = list(_rows(data))
    if not rows:
        return []
    columns = header_of(rows[0], signature)
    if columns is not None:
        rows = rows[1:]
    return [csv_instance(cells, signature, columns, index=index) for index, cells in enumerate(rows)]


def header_of(cells: Sequence[str], signature: Signature) -> list[str] | None:
    """The columns that the first row names; None when it is data. ConfigError if it names others than the model's."""
    names = [spec.name for spec in signature.inputs]
    cells = [cell.strip() for cell in cells]
    if not names:
        return cells
    if names == [""] or not set(cells) & set(names) or any(_is_number(cell) for cell in cells):
        is_title = names == [""] and signature.inputs[0].dtype == "float" and not any(map(_is_number, cells))
        return cells if is_title and any(cells) else None
    problems = [f"{name}: the model has no such field" for name in cells if name not in names]
    problems += [
        f"{spec.name}: is missing" for spec in signature.inputs if spec.name not in cells and not spec.nullable
    ]
    problems += [f"{name}: is there twice" for name in sorted({name for name in cells if cells.count(name) > 1})]
    if problems:
        raise ConfigError(f"The CSV's header is not the model's, which takes {listed(names)}:", problems)
    return cells


def csv_instance(cells: Sequence[str], signature: Signature, columns: list[str] | None, *, index: int) -> Instance:
    """One row; `columns` is the header, if there was one."""
    inputs = signature.inputs
    if len(inputs) == 1 and not inputs[0].name:
        return _bare(cells, inputs[0], index=index)
    names = columns if columns is not None else [spec.name for spec in inputs]
    if len(cells) != len(names):
        raise InstanceError(f"has {len(cells)} columns; expected {len(names)}: {listed(names)}", index=index)
    specs = {spec.name: spec for spec in inputs}
    return {
        name: cell_value(cell, specs.get(name) or FieldSpec(name=name), index=index)
        for name, cell in zip(names, cells, strict=True)
    }


def cell_value(cell: str, spec: FieldSpec, *, index: int) -> Any:
    """A cell as its field's kind. An empty one is null, unless texts are wanted: then it is the empty text."""
    if spec.dtype == "string":
        return None if not cell and spec.nullable else cell
    text = cell.strip()
    if not text:
        return None
    if spec.dtype in ("float", "integer"):
        return _number(text, spec, index=index)
    if spec.dtype == "boolean":
        if text.lower() in _TRUE + _FALSE:
            return text.lower() in _TRUE
        raise InstanceError(f"is {short(cell)}; expected true or false", index=index, field=spec.name or None)
    if spec.dtype == "any" and _is_number(text):
        return float(text)
    return cell


def _bare(cells: Sequence[str], spec: FieldSpec, *, index: int) -> Instance:
    values = [cell_value(cell, spec, index=index) for cell in cells]
    if spec.shape == ():
        if len(values) != 1:
            raise InstanceError(f"has {len(values)} columns; expected one", index=index)
        return values[0]
    if spec.shape is not None and len(spec.shape) == 1 and spec.shape[0] not in (None, len(values)):
        raise InstanceError(f"has {len(values)} columns; expected {spec.shape[0]}", index=index)
    return values


def _number(text: str, spec: FieldSpec, *, index: int) -> Any:
    try:
        if "_" in text:  # Python's own, and nobody's CSV
            raise ValueError
        return int(text) if spec.dtype == "integer" and text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        raise InstanceError(f"is {short(text)}; expected a number", index=index, field=spec.name or None) from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _rows(data: bytes) -> Iterator[list[str]]:
    """Rows that hold something. ConfigError or InstanceError for what is no CSV, or not UTF-8."""
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = error.start - (data.rfind(b"\n", 0, error.start) + 1)
        raise ConfigError(f"The CSV is not UTF-8: byte {byte} of line {line} is 0x{data[error.start]:02x}.") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    previous, csv_limit = csv.field_size_limit(), _MAX_CELL
    try:
        csv.field_size_limit(csv_limit)
        yield from (row for row in reader if row)
    except csv.Error as error:
        raise ConfigError(f"The CSV cannot be read at line {reader.line_num}: {error}.") from error
    finally:
        csv.field_size_limit(previous)
