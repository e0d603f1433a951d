"""JSON as the standard library has it, only quicker."""

import json
import math

import pytest

from stoker.schema.state import JobState
from stoker.server.views.quick_json import read_json, write_json

VALUES = {
    "lr": 1e-5,
    "name": "ä <b>",
    "deep": {"a": [1, 2.5, None, True]},
    "large": 2**80,
    "small": 5e-324,
    "none": -0.0,
}


def test_what_was_written_is_read_to_the_last_bit() -> None:
    assert read_json(json.dumps(VALUES)) == VALUES
    assert json.loads(write_json(VALUES)) == VALUES
    assert math.isnan(read_json(json.dumps({"x": math.nan}))["x"])
    assert read_json(json.dumps([math.inf, -math.inf])) == [math.inf, -math.inf]


class Odd:
    def __str__(self) -> str:
        return "odd"


@pytest.mark.parametrize("rest", ["", "\ud800"], ids=["plain", "half a pair"])
def test_what_json_has_not_is_null_or_text(rest: str) -> None:
    value = {"y": (1.5, math.nan, math.inf), "state": JobState.RUNNING, "place": Odd(), "name": f"x{rest}"}

    found = json.loads(write_json(value))

    assert found == {"y": [1.5, None, None], "state": "RUNNING", "place": "odd", "name": f"x{rest}"}
    assert read_json(json.dumps({"name": f"x{rest}"})) == {"name": f"x{rest}"}
