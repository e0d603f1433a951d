"""What the signature says is what is taken; the fast ways and the careful one agree."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import InstanceError
from stoker.predict.instances.arrays import arrays, matrix
from stoker.predict.instances.checking import checked
from stoker.schema.bundle import FieldSpec, Signature


def one(**settings: Any) -> Signature:
    return Signature(inputs=(FieldSpec(**{"name": "x", "shape": (), **settings}),))


ROW = Signature(inputs=(FieldSpec(name="", dtype="float", shape=(3,)),))


@pytest.mark.parametrize(
    ("signature", "value", "message"),
    [
        (one(dtype="float"), "1", "is the text '1'; expected a number"),
        (one(dtype="float"), True, "is true; expected a number"),
        (one(dtype="float"), None, "is null; expected a number"),
        (one(dtype="float"), math.nan, "is nan; expected a finite number"),
        (one(dtype="float", nullable=True), math.inf, "is inf; expected a finite number"),
        (one(dtype="float"), 10**400, "expected a finite number"),
        pytest.param(one(dtype="float"), 10**5000, "a very large number", id="huge"),
        (one(dtype="float"), [1], "is a list; expected a number"),
        (one(dtype="integer"), 1.5, "is 1.5; expected a whole number"),
        (one(dtype="integer"), 2**63, "expected a whole number"),
        (one(dtype="boolean"), 1, "is the number 1; expected true or false"),
        (one(dtype="string"), 1, "is the number 1; expected a text"),
        (one(dtype="string", categories=("a", "b")), "z", "unknown category 'z'; known: a, b"),
        (one(dtype="bytes"), {"b64": "?"}, "is not base64"),
        (one(dtype="float", shape=(2,)), [1], "has 1 values; expected 2"),
        (one(dtype="float", shape=(2,)), 1, "is the number 1; expected a list of 2 float values"),
        (one(dtype="float", shape=(None, 2)), [[1, 2], [3]], "has 1 values; expected 2"),
    ],
)
def test_bad_value_is_refused_with_instance_and_field(signature: Signature, value: Any, message: str) -> None:
    for instance in (value, {"x": value}):
        with pytest.raises(InstanceError, match=f"instance 0, field 'x': .*{message.split(';')[0][:20]}") as caught:
            checked([instance], signature)
        assert message in str(caught.value)
        assert (caught.value.index, caught.value.field) == (0, "x")


def test_object_is_a_value_only_where_that_is_meant() -> None:
    assert checked([{"b64": "AQI="}], one(dtype="bytes")) == [[b"\x01\x02"]]
    with pytest.raises(InstanceError, match="instance 0, field 'b65': the model has no such field; it takes x"):
        checked([{"b65": "AQI="}], one(dtype="bytes"))
    with pytest.raises(InstanceError, match="instance 0, field 'x': is an object; expected a text, or"):
        checked([{"x": {"b65": ""}}], one(dtype="bytes"))


def test_good_values_are_converted() -> None:
    assert checked([{"x": {"b64": "AQI="}}, "é"], one(dtype="bytes")) == [[b"\x01\x02"], ["é".encode()]]
    assert checked([3.0], one(dtype="integer")) == [[3]]
    assert checked([None, {}], one(dtype="float", nullable=True)) == [[None], [None]]
    assert checked([{"anything": [1, "x"]}], one(dtype="any")) == [[{"anything": [1, "x"]}]]


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=2),
    st.lists(st.integers(), max_size=1),
)


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(st.one_of(st.lists(NUMBERS, min_size=2, max_size=4), NUMBERS), min_size=1, max_size=4))
def test_fast_matrix_takes_and_refuses_what_the_careful_way_does(rows: list[Any]) -> None:
    try:
        expected: Any = [row[0] for row in checked(rows, ROW)]
    except InstanceError as error:
        expected = error
    try:
        found: Any = matrix(rows, ROW).tolist()
    except InstanceError as error:
        found = error

    assert str(found) == str(expected)


def test_arrays_are_stacked_and_the_odd_one_is_named() -> None:
    signature = one(dtype="float", shape=(None,))

    assert arrays([[1, 2], [3, 4]], signature)["x"].dtype == np.float64
    with pytest.raises(InstanceError, match="instance 1, field 'x': has the shape .1.; those before it have .2."):
        arrays([[1, 2], [3]], signature)
    with pytest.raises(InstanceError, match="instance 0, field 'x': is no array: its rows differ in length"):
        arrays([[[1], [2, 3]]], one(dtype="float", shape=None))
