"""Every sampler with every stopping rule keeps the Searcher's contract."""

import importlib.util

import pytest

from stoker.schema.search import SearchSpec
from tests.contracts.searcher import SearcherContract

SPACE = {
    "rate": {"type": "log", "min": 0.001, "max": 1.0, "count": 3},
    "depth": {"type": "int", "min": 0, "max": 2},
    "model": {"kind": {"type": "categorical", "values": ["a", "b"]}, "size": {"type": "discrete", "values": [1, 2, 4]}},
    "drop": {"type": "double", "min": 0.0, "max": 0.5, "count": 2, "when": {"model.kind": "b"}},
    "fixed": 3,
}
RULES = {
    "none": "none",
    "asha": {"name": "asha", "max_time": 32},
    "conservative": {"name": "asha", "max_time": 24, "mode": "conservative", "divisor": 2.5},
    "halving": {"name": "async_halving", "num_rungs": 3, "max_time": 8, "time_metric": "epochs"},
    "median": {"name": "median", "min_trials": 3, "min_time": 4},
}
NEEDS = {"tpe": ("optuna",), "gp": ("optuna", "torch", "scipy"), "cmaes": ("optuna", "cmaes")}


def _missing(sampler: str) -> pytest.MarkDecorator:
    missing = [name for name in NEEDS.get(sampler, ()) if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}: pip install 'stoker[search]'")


def _spec(sampler: object, stopping: object, **changes: object) -> SearchSpec:
    values = {"sampler": sampler, "stopping": stopping, "space": SPACE, "metric": "loss", "max_trials": 24, **changes}
    return SearchSpec.parse({"max_concurrent_trials": 4, **values}, source="test")


@pytest.fixture(params=RULES)
def stopping(request: pytest.FixtureRequest) -> object:
    return RULES[request.param]


@pytest.fixture(params=["asha", *(pytest.param(rule, marks=pytest.mark.long) for rule in RULES if rule != "asha")])
def stopping_of_slow_samplers(request: pytest.FixtureRequest) -> object:
    """A rule sees what a trial reported and never who proposed it: one is enough with samplers that take long."""
    return RULES[request.param]


class TestSingle(SearcherContract):
    @pytest.fixture
    def spec(self, stopping: object) -> SearchSpec:
        return _spec("single", stopping, max_trials=None)

    test_trials_are_numbered_from_one_and_have_seeds_of_their_own = None


class TestGrid(SearcherContract):
    @pytest.fixture
    def spec(self, stopping: object) -> SearchSpec:
        return _spec("grid", stopping, max_trials=None)


class TestRandom(SearcherContract):
    @pytest.fixture
    def spec(self, stopping: object) -> SearchSpec:
        return _spec("random", stopping)


class TestRandomOneAtATime(SearcherContract):
    @pytest.fixture
    def spec(self, stopping: object) -> SearchSpec:
        return _spec("random", stopping, max_concurrent_trials=1)


class TestRandomForTheGreatest(SearcherContract):
    @pytest.fixture
    def spec(self, stopping: object) -> SearchSpec:
        return _spec("random", stopping, goal="maximize", also=[{"metric": "cost"}])


class TestPbt(SearcherContract):
    @pytest.fixture
    def spec(self, stopping: object) -> SearchSpec:
        return _spec({"name": "pbt", "population": 6, "interval": 2, "time_metric": "epochs"}, stopping)


@_missing("tpe")
class TestTpe(SearcherContract):
    prefixes = 6

    @pytest.fixture
    def spec(self, stopping_of_slow_samplers: object) -> SearchSpec:
        return _spec({"name": "tpe", "startup_trials": 5}, stopping_of_slow_samplers)


@_missing("tpe")
class TestTpeForTwo(SearcherContract):
    prefixes = 5

    @pytest.fixture
    def spec(self) -> SearchSpec:
        return _spec({"name": "tpe", "startup_trials": 5}, RULES["asha"], also=[{"metric": "cost"}])


@_missing("gp")
class TestGp(SearcherContract):
    prefixes = 2

    @pytest.fixture
    def spec(self) -> SearchSpec:
        # A Gaussian process takes a second a proposal: enough trials to reach it, and no more.
        return _spec({"name": "gp", "startup_trials": 6}, RULES["median"], max_trials=9)


@_missing("cmaes")
class TestCmaEs(SearcherContract):
    prefixes = 6

    @pytest.fixture
    def spec(self, stopping_of_slow_samplers: object) -> SearchSpec:
        return _spec({"name": "cmaes", "population": 4}, stopping_of_slow_samplers)
