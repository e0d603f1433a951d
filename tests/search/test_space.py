"""Points of a space: types, scales, grids in Determined's order, conditions, steps."""

import math
from collections import Counter
from typing import Any

import pytest

from stoker.errors import ConfigError
from stoker.schema.search import SearchSpec
from stoker.schema.space import Parameter
from stoker.search.space import Dice, GridPoints, Layout, explore, grid_values, value_at


def _space(values: dict[str, Any]) -> dict[str, Any]:
    return SearchSpec.parse({"sampler": "random", "space": values, "max_trials": 1}, source="test").space


def _parameter(**values: Any) -> Parameter:
    return _space({"x": values})["x"]


def test_draws_are_typed_and_within_their_ranges() -> None:
    layout = Layout(
        _space(
            {
                "a": {"type": "int", "min": -2, "max": 2},
                "b": {"type": "double", "min": -1, "max": 1},
                "c": {"type": "log", "min": 1e-5, "max": 1e-1},
                "d": {"type": "categorical", "values": ["x", 1, [2, 3], {"k": 4}, None]},
                "e": {"type": "discrete", "values": [1, 2.5, 7]},
                "f": {"type": "const", "value": {"whole": "map"}},
                "g": [1, 2],
                "h": {"deep": {"er": {"type": "int", "min": 1, "max": 100, "scale": "log"}}},
                "i": {"type": "int", "min": 1, "max": 100, "scale": "reverse_log"},
            }
        )
    )
    for trial in range(200):
        drawn = layout.draw(Dice(7, trial))
        assert type(drawn["a"]) is int
        assert -2 <= drawn["a"] <= 2
        assert type(drawn["b"]) is float
        assert -1 <= drawn["b"] <= 1
        assert 1e-5 <= drawn["c"] <= 1e-1
        assert drawn["d"] in ("x", 1, [2, 3], {"k": 4}, None)
        assert drawn["e"] in (1, 2.5, 7)
        assert drawn["f"] == {"whole": "map"}
        assert drawn["g"] == [1, 2]
        assert type(drawn["h"]["deep"]["er"]) is int
        assert 1 <= drawn["h"]["deep"]["er"] <= 100
        assert 1 <= drawn["i"] <= 100


def test_ends_of_an_int_are_as_likely_as_its_middle() -> None:
    parameter = _parameter(type="int", min=0, max=3)

    counts = Counter(value_at(parameter, (n + 0.5) / 4000) for n in range(4000))

    assert counts == {0: 1000, 1: 1000, 2: 1000, 3: 1000}


@pytest.mark.parametrize(
    ("scale", "middle"), [("linear", 0.505), ("log", 0.1), ("reverse_log", 1.01 - 0.1)], ids=lambda x: str(x)
)
def test_scale_says_where_the_middle_is(scale: str, middle: float) -> None:
    parameter = _parameter(type="double", min=0.01, max=1.0, scale=scale)

    assert value_at(parameter, 0.5) == pytest.approx(middle)
    assert value_at(parameter, 0.0) == pytest.approx(0.01)
    assert value_at(parameter, 1 - 1e-12) == pytest.approx(1.0)
    assert value_at(parameter, 0.2) < value_at(parameter, 0.3)


@pytest.mark.parametrize("scale", ["linear", "log", "reverse_log"])
def test_int_reaches_both_ends_on_every_scale(scale: str) -> None:
    parameter = _parameter(type="int", min=1, max=256, scale=scale)

    drawn = [value_at(parameter, n / 5000) for n in range(5000)]

    assert (min(drawn), max(drawn)) == (1, 256)
    assert drawn == sorted(drawn)
    low = sum(value <= 16 for value in drawn) / len(drawn)
    assert {"linear": low < 0.1, "log": low > 0.4, "reverse_log": low < 0.02}[scale]


def test_draw_of_a_parameter_does_not_depend_on_its_neighbours() -> None:
    x = {"type": "double", "min": 0, "max": 1}
    alone, beside = Layout(_space({"x": x})), Layout(_space({"a": x, "x": x, "z": x}))

    assert alone.draw(Dice(3, 5))["x"] == beside.draw(Dice(3, 5))["x"]
    assert alone.draw(Dice(3, 5)) != alone.draw(Dice(3, 6))
    assert alone.draw(Dice(3, 5)) != alone.draw(Dice(4, 5))


