"""The best, the front, the curve, and what mattered."""

import random
from typing import Any

import pytest

from stoker.schema.search import SearchSpec
from stoker.search.base import Outcome
from stoker.search.importance import parameter_importance
from stoker.search.results import best_so_far, best_trials, pareto_front
from stoker.search.samplers import TrialResult


def _spec(**changes: Any) -> SearchSpec:
    values = {"space": {"x": {"type": "double", "min": 0, "max": 1}}, "metric": "loss", "max_trials": 5}
    return SearchSpec.parse({**values, **changes}, source="test")


def _results(*values: tuple[float | None, ...]) -> list[TrialResult]:
    return [TrialResult(n, {}, value, 1, Outcome.COMPLETED) for n, value in enumerate(values, start=1)]


def test_best_are_ranked_by_the_first_objective_and_its_goal() -> None:
    results = _results((0.3,), (None,), (0.1,), (0.3,))

    assert [r.trial for r in best_trials(_spec(), results, count=9)] == [3, 1, 4]
    assert [r.trial for r in best_trials(_spec(goal="maximize"), results, count=2)] == [1, 4]


def test_curve_of_the_best_so_far_never_gets_worse() -> None:
    results = _results((0.3,), (0.5,), (None,), (0.1,))

    assert best_so_far(_spec(), results) == [(1, 0.3), (2, 0.3), (4, 0.1)]
    assert best_so_far(_spec(goal="maximize"), results) == [(1, 0.3), (2, 0.5), (4, 0.5)]


def test_front_holds_those_that_nobody_beats() -> None:
    spec = _spec(also=[{"metric": "accuracy", "goal": "maximize"}])
    results = _results((1.0, 0.5), (2.0, 0.9), (2.0, 0.4), (3.0, 0.9), (0.5, None), (1.0, 0.5))

    assert [r.trial for r in pareto_front(spec, results)] == [1, 2, 6]


def test_front_is_what_comparing_all_with_all_gives() -> None:
    spec = _spec(also=[{"metric": "b"}, {"metric": "c", "goal": "maximize"}])
    chance = random.Random(0)
    results = _results(*(tuple(chance.randint(0, 6) / 1 for _ in range(3)) for _ in range(150)))

    def beaten(a: TrialResult) -> bool:
        x, y, z = (value or 0.0 for value in a.values)
        others = [tuple(value or 0.0 for value in b.values) for b in results]
        return any((p, q, -r) != (x, y, -z) and p <= x and q <= y and r >= z for p, q, r in others)

    assert [r.trial for r in pareto_front(spec, results)] == [r.trial for r in results if not beaten(r)]


def test_front_of_one_objective_is_its_best() -> None:
    assert [r.trial for r in pareto_front(_spec(), _results((0.3,), (0.1,), (0.1,)))] == [2, 3]


@pytest.mark.parametrize("count", [40, 400])
def test_parameter_that_decides_matters_most(count: int) -> None:
    space = {
        "strong": {"type": "log", "min": 1e-3, "max": 1},
        "weak": {"type": "int", "min": 1, "max": 9},
        "kind": {"type": "categorical", "values": ["a", "b"]},
        "noise": {"type": "double", "min": 0, "max": 1},
        "fixed": 3,
    }
    chance = random.Random(1)
    results = []
    for trial in range(1, count + 1):
        point = {
            "strong": 10 ** chance.uniform(-3, 0),
            "weak": chance.randint(1, 9),
            "kind": chance.choice("ab"),
            "noise": chance.random(),
            "fixed": 3,
        }
        loss = 10 * point["strong"] + 0.05 * point["weak"] + (0.3 if point["kind"] == "a" else 0.0)
        results.append(TrialResult(trial, point, (1e9 if trial == 7 else loss,), 1, Outcome.COMPLETED))

    shares = parameter_importance(_spec(space=space), results)

    assert list(shares)[0] == "strong"
    assert shares["strong"] > 0.6
    assert shares["noise"] < shares["strong"] / 3
    assert "fixed" not in shares
    assert sum(shares.values()) == pytest.approx(1.0)


def test_importance_takes_conditional_and_nested_parameters() -> None:
    space = {
        "kind": {"type": "categorical", "values": ["a", "b"]},
        "net": {"size": {"type": "int", "min": 1, "max": 100, "when": {"kind": "a"}}},
    }
    chance = random.Random(2)
    results = []
    for trial in range(1, 101):
        if chance.random() < 0.5:
            size = chance.randint(1, 100)
            results.append(TrialResult(trial, {"kind": "a", "net": {"size": size}}, (size / 100,), 1, None))
        else:
            results.append(TrialResult(trial, {"kind": "b", "net": {}}, (0.5,), 1, None))

    shares = parameter_importance(_spec(space=space), results)

    assert shares["net.size"] > shares["kind"]


def test_too_few_trials_say_nothing_about_importance() -> None:
    assert parameter_importance(_spec(), _results((0.1,), (0.2,))) == {}
    same = [TrialResult(n, {"x": n / 10}, (0.5,), 1, None) for n in range(20)]
    assert parameter_importance(_spec(), same) == {"x": 0.0}
