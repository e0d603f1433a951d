"""AI Platform's hyperparameters block becomes a search."""

from typing import Any

import pytest

from stoker.compat.dialects.aiplatform_search import read_hyperparameters
from stoker.errors import ConfigError
from stoker.schema.search import Grid, Median, NoStopping, Pbt, Random, SearchSpec, Tpe
from stoker.schema.space import Categorical, Discrete, Double, Int, Scale

# The hptuning config of the taxi sample.
TAXI: dict[str, Any] = {
    "goal": "MINIMIZE",
    "hyperparameterMetricTag": "test_loss",
    "maxTrials": 2,
    "maxParallelTrials": 2,
    "enableTrialEarlyStopping": True,
    "params": [
        {
            "parameterName": "learning-rate",
            "type": "DOUBLE",
            "minValue": 0.0001,
            "maxValue": 1,
            "scaleType": "UNIT_LOG_SCALE",
        },
        {
            "parameterName": "batch-size",
            "type": "INTEGER",
            "minValue": 1,
            "maxValue": 256,
            "scaleType": "UNIT_LINEAR_SCALE",
        },
    ],
}
CHOICE = {"parameterName": "layers", "type": "DISCRETE", "discreteValues": [1, 2, 4]}


def _read(**changes: Any) -> SearchSpec:
    return read_hyperparameters({**TAXI, **changes}, source="hptuning.yaml")


def _problems(**changes: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        _read(**changes)
    return [problem.removeprefix("trainingInput.hyperparameters.") for problem in caught.value.problems]


def test_block_of_the_taxi_sample_is_read_whole() -> None:
    spec = _read()

    assert (spec.metric, spec.goal, spec.max_trials, spec.max_concurrent_trials) == ("test_loss", "minimize", 2, 2)
    assert spec.space == {
        "learning-rate": Double(min=0.0001, max=1, scale=Scale.LOG),
        "batch-size": Int(min=1, max=256),
    }
    assert spec.stopping == Median()
    assert spec.sampler == Tpe(startup_trials=2)
    assert spec.max_failed_trials is None


def test_defaults_are_the_services() -> None:
    spec = read_hyperparameters({"params": [CHOICE]}, source="x")

    assert (spec.metric, spec.goal) == ("training/hptuning/metric", "maximize")
    assert (spec.max_trials, spec.max_concurrent_trials) == (1, 1)
    assert spec.stopping == NoStopping()
    assert spec.sampler == Random()  # there is nothing to learn from


@pytest.mark.parametrize(
    ("algorithm", "sampler"),
    [
        ("ALGORITHM_UNSPECIFIED", Tpe(startup_trials=10)),
        ("RANDOM_SEARCH", Random()),
        ("GRID_SEARCH", Grid()),
        ("POPULATION_BASED_TRAINING", Pbt(population=2, interval=1)),
    ],
)
def test_algorithm_becomes_a_sampler(algorithm: str, sampler: Any) -> None:
    assert _read(algorithm=algorithm, maxTrials=40, params=[CHOICE]).sampler == sampler


def test_all_types_and_limits_are_read() -> None:
    params = [
        CHOICE,
        {"parameterName": "kind", "type": "CATEGORICAL", "categoricalValues": ["a", 3]},
        {
            "parameterName": "top",
            "type": "DOUBLE",
            "minValue": 0.1,
            "maxValue": 1,
            "scaleType": "UNIT_REVERSE_LOG_SCALE",
        },
    ]
    spec = _read(params=params, maxFailedTrials=3, resumePreviousJobId="earlier", hyperparameterMetricTag="A b")

    assert spec.space["layers"] == Discrete(values=(1, 2, 4))
    assert [type(value) for value in spec.space["layers"].values] == [int, int, int]
    assert spec.space["kind"] == Categorical(values=("a", "3"))
    assert spec.space["top"].scale is Scale.REVERSE_LOG
    assert (spec.max_failed_trials, spec.resume_from, spec.metric) == (3, "earlier", "A b")


def test_discrete_values_that_fall_are_turned_round() -> None:
    spec = _read(params=[{"parameterName": "layers", "type": "DISCRETE", "discreteValues": [4, 2, 1]}])

    assert spec.space["layers"] == Discrete(values=(1, 2, 4))


def test_everything_wrong_is_named_at_once_with_its_path() -> None:
    params = [
        {"parameterName": "a", "type": "DOUBLE", "minValue": 2, "maxValue": 1},
        {"parameterName": "b", "type": "INTEGER", "minValue": 0.5},
        {"parameterName": "c", "type": "CATEGORICAL"},
        {"parameterName": "d", "type": "DISCRETE", "discreteValues": [2, 1, 3]},
        {"parameterName": "e", "type": "DOUBLE", "minValue": 0, "maxValue": 1, "scaleType": "UNIT_LOG_SCALE"},
        {"parameterName": "f", "type": "FLOAT", "minValue": 0, "maxValue": 1},
        {"parameterName": "g", "type": "DISCRETE", "discreteValues": list(range(1001))},
        {"type": "DISCRETE", "discreteValues": [1], "minvalue": 3},
    ]
    problems = _problems(goal="LEAST", maxTrials=-1, params=params, trials=3)

    assert [problem.split(":")[0] for problem in problems] == [
        "goal",
        "maxTrials",
        "params.0.maxValue",
        "params.1.minValue",
        "params.1.maxValue",
        "params.2.categoricalValues",
        "params.3.discreteValues",
        "params.4.minValue",
        "params.5.type",
        "params.6.discreteValues",
        "params.7.parameterName",
        "params.7.minvalue",
        "trials",
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"params": []}, "params: needs at least one parameter (got [])"),
        ({"params": [CHOICE, CHOICE]}, "params.1.parameterName: is there twice (got 'layers')"),
        (
            {"params": [CHOICE, {**CHOICE, "parameterName": "a-b"}, {**CHOICE, "parameterName": "a_b"}]},
            "params.2.parame",
        ),
        ({"algorithm": "GRID_SEARCH"}, "params.0.type: a grid takes no DOUBLE; make it DISCRETE"),
        ({"hyperparameterMetricTag": "trial"}, "hyperparameterMetricTag: is a word that hypertune's file uses"),
        ({"algorithm": "BAYES"}, "algorithm: input should be 'ALGORITHM_UNSPECIFIED'"),
        ({"params": [{**CHOICE, "parameterName": "job-dir"}]}, "params.job-dir: clashes with --job-dir"),
        ({"algorithm": "POPULATION_BASED_TRAINING", "maxTrials": 1}, "maxTrials: must be at least the population"),
    ],
)
def test_mistake_is_refused_in_words(changes: dict[str, Any], problem: str) -> None:
    problems = _problems(**changes)

    assert len(problems) == 1
    assert problems[0].startswith(problem)
