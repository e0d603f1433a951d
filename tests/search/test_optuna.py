"""Optuna's samplers behind our port: they learn, they know earlier searches, they mirror our scales exactly."""

from typing import Any

import pytest

pytest.importorskip("optuna", reason="needs optuna: pip install 'stoker[search]'")

from stoker.schema.search import SearchSpec
from stoker.search.base import Asked, Outcome, Prior, Stop, StopKind
from stoker.search.optuna import OptunaSampler, _axis
from stoker.search.samplers import TrialResult
from stoker.search.searcher import build_searcher
from tests.search.simulation import Simulation, World


def _spec(**changes: Any) -> SearchSpec:
    space = {"x": {"type": "double", "min": -5, "max": 5}, "y": {"type": "double", "min": -5, "max": 5}}
    values = {"sampler": "tpe", "space": space, "metric": "loss", "max_trials": 60, "max_concurrent_trials": 2}
    return SearchSpec.parse({**values, **changes}, source="test")


def _bowl(suggestion: Any, step: int) -> float:
    return float((suggestion.hparams["x"] - 1) ** 2 + (suggestion.hparams["y"] + 2) ** 2)


def _median_of_last(spec: SearchSpec) -> float:
    simulation = Simulation(spec, World(length=1, every=1, metric=_bowl))
    simulation.run()
    last = sorted(result.values[0] or 0.0 for result in simulation.searcher.results()[-20:])
    return last[10]


@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_sampler_learns_where_it_is_good(sampler: str) -> None:
    if sampler == "cmaes":
        pytest.importorskip("cmaes")

    assert _median_of_last(_spec(sampler=sampler)) < _median_of_last(_spec(sampler="random")) / 3


def test_gaussian_process_learns_from_few() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("scipy")
    spec = _spec(sampler={"name": "gp", "startup_trials": 8}, max_trials=14, max_concurrent_trials=1)
    simulation = Simulation(spec, World(length=1, every=1, metric=_bowl))
    simulation.run()

    values = [result.values[0] or 0.0 for result in simulation.searcher.results()]
    assert min(values[8:]) < 0.5


def test_tpe_with_asha_learns_from_trials_that_were_cut_short() -> None:
    stopping = {"name": "asha", "max_time": 16}
    world = World(length=16, every=1, metric=lambda s, step: _bowl(s, step) + 4.0 / step)
    tpe = Simulation(_spec(stopping=stopping, max_trials=80), world)
    chance = Simulation(_spec(stopping=stopping, max_trials=80, sampler="random"), world)
    tpe.run()
    chance.run()

    def typical(simulation: Simulation) -> float:
        return sorted(result.values[0] or 0.0 for result in simulation.searcher.results()[-30:])[15]

    assert typical(tpe) < typical(chance) / 2


def test_search_begins_by_knowing_an_earlier_one() -> None:
    grid = [i / 4 for i in range(-20, 21, 4)]
    prior = [Prior(hparams={"x": x, "y": y}, values=((x - 1) ** 2 + (y + 2) ** 2,)) for x in grid for y in grid]
    prior.append(Prior(hparams={"x": 99.0, "y": 0.0}, values=(-1.0,)))  # no point of this space
    prior.append(Prior(hparams={"x": 0.0, "y": 0.0}, values=(1.0, 2.0)))  # other objectives

    searcher = build_searcher(_spec(max_concurrent_trials=8), prior=prior)
    asked = [searcher.ask() for _ in range(8)]

    near = [s for s in asked if s is not None and _bowl(s, 1) < 6]
    assert len(near) >= 6


@pytest.mark.parametrize("scale", ["linear", "log", "reverse_log"])
@pytest.mark.parametrize("kind", ["int", "double"])
def test_value_survives_the_way_to_optuna_and_back(kind: str, scale: str) -> None:
    space = {"x": {"type": kind, "min": 1, "max": 1000, "scale": scale}}
    parameter = _spec(space=space).space["x"]
    axis = _axis(parameter)
    assert axis is not None

    for value in (1, 2, 500, 999, 1000):
        there = axis.encode(value if kind == "int" else float(value))
        assert axis.decode(there) == value
        assert type(axis.decode(there)) is (int if kind == "int" else float)


def test_parameters_with_one_value_are_not_sampled() -> None:
    space = {
        "x": {"type": "double", "min": 0, "max": 1},
        "one": {"type": "categorical", "values": [["a", "list"]]},
        "only": {"type": "discrete", "values": [4]},
        "fixed": {"a": 1},
    }
    suggestion = build_searcher(_spec(space=space)).ask()

    assert suggestion is not None
    assert suggestion.hparams["one"] == ["a", "list"]
    assert (suggestion.hparams["only"], suggestion.hparams["fixed"]) == (4, {"a": 1})


@pytest.mark.parametrize(
    ("sampler", "outcome", "values", "stop", "state"),
    [
        ("tpe", Outcome.COMPLETED, (1.0,), None, "COMPLETE"),
        ("tpe", Outcome.COMPLETED, (None,), None, "FAIL"),
        ("tpe", Outcome.FAILED, (1.0,), None, "FAIL"),
        ("tpe", Outcome.INVALID_HP, (1.0,), None, "FAIL"),
        ("tpe", Outcome.STOPPED, (1.0,), StopKind.PRUNED, "PRUNED"),
        ("tpe", Outcome.STOPPED, (1.0,), StopKind.FINISHED, "COMPLETE"),
        ("gp", Outcome.STOPPED, (1.0,), StopKind.PRUNED, "COMPLETE"),
    ],
)
def test_what_optuna_is_told_of_an_end(
    sampler: str, outcome: Outcome, values: tuple[float | None, ...], stop: StopKind | None, state: str
) -> None:
    if sampler == "gp":
        pytest.importorskip("torch")
    spec = _spec(sampler=sampler)
    suggestion = build_searcher(spec).ask()
    assert suggestion is not None
    mirror = OptunaSampler(spec)
    mirror.started(suggestion)

    told = Stop(kind=stop, message="") if stop is not None else None
    mirror.ended(TrialResult(1, suggestion.hparams, values, 5, outcome, told))

    assert mirror._study.get_trials(deepcopy=False)[0].state.name == state


def test_cmaes_takes_records_of_another_version_for_what_they_are() -> None:
    pytest.importorskip("cmaes")
    spec = _spec(sampler={"name": "cmaes", "population": 4}, max_trials=30)
    world = World(length=1, every=1, metric=_bowl)
    records = Simulation(spec, world).run()[:40]
    changed = [
        Asked(suggestion=r.suggestion.with_(hparams={"x": 0.25, "y": 0.5}, memory={}))
        if isinstance(r, Asked) and r.suggestion.trial == 3
        else r
        for r in records
    ]

    simulation = Simulation(spec, world, records=changed)
    simulation.run()

    assert simulation.suggestions[3].hparams == {"x": 0.25, "y": 0.5}
    assert simulation.searcher.finished
