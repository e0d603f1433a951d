"""The median rule: whom it compares with whom, and when."""

from typing import Any

import pytest

from stoker.schema.search import Median
from stoker.search.asha import WORST
from stoker.search.base import Outcome, StopKind
from stoker.search.median import Curve, MedianRule


def _rule(completed: list[list[float]], **settings: Any) -> MedianRule:
    """A rule that has seen these trials to their end, one value a step."""
    rule = MedianRule(Median(min_trials=1, **settings))
    for number, values in enumerate(completed, start=1):
        rule.started(number, 0)
        for step, value in enumerate(values, start=1):
            rule.reported(number, step, value)
        rule.ended(number, Outcome.COMPLETED)
    rule.started(99, 0)
    return rule


def test_trial_stops_when_its_best_is_worse_than_the_median_of_the_averages() -> None:
    completed = [[4.0, 2.0], [6.0, 4.0], [8.0, 6.0]]  # averages to step 2: 3, 5, 7

    equal, worse = _rule(completed), _rule(completed)

    assert equal.reported(99, 2, 5.0) is None
    stop = worse.reported(99, 2, 5.01)
    assert stop is not None
    assert stop.kind is StopKind.PRUNED
    assert stop.message == "at 2 its best was worse than the median of 3 completed trials"


def test_only_reports_up_to_the_same_time_are_averaged() -> None:
    rule = _rule([[10.0, 0.0, 0.0, 0.0]])

    assert rule.reported(99, 1, 9.0) is None
    assert rule.reported(99, 4, 9.0) is not None  # the average is now 2.5


def test_best_so_far_counts_and_not_the_last() -> None:
    rule = _rule([[5.0, 5.0, 5.0]])
    assert rule.reported(99, 1, 4.0) is None

    assert rule.reported(99, 2, 100.0) is None


def test_nobody_stops_before_enough_have_completed_or_before_the_time() -> None:
    few = MedianRule(Median(min_trials=2))
    for number in (1, 2, 3):
        few.started(number, 0)
        few.reported(number, 1, 1.0)
    few.ended(1, Outcome.COMPLETED)
    few.ended(2, Outcome.STOPPED)  # did not run to its end: no example
    early = _rule([[1.0, 1.0, 1.0]], min_time=3)

    assert few.reported(3, 2, 50.0) is None
    assert early.reported(99, 2, 50.0) is None
    assert early.reported(99, 3, 50.0) is not None


def test_completed_trials_are_taken_in_as_they_come() -> None:
    rule = _rule([[1.0]])
    rule.started(50, 0)
    rule.started(51, 0)
    rule.reported(50, 1, 0.5)
    rule.reported(51, 1, 0.9)
    rule.ended(50, Outcome.COMPLETED)
    rule.ended(51, Outcome.COMPLETED)

    assert rule.reported(99, 1, 0.95) is not None  # the median of 0.5, 0.9, 1.0


def test_trial_without_a_finite_value_stops_and_one_with_some_does_not() -> None:
    assert _rule([[1.0]]).reported(99, 1, WORST) is not None

    rule = _rule([[1.0, 1.0]])
    rule.reported(99, 1, 0.5)
    assert rule.reported(99, 2, WORST) is None


def test_restarted_trial_reports_again_from_its_checkpoint() -> None:
    curve = Curve()
    for time, value in [(1, 4.0), (2, 2.0), (3, 9.0)]:
        curve.add(time, value)

    curve.add(2, 6.0)

    assert curve.times == [1, 2]
    assert curve.average(2) == pytest.approx(5.0)
    assert curve.bests[-1] == 4.0
    assert curve.average(0.5) is None


def test_many_different_times_do_not_fill_memory() -> None:
    from stoker.search import median

    rule = _rule([[1.0]])
    for step in range(3 * median.REMEMBERED_TIMES):
        rule.reported(99, 1 + step / 7, 0.5)

    assert len(rule._averages) == median.REMEMBERED_TIMES