def test_draws_are_spread_evenly() -> None:
    layout = Layout(_space({"x": {"type": "double", "min": 0, "max": 1}}))

    tenths = Counter(int(layout.draw(Dice(0, trial))["x"] * 10) for trial in range(1, 5001))

    assert set(tenths) == set(range(10))
    assert all(400 < count < 600 for count in tenths.values())


@pytest.mark.parametrize(
    ("values", "points"),
    [
        ({"type": "int", "min": 0, "max": 20, "count": 3}, [0, 10, 20]),
        ({"type": "int", "min": 0, "max": 4, "count": 5}, [0, 1, 2, 3, 4]),
        ({"type": "int", "min": -4, "max": -2, "count": 3}, [-4, -3, -2]),
        ({"type": "int", "min": 0, "max": 4, "count": 99}, [0, 1, 2, 3, 4]),
        ({"type": "int", "min": 0, "max": 3, "count": 1}, [2]),  # halves go away from zero
        ({"type": "int", "min": -3, "max": 0, "count": 1}, [-2]),
        ({"type": "int", "min": 2, "max": 5}, [2, 3, 4, 5]),
        ({"type": "int", "min": 1, "max": 1000, "count": 4, "scale": "log"}, [1, 10, 100, 1000]),
        ({"type": "int", "min": 1, "max": 3, "count": 3, "scale": "log"}, [1, 2, 3]),
        ({"type": "double", "min": -1, "max": 1, "count": 5}, [-1.0, -0.5, 0.0, 0.5, 1.0]),
        ({"type": "double", "min": 0, "max": 1, "count": 1}, [0.5]),
        ({"type": "log", "min": 1e-4, "max": 1e-1, "count": 4}, [1e-4, 1e-3, 1e-2, 1e-1]),
        ({"type": "log", "min": 0.125, "max": 8, "count": 7, "base": 2}, [0.125, 0.25, 0.5, 1, 2, 4, 8]),
        ({"type": "log", "min": 0.01, "max": 1, "count": 1}, [0.1]),
        ({"type": "categorical", "values": ["b", "a"]}, ["b", "a"]),
        ({"type": "discrete", "values": [1, 2, 8]}, [1, 2, 8]),
        ({"type": "const", "value": 3}, [3]),
    ],
)
def test_axis_of_a_grid(values: dict[str, Any], points: list[Any]) -> None:
    found = list(grid_values(_parameter(**values)))

    assert found == points
    assert [type(x) for x in found] == [type(x) for x in points] or values["type"] == "log"


def test_reverse_log_axis_mirrors_the_log_one() -> None:
    found = grid_values(_parameter(type="double", min=0.01, max=1, count=3, scale="reverse_log"))

    assert found == pytest.approx([0.01, 1.01 - 0.1, 1.0])


def test_grid_is_the_product_of_sorted_names_from_its_end() -> None:
    points = GridPoints(
        _space({"2": {"type": "int", "min": 0, "max": 10, "count": 3}, "1": {"type": "categorical", "values": [0, 10]}})
    )

    assert list(points) == [
        {"2": 10, "1": 10},
        {"2": 5, "1": 10},
        {"2": 0, "1": 10},
        {"2": 10, "1": 0},
        {"2": 5, "1": 0},
        {"2": 0, "1": 0},
    ]


def test_nested_maps_are_axes_of_a_grid_too() -> None:
    points = GridPoints(
        _space(
            {"b": {"y": {"type": "categorical", "values": [1, 2]}, "k": 7}, "a": {"type": "discrete", "values": [3, 4]}}
        )
    )

    assert list(points) == [
        {"b": {"y": 2, "k": 7}, "a": 4},
        {"b": {"y": 1, "k": 7}, "a": 4},
        {"b": {"y": 2, "k": 7}, "a": 3},
        {"b": {"y": 1, "k": 7}, "a": 3},
    ]


def test_large_grid_is_not_laid_out() -> None:
    axis = {"type": "int", "min": 1, "max": 1000}
    points = GridPoints(_space({name: axis for name in "abcdef"}))

    assert len(points) == 10**18
    assert points[0] == dict.fromkeys("abcdef", 1000)
    assert points[10**18 - 1] == dict.fromkeys("abcdef", 1)


