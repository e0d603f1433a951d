"""Population-based training: who is replaced, by a copy of whom."""

from typing import Any

from stoker.schema.search import SearchSpec
from stoker.search.base import Asked, Outcome, Reported, StopKind
from stoker.search.searcher import TrialSearcher, build_searcher
from tests.search.simulation import Simulation, World


def _spec(**changes: Any) -> SearchSpec:
    values = {
        "sampler": {"name": "pbt", "population": 4, "interval": 10, "resample": 0.0},
        "space": {
            "rate": {"type": "log", "min": 1e-4, "max": 1},
            "kind": {"type": "categorical", "values": ["a", "b"]},
        },
        "metric": "loss",
        "max_trials": 12,
    }
    return SearchSpec.parse({**values, **changes}, source="test")


def _population(searcher: TrialSearcher, losses: list[float], *, step: int) -> list[Any]:
    return [searcher.report(n, step=step, values={"loss": loss}) for n, loss in enumerate(losses, start=1)]


def _started(spec: SearchSpec) -> TrialSearcher:
    searcher = build_searcher(spec)
    assert [searcher.ask() is not None for _ in range(5)] == [True] * 4 + [False]
    return searcher


def test_worst_is_replaced_by_a_changed_copy_of_the_best() -> None:
    searcher = _started(_spec())

    stops = _population(searcher, [0.1, 0.2, 0.3, 0.4], step=10)
    searcher.ended(4, Outcome.STOPPED)
    copy = searcher.ask()

    assert stops[:3] == [None, None, None]
    assert stops[3].kind is StopKind.REPLACED
    assert stops[3].message == "4 of 4: a copy of trial 1 takes its place"
    assert copy is not None
    assert copy.parent == 1
    first = searcher.results()[0].hparams
    assert copy.hparams["kind"] == first["kind"]
    assert copy.hparams["rate"] / first["rate"] in (0.8, 1.2) or copy.hparams["rate"] in (1e-4, 1)
    assert searcher.ask() is None


def test_nobody_is_replaced_between_intervals_or_while_too_few_have_reported() -> None:
    searcher = _started(_spec())

    assert _population(searcher, [0.1, 0.2, 0.3, 0.4], step=9) == [None] * 4
    alone = _started(_spec())
    assert alone.report(1, step=10, values={"loss": 9.0}) is None


def test_each_is_looked_at_once_an_interval() -> None:
    searcher = _started(_spec(sampler={"name": "pbt", "population": 4, "interval": 10, "quantile": 0.25}))
    _population(searcher, [0.4, 0.1, 0.2, 0.3], step=10)  # the first had nobody to be compared with

    assert searcher.report(1, step=19, values={"loss": 0.4}) is None
    assert searcher.report(1, step=20, values={"loss": 0.4}) is not None


def test_copy_whose_clock_goes_on_is_looked_at_an_interval_later() -> None:
    for clock, looked_at in ((10, 20), (0, 10)):
        searcher = _started(_spec())
        _population(searcher, [0.1, 0.2, 0.3, 0.4], step=10)
        searcher.ended(4, Outcome.STOPPED)
        searcher.ask()
        first = searcher.report(5, step=clock + 5, values={"loss": 9.0})
        assert first is None
        assert searcher.report(5, step=looked_at, values={"loss": 9.0}) is not None


def test_failed_member_is_replaced_and_completed_one_is_not() -> None:
    searcher = _started(_spec())
    _population(searcher, [0.1, 0.2, 0.3, 0.4], step=5)

    searcher.ended(1, Outcome.COMPLETED)
    assert searcher.ask() is None
    searcher.ended(2, Outcome.FAILED)
    copy = searcher.ask()

    assert copy is not None
    assert copy.parent == 1  # it has ended, and is an example all the same


def test_invalid_copy_is_tried_again_from_the_same_original() -> None:
    searcher = _started(_spec())
    _population(searcher, [0.1, 0.2, 0.3, 0.4], step=10)
    searcher.ended(4, Outcome.STOPPED)
    copy = searcher.ask()
    assert copy is not None

    searcher.ended(copy.trial, Outcome.INVALID_HP)
    again = searcher.ask()

    assert again is not None
    assert again.parent == copy.parent == 1


def test_what_diverged_is_never_copied() -> None:
    searcher = _started(_spec())
    nan = float("nan")

    stops = _population(searcher, [nan, nan, nan, nan], step=10)
    replaced = [number for number, stop in enumerate(stops, start=1) if stop is not None]
    for number in replaced:
        searcher.ended(number, Outcome.STOPPED)
        following = searcher.ask()
        assert following is not None
        assert following.parent is None
    assert replaced


def test_budget_of_trials_ends_the_replacing() -> None:
    simulation = Simulation(_spec(max_trials=7), World(length=400, every=5))
    records = simulation.run()

    replaced = [r for r in records if isinstance(r, Reported) and r.stop is not None]
    assert sum(isinstance(record, Asked) for record in records) == 7
    assert len(replaced) == 3
    assert simulation.searcher.finished


def test_population_moves_towards_what_is_good() -> None:
    spec = _spec(max_trials=60, sampler={"name": "pbt", "population": 8, "interval": 10})
    world = World(length=200, every=10, metric=lambda s, step: abs(s.hparams["rate"] - 0.05))
    simulation = Simulation(spec, world)
    simulation.run()

    results = simulation.searcher.results()
    first = min(result.values[0] or 0.0 for result in results[:8])
    best = min(result.values[0] or 0.0 for result in results)
    assert best < first / 2
