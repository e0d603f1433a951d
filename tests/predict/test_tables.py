"""Whole columns: the same numbers as row by row, and the same complaints."""

import math
from typing import Any

import numpy as np
import pyarrow
import pytest

from stoker.errors import InstanceError
from stoker.predict.base import TablePredictor
from stoker.predict.instances.tables import checked_table
from stoker.predict.loading import load
from stoker.schema.bundle import FieldSpec, Signature
from tests.predict.conftest import Export

MIXED = Signature(
    inputs=(
        FieldSpec(name="km", dtype="float", shape=()),
        FieldSpec(name="n", dtype="integer", shape=(), nullable=True),
        FieldSpec(name="ok", dtype="boolean", shape=()),
        FieldSpec(name="town", dtype="string", shape=(), categories=("a", "b")),
    )
)
GOOD: dict[str, Any] = {"km": [1.5, 2.0], "n": [1, None], "ok": [True, False], "town": ["a", "b"]}


def test_good_table_is_put_in_order_and_kind() -> None:
    table = pyarrow.table({**GOOD, "km": [1, 2], "n": [1.0, 2.0]}).select(["town", "ok", "n", "km"])

    found = checked_table(table, MIXED)

    assert found.column_names == ["km", "n", "ok", "town"]
    assert [str(kind) for kind in found.schema.types] == ["double", "int64", "bool", "string"]
    assert checked_table(pyarrow.table(GOOD).drop_columns(["n"]), MIXED).column("n").null_count == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"km": [1.0, math.nan]}, "instance 1, field 'km': is nan; expected a finite number"),
        ({"km": [1.0, None]}, "instance 1, field 'km': is null; expected a number"),
        ({"km": ["x", "1"]}, "instance 0, field 'km': is the text 'x'; expected a number"),
        ({"km": [True, False]}, "instance 0, field 'km': is true; expected a number"),
        ({"n": [1.0, 1.5]}, "instance 1, field 'n': is 1.5; expected a whole number"),
        ({"ok": [1, 0]}, "instance 0, field 'ok': is the number 1; expected true or false"),
        ({"town": ["a", "z"]}, "instance 1, field 'town': unknown category 'z'; known: a, b"),
        ({"town": ["a", None], "km": [1.0, 2.0]}, "instance 1, field 'town': is null; expected a text"),
        ({"town": ["a", "z"], "ok": [None, True]}, "instance 0, field 'ok': is null"),
        ({"more": [1, 2]}, "instance 0, field 'more': the model has no such field; it takes km, n, ok, town"),
        ({"km": None}, "instance 0, field 'km': is missing"),
    ],
)
def test_first_bad_row_is_named(changes: dict[str, Any], message: str) -> None:
    columns = {name: values for name, values in {**GOOD, **changes}.items() if values is not None}

    with pytest.raises(InstanceError) as caught:
        checked_table(pyarrow.table(columns), MIXED)

    assert message in str(caught.value)


@pytest.mark.parametrize("kind", ["regression", "labels", "xgboost"])
def test_columns_and_rows_give_the_same_numbers(kind: str, rows: Any, export: Export) -> None:
    import pandas
    import xgboost
    from sklearn.linear_model import LinearRegression, LogisticRegression

    frame = pandas.DataFrame(rows, columns=["a", "b", "c"])
    labels = np.where(rows[:, 0] > 0, "up", "down")
    model = {
        "regression": lambda: LinearRegression().fit(frame, rows[:, 0] * 2),
        "labels": lambda: LogisticRegression().fit(frame, labels),
        "xgboost": lambda: xgboost.XGBRegressor(n_estimators=2).fit(frame, rows[:, 0]),
    }[kind]()
    predictor = load(export(model), trust_pickle=True)
    table = pyarrow.table({name: rows[:, at] for at, name in enumerate("abc")})

    assert isinstance(predictor, TablePredictor)
    found = predictor.predict_table(table)

    assert found.column_names == [""]
    assert found.column("").to_pylist() == predictor.predict(rows.tolist()) == model.predict(frame).tolist()
    with pytest.raises(InstanceError, match="instance 0, field 'b': is the text 'x'"):
        predictor.predict_table(pyarrow.table({"a": [1.0, 1.0], "b": ["x", "y"], "c": [1.0, 1.0]}))
