"""What a `search:` may say, and how it is refused when it says something else."""

from typing import Any

import pytest

from stoker.errors import ConfigError
from stoker.schema.search import SearchSpec

RATE = {"type": "log", "min": 1e-4, "max": 1}
GOOD: dict[str, Any] = {"space": {"rate": RATE}, "metric": "loss", "max_trials": 8}


def _problems(**values: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        SearchSpec.parse(values, source="stoker.yaml")
    return list(caught.value.problems)


def test_any_sampler_goes_with_any_stopping_rule() -> None:
    samplers: list[Any] = ["single", "random", "tpe", "gp", "cmaes", {"name": "pbt", "interval": 5, "population": 4}]
    rules: list[Any] = ["none", "median", {"name": "asha", "max_time": 9}]
    rules.append({"name": "async_halving", "num_rungs": 2, "max_time": 9})

    for sampler in [*samplers, "grid"]:
        for stopping in rules:
            space = {"rate": {**RATE, "count": 3}}
            spec = SearchSpec.parse({**GOOD, "space": space, "sampler": sampler, "stopping": stopping}, source="test")
            assert SearchSpec.model_validate_json(spec.model_dump_json()) == spec


def test_short_and_long_forms_are_the_same() -> None:
    short = SearchSpec.parse({**GOOD, "sampler": "tpe", "stopping": "median"}, source="test")
    long = SearchSpec.parse({**GOOD, "sampler": {"name": "tpe"}, "stopping": {"name": "median"}}, source="test")

    assert short == long


def test_everything_wrong_is_named_at_once_with_its_path() -> None:
    problems = _problems(
        sampler="grid",
        stopping={"name": "asha", "max_time": 0, "brackets": 3},
        space={
            "low": {"type": "double", "min": 2, "max": 1, "extra": 0},
            "none": {"type": "categorical", "values": []},
            "zero": {"type": "log", "min": 0, "max": 1, "count": 2},
            "negative": {"type": "int", "min": -5, "max": 5, "scale": "reverse_log"},
            "odd": {"type": "float", "min": 0, "max": 1},
            "nested": {"deep": {"type": "int", "min": 1}},
            "uncounted": {"type": "double", "min": 0, "max": 1},
            "falling": {"type": "discrete", "values": [3, 2]},
            "endless": {"type": "double", "min": 0, "max": float("inf"), "count": 2},
            "learning-rate": 1,
            "learning_rate": 2,
        },
        goal="least",
        max_trials=0,
        seed=-1,
        epochs=3,
    )

    assert [problem.split(":")[0] for problem in problems] == [
        "stopping.max_time",
        "stopping.brackets",
        "space.low.max",
        "space.low.extra",
        "space.none.values",
        "space.zero.min",
        "space.negative.min",
        "space.odd.type",
        "space.nested.deep.max",
        "space.falling.values",
        "space.endless.max",
        "space.learning_rate",
        "space.uncounted.count",
        "goal",
        "max_trials",
        "seed",
        "epochs",
    ]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            {"space": {"x": {"type": "int", "min": 3, "max": 3}}},
            "space.x.max: must be more than min, which is 3 (got 3)",
        ),
        ({"space": {"x": {"type": "log", "min": -1, "max": 3}}}, "space.x.min: a log scale needs a range above zero"),
        ({"space": {"x": {"type": "categorical", "values": []}}}, "space.x.values: needs at least one value (got [])"),
        ({"space": {"x": {"type": "discrete", "values": [2, 2]}}}, "space.x.values: must be strictly increasing"),
        ({"space": {"x": {"type": "uniform"}}}, "space.x.type: no such type. There are: const, int, double, log"),
        ({"space": {"x": {"type": "log", "min": 1, "max": 2, "scale": "linear"}}}, "space.x.scale: type: log has"),
        ({"space": {"x": {"type": "int", "min": 1, "max": 2, "count": 0}}}, "space.x.count: input should be greater"),
        ({"space": {"x": {"type": "int", "min": 0.5, "max": 2}}}, "space.x.min: input should be a valid integer"),
        (
            {"sampler": "grid", "space": {"x": {"type": "int", "min": 1, "max": 1_000_000_000}}},
            "space.x.count: an axis of a grid may have 1,000,000 points, not 1,000,000,000",
        ),
        (
            {"sampler": "grid", "space": {"x": {"type": "double", "min": 0, "max": 1, "count": 100_000_000}}},
            "space.x.count: an axis of a grid may have 1,000,000 points, not 100,000,000",
        ),
        ({"space": {"x": {"type": "int", "min": 1, "max": 10**400}}}, "space.x.max: input should be less than"),
        ({"space": [1]}, "space: must be a map of names to parameters (got [1])"),
        ({"space": {"a b": 1}}, "space.a b: a parameter's name is a word without blanks"),
        ({"space": {"--rate": 1}}, "space.--rate: a parameter's name"),
        ({"space": {3: 1}}, "space.3: a parameter's name"),
        ({"space": {"job-dir": 1}}, "space.job-dir: clashes with --job-dir"),
        ({"space": {"a": {"b": 1}, "a.b": 2}}, "space.a.b: this name is there twice"),
        ({"sampler": "bayes"}, "sampler: no such sampler: bayes. There are: single, grid, random, tpe, gp, cmaes, pbt"),
        ({"sampler": 3}, "sampler: must be the name of a sampler, or a map with `name`"),
        ({"sampler": {"startup_trials": 3}}, "sampler: must be the name of a sampler"),
        ({"sampler": {"name": "tpe", "trials": 3}}, "sampler.trials: no such field"),
        ({"sampler": "pbt"}, "sampler.interval: is required"),
        (
            {"sampler": {"name": "pbt", "interval": 1}},
            "max_trials: must be at least the population, which is 10 (got 8)",
        ),
        ({"sampler": "tpe", "space": {"x": 1}}, "space: tpe needs at least one parameter that varies"),
        ({"sampler": "tpe", "space": {}}, "space: tpe needs at least one parameter that varies"),
        ({"sampler": "tpe", "metric": None}, "metric: is required: tpe compares trials by it"),
        ({"stopping": {"name": "median"}, "metric": None}, "metric: is required: median compares trials by it"),
        ({"stopping": "asha"}, "stopping.max_time: is required"),
        ({"stopping": "hyperband"}, "stopping: no such stopping rule: hyperband. There are: none, asha, async_halving"),
        (
            {"stopping": {"name": "asha", "max_time": 9, "divisor": 1}},
            "stopping.divisor: input should be greater than 1",
        ),
        ({"stopping": {"name": "asha", "max_time": 9, "mode": "fast"}}, "stopping.mode: input should be 'aggressive'"),
        ({"max_trials": None}, "max_trials: is required: random would go on for ever"),
        ({"also": [{"metric": "loss"}]}, "also: each objective is another metric"),
        ({"also": [{"metric": "a"}], "metric": None}, "also: further objectives come after a first: set `metric`"),
        ({"also": [{"metric": "a"}], "sampler": "cmaes"}, "also: cmaes follows one objective"),
        ({"also": [{"metric": "a", "goal": "up"}]}, "also.0.goal: input should be 'minimize' or 'maximize'"),
        ({"warm_start": {}}, "warm_start: name a `trial` or a `checkpoint`, and not both"),
    ],
    ids=str,
)
def test_mistake_is_refused_in_words(values: dict[str, Any], problem: str) -> None:
    problems = _problems(**{**GOOD, **values})

    assert len(problems) == 1
    assert problems[0].startswith(problem)


