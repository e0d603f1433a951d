"""The searcher as a whole: when it gives up, what it listens to, what it hands on."""

from typing import Any

import pytest

from stoker.schema.search import SearchSpec
from stoker.search.base import Asked, Ended, Outcome, Reported, Stop, StopKind, Suggestion
from stoker.search.preview import preview_search
from stoker.search.searcher import FIRST_FAILURES, INVALID_IN_A_ROW, TrialSearcher, build_searcher
from tests.search.simulation import Simulation, World


def _spec(**changes: Any) -> SearchSpec:
    values = {"space": {"rate": {"type": "double", "min": 0, "max": 1}}, "metric": "loss", "max_trials": 20}
    return SearchSpec.parse({**values, **changes}, source="test")


def _asked(searcher: TrialSearcher, count: int = 1) -> list[Suggestion]:
    found = [searcher.ask() for _ in range(count)]
    return [suggestion for suggestion in found if suggestion is not None]


def test_metric_that_never_arrives_is_reported_with_what_did() -> None:
    searcher = build_searcher(_spec(metric="accuracy"))
    _asked(searcher, 2)
    assert not searcher.wants({"loss": 1.0, "acc": 0.5})

    searcher.ended(1, Outcome.COMPLETED, reported=["loss", "acc"])

    assert searcher.failure() == "no trial reported 'accuracy'; they reported: acc, loss"
    assert searcher.ask() is None


def test_metric_that_arrived_once_is_enough() -> None:
    searcher = build_searcher(_spec())
    _asked(searcher, 2)
    searcher.report(1, step=1, values={"loss": float("nan")})

    searcher.ended(2, Outcome.COMPLETED)

    assert searcher.failure() is None


def test_silent_trial_says_so() -> None:
    simulation = Simulation(_spec(metric="loss"), World(silent=True))
    simulation.run()
    nothing = build_searcher(_spec())
    _asked(nothing)
    nothing.ended(1, Outcome.COMPLETED)

    assert simulation.searcher.failure() == "no trial reported 'loss'; they reported: other"
    assert nothing.failure() == "no trial reported 'loss'; they reported nothing"


def test_single_trial_without_its_metric_is_no_failure() -> None:
    searcher = build_searcher(_spec(sampler="single"))
    _asked(searcher)
    searcher.ended(1, Outcome.COMPLETED, reported=["acc"])

    assert searcher.failure() is None
    assert searcher.finished


def test_search_without_a_metric_listens_to_nothing_and_ends_well() -> None:
    searcher = build_searcher(_spec(sampler="grid", metric=None, space={"x": {"type": "int", "min": 1, "max": 2}}))
    _asked(searcher, 2)

    assert not searcher.wants({"loss": 1.0})
    searcher.ended(1, Outcome.COMPLETED)
    searcher.ended(2, Outcome.COMPLETED)
    assert searcher.finished
    assert searcher.failure() is None


def test_only_reports_of_the_right_group_count() -> None:
    spec = _spec(group="validation")

    assert build_searcher(spec).wants({"loss": 1.0}, group="validation")
    assert not build_searcher(spec).wants({"loss": 1.0}, group="training")
    assert build_searcher(_spec()).wants({"loss": 1.0}, group="training")


def test_search_fails_when_so_many_trials_were_given_up() -> None:
    searcher = build_searcher(_spec(max_failed_trials=2))
    _asked(searcher, 5)
    searcher.report(1, step=1, values={"loss": 1.0})
    searcher.ended(2, Outcome.FAILED)
    assert searcher.failure() is None
    assert searcher.ask() is not None

    searcher.ended(3, Outcome.FAILED)

    assert searcher.failure() is not None
    assert "2 of 2 trials failed, which reaches max_failed_trials (2)." in searcher.failure()
    assert "trial 3, with hyperparameters: rate=0." in searcher.failure()
    assert searcher.ask() is None
    assert not searcher.finished  # others are still live


def test_search_gives_up_when_the_first_trials_all_fail() -> None:
    searcher = build_searcher(_spec(max_trials=200))
    for number in range(1, FIRST_FAILURES + 1):
        assert searcher.failure() is None
        _asked(searcher)
        searcher.ended(number, Outcome.FAILED)

    assert (searcher.failure() or "").startswith(f"{FIRST_FAILURES} of {FIRST_FAILURES} trials failed.")


