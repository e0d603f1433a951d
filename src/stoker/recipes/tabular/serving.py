"""Predict with a trained model of a table: from JSON objects, rows, CSV lines, tf.Examples, or whole columns.

An instance becomes columns, and columns become tensors by the same code as in training (columns.py).
"""

import base64
import binascii
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import polars as pl
import pyarrow as pa
import torch

from stoker.errors import InstanceError
from stoker.predict.base import Instance, Prediction, TablePredictor
from stoker.predict.instances.example import parse_example
from stoker.predict.versions import warn_of_other_versions
from stoker.recipes.tabular.bundle import read_bundle
from stoker.recipes.tabular.columns import BadValue, Encoder, read_as
from stoker.recipes.tabular.features import Features
from stoker.recipes.tabular.inference import exact, infer, one_thread
from stoker.schema.bundle import ModelCard


def load(folder: Path, card: ModelCard) -> TablePredictor:
    warn_of_other_versions(card)
    net, features = read_bundle(folder)
    return TabularPredictor(net, features, card)


class TabularPredictor:
    """`{"label", "probabilities"}` of each instance, or `{"value"}` for a regression."""

    def __init__(self, net: torch.nn.Module, features: Features, card: ModelCard) -> None:
        self.card = card
        self._net = exact(net)
        self._features = features
        self._columns = features.metadata.feature_columns

    def predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        if not instances:
            return []
        rows = [self._row(instance, index) for index, instance in enumerate(instances)]
        columns = {name: _column(name, [row[place] for row in rows]) for place, name in enumerate(self._columns)}
        predicted = self._infer(columns).tolist()
        labels = self._features.metadata.labels
        if not labels:
            return [{"value": value} for value in predicted]
        return [{"label": labels[row.index(max(row))], "probabilities": row} for row in predicted]

    def predict_table(self, table: pa.Table) -> pa.Table:
        for name in self._columns:
            if name not in table.column_names:
                raise InstanceError("the column is missing", index=0, field=name)
        frame = cast(pl.DataFrame, pl.from_arrow(table.select(list(self._columns))))
        with one_thread():
            predicted = self._infer({name: frame[name] for name in self._columns})
        labels = self._features.metadata.labels
        if not labels:
            return pa.table({"value": predicted.numpy()})
        flat = pa.array(predicted.numpy().reshape(-1))
        lists = pa.FixedSizeListArray.from_arrays(flat, len(labels))
        chosen = pa.array(predicted.argmax(1).numpy()) if len(predicted) else pa.array([], pa.int64())
        return pa.table({"label": pa.DictionaryArray.from_arrays(chosen, list(labels)), "probabilities": lists})

    def _infer(self, columns: Mapping[str, pl.Series]) -> torch.Tensor:
        metadata = self._features.metadata
        kinds = read_as(metadata)
        frame = pl.DataFrame([_as_kind(columns[name], kinds[name], metadata.missing_values) for name in self._columns])
        try:
            numbers, codes = Encoder(metadata, self._features.vocabularies).features(frame)
        except BadValue as bad:
            raise InstanceError(bad.reason, index=bad.row, field=bad.column) from bad
        return infer(self._net, self._features, torch.from_numpy(numbers), torch.from_numpy(codes))

    def _row(self, instance: Instance, index: int) -> list[Any]:
        """The instance's values in the order of the columns."""
        message = _message(instance, index)
        if message is not None:
            instance = _from_example(message, index, self._columns)
        if isinstance(instance, str):
            instance = next(csv.reader([instance]), [])
        if isinstance(instance, Mapping):
            return [_field(instance, name, index) for name in self._columns]
        if isinstance(instance, Sequence) and not isinstance(instance, bytes):
            return self._by_place(list(instance), index)
        raise InstanceError(
            f"a {type(instance).__name__}: expected an object of columns, a row, a line of CSV or a tf.Example",
            index=index,
        )

    def _by_place(self, values: list[Any], index: int) -> list[Any]:
        """A row has the features in the header's order, or the whole header, or that without the target."""
        metadata = self._features.metadata
        without = tuple(name for name in metadata.header if name != metadata.target)
        for names in (self._columns, without, metadata.header):
            if len(values) == len(names):
                return [values[names.index(name)] for name in self._columns]
        raise InstanceError(
            f"{len(values)} values: expected {len(self._columns)}, {', '.join(self._columns)}", index=index
        )


def _field(instance: Mapping[str, Any], name: str, index: int) -> Any:
    if name not in instance:
        raise InstanceError("is missing; give null for an unknown value", index=index, field=name)
    value = instance[name]
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, list | dict | tuple):
        raise InstanceError(f"is a {type(value).__name__}, expected one value", index=index, field=name)
    return value


def _message(instance: Instance, index: int) -> bytes | None:
    """The bytes of a tf.Example, be they plain, or in base64 as JSON has them, or under a name of their own."""
    if isinstance(instance, Mapping) and len(instance) == 1:
        name, value = next(iter(instance.items()))
        if name != "b64":
            return _message(value, index) if isinstance(value, Mapping | bytes) else None
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise InstanceError("is not base64", index=index, field=name) from error
    return instance if isinstance(instance, bytes) else None


def _from_example(message: bytes, index: int, columns: Sequence[str]) -> dict[str, Any]:
    """A feature that is not in the message is missing: tf.Example has no other word for that."""
    found = parse_example(message, index=index)
    if not set(found) & set(columns):
        raise InstanceError(f"the tf.Example has none of {', '.join(columns)}", index=index)
    return {name: _first(found.get(name, ())) for name in columns}


def _first(values: Sequence[Any]) -> Any:
    value = values[0] if values else None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _column(name: str, values: list[Any]) -> pl.Series:
    """Values as JSON has them: all numbers stay numbers, a mixture becomes text."""
    if all(value is None or type(value) in (int, float) for value in values):
        return pl.Series(name, [None if value is None else float(value) for value in values], dtype=pl.Float64)
    return pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)


def _as_kind(column: pl.Series, kind: pl.DataType, missing_values: Sequence[str]) -> pl.Series:
    """A column as training would have read it. Raises InstanceError."""
    if column.dtype == pl.String and isinstance(kind, pl.Categorical):
        return column.cast(kind)  # Vocabulary strips each distinct one, and knows those that mean a gap
    if column.dtype == pl.String:
        column = column.str.strip_chars()
        column = column.set(column.is_in(["", *missing_values]), None)
    if isinstance(kind, pl.Categorical):
        if column.dtype.is_float():  # 3.0 in JSON is 3 in CSV
            whole = column.cast(pl.Int64, strict=False)
            column = whole if (whole.cast(column.dtype) == column).all() else column
        return column.cast(pl.String).cast(kind)
    if kind == pl.String:
        return column if column.dtype.is_temporal() else column.cast(pl.String)
    found = column.cast(kind, strict=False)
    if found.null_count() == column.null_count():
        return found
    row = (found.is_null() & column.is_not_null()).arg_max() or 0
    raise InstanceError(f"{str(column[row])!r} is not a number", index=row, field=column.name)