@pytest.mark.parametrize(
    ("when", "problem"),
    [
        ({"missing": 1}, "space.x.when.missing: no such parameter. There are: kind, n, x"),
        ({"kind": "c"}, "space.x.when.kind: kind is never 'c'"),
        ({"kind": ["a", "c"]}, "space.x.when.kind: kind is never 'c'"),
        ({"n": 9}, "space.x.when.n: n is never 9"),
        ({"x": 1}, "space.x.when.x: a condition may not lead back to the parameter itself"),
    ],
)
def test_condition_that_can_never_hold_is_refused(when: dict[str, Any], problem: str) -> None:
    space = {
        "kind": {"type": "categorical", "values": ["a", "b"]},
        "n": {"type": "int", "min": 1, "max": 3},
        "x": {"type": "double", "min": 0, "max": 1, "when": when},
    }

    (found,) = _problems(**{**GOOD, "space": space})

    assert found.startswith(problem)


def test_circle_of_conditions_is_refused() -> None:
    axis = {"type": "int", "min": 1, "max": 3}
    problems = _problems(**{**GOOD, "space": {"a": {**axis, "when": {"b": 1}}, "b": {**axis, "when": {"a": 1}}}})

    assert [problem.split(":")[0] for problem in problems] == ["space.a.when.b", "space.b.when.a"]


def test_map_may_hold_a_parameter_called_type() -> None:
    space = {"optimizer": {"type": {"type": "categorical", "values": ["sgd", "adam"]}, "rate": RATE}}

    spec = SearchSpec.parse({**GOOD, "space": space}, source="test")

    assert sorted(spec.space["optimizer"]) == ["rate", "type"]
    assert SearchSpec.model_validate_json(spec.model_dump_json()) == spec


def test_changed_copy_is_checked_again() -> None:
    spec = SearchSpec.parse(GOOD, source="test")

    assert spec.with_(max_trials=9).space == spec.space
    with pytest.raises(ValueError, match="space.rate.count"):
        spec.with_(sampler="grid", space=spec.space)