CONDITIONAL = {
    "optimizer": {"type": "categorical", "values": ["sgd", "adam", "none"]},
    "momentum": {"type": "double", "min": 0, "max": 1, "count": 3, "when": {"optimizer": "sgd"}},
    "nesterov": {"type": "categorical", "values": [True, False], "when": {"momentum": [0.5, 1.0]}},
    "rate": {"type": "log", "min": 0.01, "max": 1, "count": 2, "when": {"optimizer": ["sgd", "adam"]}},
}


def test_parameter_that_does_not_apply_is_left_out() -> None:
    layout = Layout(_space(CONDITIONAL))
    seen = set()
    for trial in range(300):
        drawn = layout.draw(Dice(0, trial))
        seen.add((drawn["optimizer"], "momentum" in drawn, "rate" in drawn, "nesterov" in drawn))

    assert seen == {("sgd", True, True, False), ("adam", False, True, False), ("none", False, False, False)}


def test_grid_has_no_two_points_that_differ_in_what_does_not_apply() -> None:
    points = list(GridPoints(_space(CONDITIONAL)))

    assert len(points) == (1 + 2 + 2) * 2 + 2 + 1
    assert len({repr(sorted(point.items())) for point in points}) == len(points)
    assert points[0] == {"optimizer": "none"}


def test_conditional_grid_that_is_too_large_is_refused() -> None:
    axis = {"type": "int", "min": 1, "max": 101}
    space = _space({"a": axis, "b": axis, "c": axis, "d": {**axis, "when": {"a": 1}}})

    with pytest.raises(ConfigError, match="too large to walk"):
        GridPoints(space)


def test_flatten_is_the_inverse_of_nest() -> None:
    layout = Layout(_space({"a": {"b": {"c": {"type": "double", "min": 0, "max": 1}}, "d": 1}, "e": 2}))
    drawn = layout.draw(Dice(0, 1))

    flat = layout.flatten(drawn)

    assert set(flat) == {"a.b.c", "a.d", "e"}
    assert layout.nest(flat) == drawn


def test_step_of_population_based_training_moves_every_number_and_keeps_the_rest() -> None:
    layout = Layout(
        _space(
            {
                "rate": {"type": "log", "min": 1e-4, "max": 1},
                "layers": {"type": "int", "min": 1, "max": 9},
                "batch": {"type": "discrete", "values": [16, 32, 64]},
                "kind": {"type": "categorical", "values": ["a", "b", "c"]},
                "fixed": 1,
            }
        )
    )
    old = {"rate": 0.01, "layers": 3, "batch": 32, "kind": "b", "fixed": 1}

    for trial in range(50):
        new = explore(layout, old, Dice(0, trial), factors=(0.8, 1.2), resample=0.0)
        assert new["rate"] == pytest.approx(0.008) or new["rate"] == pytest.approx(0.012)
        assert new["layers"] in (2, 4)
        assert new["batch"] in (16, 64)
        assert (new["kind"], new["fixed"]) == ("b", 1)


def test_step_stays_inside_and_can_be_a_fresh_draw() -> None:
    layout = Layout(_space({"rate": {"type": "double", "min": 0.9, "max": 1}}))

    near = {explore(layout, {"rate": 1.0}, Dice(0, t), factors=(0.8, 1.2), resample=0.0)["rate"] for t in range(20)}
    fresh = {explore(layout, {"rate": 1.0}, Dice(0, t), factors=(0.8, 1.2), resample=1.0)["rate"] for t in range(20)}

    assert near == {0.9, 1.0}
    assert len(fresh) == 20


def test_step_draws_what_newly_applies_and_drops_what_no_longer_does() -> None:
    layout = Layout(_space(CONDITIONAL))
    seen = set()
    for trial in range(200):
        new = explore(layout, {"optimizer": "adam", "rate": 0.1}, Dice(0, trial), factors=(0.8, 1.2), resample=0.5)
        assert ("momentum" in new) == (new["optimizer"] == "sgd")
        assert ("rate" in new) == (new["optimizer"] != "none")
        seen.add(new["optimizer"])

    assert seen == {"sgd", "adam", "none"}


def test_dice_are_the_same_on_every_machine() -> None:
    dice = Dice(0, 1)

    assert dice.seed() == 1109205399
    assert math.isclose(dice.unit("rate"), 0.92352396, abs_tol=1e-8)