def test_search_goes_on_through_failures_once_one_trial_got_somewhere() -> None:
    searcher = build_searcher(_spec(max_trials=40))
    _asked(searcher)
    searcher.report(1, step=1, values={"loss": 1.0})
    for number in range(2, 40):
        _asked(searcher)
        searcher.ended(number, Outcome.FAILED)
    assert searcher.failure() is None

    searcher.ended(1, Outcome.COMPLETED)
    _asked(searcher)
    searcher.ended(40, Outcome.FAILED)

    assert searcher.finished
    assert searcher.failure() is None


def test_search_gives_up_when_all_hyperparameters_are_refused() -> None:
    searcher = build_searcher(_spec())
    for number in range(1, INVALID_IN_A_ROW + 1):
        _asked(searcher)
        searcher.ended(number, Outcome.INVALID_HP)

    assert searcher.failure() == "100 trials in a row refused their hyperparameters (InvalidHP)"
    assert searcher.finished


def test_zero_means_as_many_at_once_as_there_are() -> None:
    searcher = build_searcher(_spec(max_concurrent_trials=0))

    assert len(_asked(searcher, 50)) == 20


def test_grid_may_be_cut_short() -> None:
    axis = {"type": "int", "min": 1, "max": 10}
    spec = _spec(sampler="grid", space={"a": axis, "b": axis}, max_trials=7)
    simulation = Simulation(spec, World())
    simulation.run()

    assert len(simulation.suggestions) == 7
    assert preview_search(spec).trials == 7


def test_tiny_asha_search_makes_no_more_trials_than_asked() -> None:
    """Determined gives each bracket one at least, and so can exceed max_trials."""
    stopping = {"name": "asha", "max_time": 100, "divisor": 1.1, "mode": "conservative"}
    simulation = Simulation(_spec(stopping=stopping, max_trials=2), World())
    simulation.run()

    assert len(simulation.suggestions) == 2
    assert simulation.searcher.finished


def test_decision_that_was_recorded_holds_even_if_it_would_not_be_made_now() -> None:
    spec = _spec(stopping={"name": "asha", "max_time": 9, "divisor": 3, "mode": "aggressive"})
    fresh = build_searcher(spec)
    first, second = _asked(fresh, 2)
    earlier = Stop(kind=StopKind.PRUNED, message="an older rule said so")
    records: list[Any] = [
        Asked(suggestion=first),
        Asked(suggestion=second),
        Reported(trial=1, step=1, values={"loss": 0.1}, stop=earlier),
        Reported(trial=2, step=1, values={"loss": 0.2}, stop=None),
    ]

    searcher = build_searcher(spec, records=records)

    assert dict(searcher.stopping) == {1: earlier}
    assert searcher.report(1, step=9, values={"loss": 0.1}) is None
    searcher.replay(Ended(trial=1, outcome=Outcome.STOPPED))
    assert searcher.live == {2}


def test_results_hold_the_best_of_one_objective_and_the_newest_of_several() -> None:
    one, two = build_searcher(_spec()), build_searcher(_spec(also=[{"metric": "cost"}]))
    for searcher in (one, two):
        _asked(searcher, 2)
        searcher.report(1, step=1, values={"loss": 1.0, "cost": 5.0})
        searcher.report(1, step=2, values={"loss": 3.0})
        searcher.report(2, step=2, values={"loss": float("inf")})

    assert [result.values for result in one.results()] == [(1.0,), (None,)]
    assert [result.values for result in two.results()] == [(3.0, 5.0), (None, None)]


def test_preview_counts_what_early_stopping_saves() -> None:
    asha = _spec(stopping={"name": "asha", "max_time": 1000, "time_metric": "batches"}, max_trials=64)
    plain = _spec(max_trials=64, max_concurrent_trials=100)

    preview = preview_search(asha)

    assert (preview.trials, preview.at_once, preview.time_metric) == (64, 16, "batches")
    assert preview.total_time == 34 * 15 + 20 * 62 + 7 * 250 + 3 * 1000
    assert preview.full_time == 64000
    assert preview_search(plain).ends == {}
    assert preview_search(plain).total_time is None
    assert preview_search(plain).at_once == 64


def test_sampler_that_is_not_installed_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from stoker.errors import UsageError

    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "stoker.search.optuna", raising=False)

    with pytest.raises(UsageError, match=r"The tpe sampler needs optuna.*pip install 'stoker\[search\]'"):
        build_searcher(_spec(sampler="tpe"))
