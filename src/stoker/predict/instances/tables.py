"""Whole columns against a signature, and answers as columns: `checking` and `answers` without an object a value."""

from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute as compute

from stoker.errors import InstanceError
from stoker.predict.instances.arrays import Array
from stoker.predict.instances.checking import check_value, listed
from stoker.schema.bundle import FieldSpec, Signature

_TYPES: dict[str, Any] = {
    "float": pyarrow.float64(),
    "integer": pyarrow.int64(),
    "boolean": pyarrow.bool_(),
    "string": pyarrow.string(),
}


def checked_table(table: pyarrow.Table, signature: Signature) -> pyarrow.Table:
    """The model's columns in its order and kinds. InstanceError names the first bad row, and its field."""
    specs = {spec.name: spec for spec in signature.inputs}
    for name in table.column_names:
        if name not in specs:
            what = f"the model has no such field; it takes {listed(list(specs))}"
            raise InstanceError(what, index=0, field=name)
    for name, spec in specs.items():
        if name not in table.column_names and not spec.nullable:
            raise InstanceError("is missing", index=0, field=name)
    columns = {name: _column(table, spec) for name, spec in specs.items()}
    bad = [(row, name) for name, column in columns.items() if (row := _first_bad(column, specs[name])) is not None]
    if bad:
        row, name = min(bad, key=lambda found: found[0])
        check_value(columns[name][row].as_py(), specs[name], index=row)
        raise InstanceError(f"is not {specs[name].dtype}", index=row, field=name)
    return pyarrow.table({name: _cast(column, specs[name]) for name, column in columns.items()})


def matrix_of(table: pyarrow.Table) -> Array:
    """A checked table of numbers as rows of float64; what is missing is NaN."""
    if not table.num_rows:
        return np.empty((0, table.num_columns))
    return np.column_stack([column.to_numpy().astype(np.float64, copy=False) for column in table.columns])


def answer_table(found: Any) -> pyarrow.Table:
    """What a framework answered, as columns; a bare answer's column has no name."""
    if isinstance(found, dict):
        return pyarrow.table({str(name): _answer_column(values) for name, values in found.items()})
    return pyarrow.table({"": _answer_column(found)})


def _answer_column(values: Any) -> pyarrow.Array:
    values = np.asarray(values)
    if values.ndim == 1:
        return pyarrow.array(values.tolist() if values.dtype.kind in "OUS" else values)
    flat = pyarrow.array(values.reshape(-1))
    for size in reversed(values.shape[1:]):
        flat = pyarrow.FixedSizeListArray.from_arrays(flat, size)
    return flat


def _column(table: pyarrow.Table, spec: FieldSpec) -> pyarrow.ChunkedArray:
    if spec.name in table.column_names:
        column = table.column(spec.name)
        return column.cast(column.type.value_type) if pyarrow.types.is_dictionary(column.type) else column
    return pyarrow.chunked_array([pyarrow.nulls(table.num_rows, _TYPES.get(spec.dtype))])


def _first_bad(column: pyarrow.ChunkedArray, spec: FieldSpec) -> int | None:
    if spec.dtype not in _TYPES:
        return None
    bad = compute.is_null(column)
    if spec.nullable:
        bad = compute.and_(bad, False)
    if not _is_kind(column.type, spec.dtype):
        bad = compute.or_(bad, compute.is_valid(column))
    elif pyarrow.types.is_floating(column.type):
        bad = compute.or_(bad, compute.fill_null(_odd_number(column, spec), False))
    if spec.categories is not None:
        known = pyarrow.array(spec.categories, pyarrow.string())
        as_text = column if pyarrow.types.is_string(column.type) else column.cast(pyarrow.string())
        unknown = compute.and_(compute.is_valid(column), compute.invert(compute.is_in(as_text, value_set=known)))
        bad = compute.or_(bad, unknown)
    place = compute.index(bad, True).as_py()
    return None if place < 0 else int(place)


def _odd_number(column: pyarrow.ChunkedArray, spec: FieldSpec) -> pyarrow.ChunkedArray:
    odd = compute.is_inf(column) if spec.nullable else compute.invert(compute.is_finite(column))
    if spec.dtype == "integer":
        odd = compute.or_(odd, compute.not_equal(compute.floor(column), column))
    return odd


def _is_kind(found: pyarrow.DataType, dtype: str) -> bool:
    types = pyarrow.types
    if types.is_null(found):
        return True
    if dtype in ("float", "integer"):
        return bool(types.is_integer(found) or types.is_floating(found))
    if dtype == "boolean":
        return bool(types.is_boolean(found))
    return bool(types.is_string(found) or types.is_large_string(found))


def _cast(column: pyarrow.ChunkedArray, spec: FieldSpec) -> pyarrow.ChunkedArray:
    wanted = _TYPES.get(spec.dtype)
    return column if wanted is None or column.type == wanted else column.cast(wanted, safe=False)
