"""adaptive_asha and async_halving: Determined's numbers, from its own tests and from the executable reference."""

import importlib.util
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stoker.schema.search import Asha, SearchSpec
from stoker.search.asha import (
    WORST,
    Bracket,
    BracketPlan,
    bracket_concurrency,
    bracket_rung_counts,
    bracket_trials,
    plan_brackets,
    rung_times,
)
from stoker.search.base import Outcome, StopKind
from stoker.search.preview import preview_search
from stoker.search.searcher import build_searcher

# (max_trials, max_time, mode): brackets as (rungs, trials, at once), and trials ending at each time.
PLANS: dict[tuple[int, int, str], tuple[list[tuple[int, int, int]], dict[int, int]]] = {
    (16, 937, "aggressive"): ([(3, 16, 16)], {58: 12, 234: 3, 937: 1}),
    (16, 937, "standard"): ([(3, 12, 8), (2, 4, 8)], {58: 9, 234: 5, 937: 2}),
    (16, 937, "conservative"): ([(3, 12, 6), (2, 3, 5), (1, 1, 5)], {58: 9, 234: 4, 937: 3}),
    (64, 1000, "aggressive"): ([(4, 64, 16)], {15: 48, 62: 12, 250: 3, 1000: 1}),
    (64, 1000, "standard"): ([(4, 45, 6), (3, 14, 5), (2, 5, 5)], {15: 34, 62: 20, 250: 7, 1000: 3}),
    (64, 1000, "conservative"): (
        [(4, 43, 4), (3, 14, 4), (2, 5, 4), (1, 2, 4)],
        {15: 33, 62: 19, 250: 7, 1000: 5},
    ),
    (500, 256, "aggressive"): ([(5, 500, 16)], {1: 375, 4: 94, 16: 24, 64: 6, 256: 1}),
    (500, 256, "standard"): ([(5, 354, 6), (4, 110, 5), (3, 36, 5)], {1: 266, 4: 149, 16: 65, 64: 16, 256: 4}),
    (500, 256, "conservative"): (
        [(5, 341, 4), (4, 105, 3), (3, 35, 3), (2, 13, 3), (1, 6, 3)],
        {1: 256, 4: 143, 16: 63, 64: 25, 256: 13},
    ),
    (10, 100, "aggressive"): ([(2, 10, 16)], {25: 8, 100: 2}),
    (10, 100, "standard"): ([(2, 7, 8), (1, 3, 8)], {25: 6, 100: 4}),
    (10, 100, "conservative"): ([(2, 7, 8), (1, 3, 8)], {25: 6, 100: 4}),
}


def _spec(max_trials: int, max_time: int, *, max_concurrent: int = 16, **rule: Any) -> SearchSpec:
    return SearchSpec.parse(
        {
            "stopping": {"name": "asha", "max_time": max_time, **rule},
            "space": {"x": {"type": "double", "min": 0, "max": 1}},
            "metric": "loss",
            "max_trials": max_trials,
            "max_concurrent_trials": max_concurrent,
        },
        source="test",
    )


def _plan(spec: SearchSpec) -> list[tuple[int, int, int]]:
    assert spec.max_trials is not None
    return [(len(b.rungs), b.trials, b.concurrency) for b in plan_brackets(spec, spec.max_trials)]


@pytest.fixture(scope="module")
def oracle() -> ModuleType:
    path = Path(__file__).parents[2].parent / "shared" / "reference" / "asha_reference.py"
    if not path.exists():
        pytest.skip("the executable reference is not beside this checkout; its tables are in PLANS")
    spec = importlib.util.spec_from_file_location("asha_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", PLANS, ids=str)
def test_plan_is_the_references(case: tuple[int, int, str]) -> None:
    max_trials, max_time, mode = case
    spec = _spec(max_trials, max_time, mode=mode)

    brackets, ends = PLANS[case]
    assert _plan(spec) == brackets
    assert preview_search(spec).ends == ends


def test_parts_of_a_plan_are_those_of_determineds_own_tests() -> None:
    assert bracket_trials(20, 3.0, [3, 2, 1]) == [12, 5, 3]
    assert bracket_trials(50, 3.0, [4, 3]) == [35, 15]
    assert bracket_trials(50, 4.0, [3, 2]) == [37, 13]
    assert bracket_trials(100, 4.0, [4, 3, 2]) == [70, 22, 8]
    assert bracket_concurrency(0, 3.0, [9, 3, 1]) == [3, 3, 3]
    assert bracket_concurrency(11, 3.0, [9, 3, 1]) == [4, 4, 3]
    assert bracket_concurrency(0, 4.0, [40, 10]) == [10, 10]
    assert rung_times(3, 3.0, 9) == (1, 3, 9)
    assert rung_times(4, 2.0, 10) == (1, 2, 5, 10)
    assert rung_times(1, 3.0, 9) == (9,)
    assert _plan(_spec(10, 100, max_concurrent=2)) == [(2, 7, 1), (1, 3, 1)]
    conservative = _spec(10, 1000, mode="conservative", divisor=3, max_concurrent=5)
    assert _plan(conservative) == [(3, 7, 2), (2, 2, 2), (1, 1, 1)]
    assert preview_search(_spec(10, 900, max_rungs=10, divisor=3, max_concurrent=5)).ends == {100: 5, 300: 3, 900: 2}
    assert bracket_rung_counts(Asha(max_time=9, bracket_rungs=(1, 3, 2)), 5) == [3, 2, 1]


def test_ever_worse_trials_all_stop_at_the_first_rung_but_one() -> None:
    bracket = Bracket(BracketPlan(rung_times(3, 3.0, 900), 10, 10), 3.0)
    stopped, value = {}, 0.0

    for trial in range(10):
        bracket.started(trial)
        for time in range(0, 901, 100):
            value += 1
            if bracket.reported(trial, time, value) is not None:
                stopped[trial] = time
                break

    assert sorted(stopped.values()) == [100] * 9 + [900]


def test_plans_agree_with_the_reference_everywhere(oracle: ModuleType) -> None:
    chance = random.Random(0)
    for _ in range(2000):
        settings: dict[str, Any] = {
            "mode": chance.choice(["aggressive", "standard", "conservative"]),
            "divisor": chance.choice([2.0, 3.0, 4.0, 2.5, 1.5, 8.0]),
            "max_rungs": chance.randint(1, 8),
            "bracket_rungs": chance.choice([(), (), (), (3, 2), (1, 4, 2)]),
        }
        trials, time, at_once = chance.randint(1, 700), chance.randint(1, 5000), chance.choice([0, 1, 2, 7, 16, 40])
        spec = _spec(trials, time, max_concurrent=at_once, **settings)

        assert _plan(spec) == oracle.brackets(trials, time, max_concurrent=at_once, **settings), (
            trials,
            time,
            settings,
        )
        assert preview_search(spec).ends == oracle.preview(trials, time, max_concurrent=at_once, **settings)


def test_decisions_agree_with_the_reference_on_random_histories(oracle: ModuleType) -> None:
    for seed in range(300):
        chance = random.Random(seed)
        rungs, divisor, max_time = chance.randint(1, 5), chance.choice([2.0, 3.0, 4.0, 2.5]), chance.randint(1, 300)
        ours = Bracket(BracketPlan(rung_times(rungs, divisor, max_time), 99, 99), divisor)
        theirs = oracle.Asha(rungs, divisor, max_time)
        live = {trial: 0.0 for trial in range(30)}
        for trial in live:
            ours.started(trial)
        while live:
            trial = chance.choice(sorted(live))
            live[trial] += chance.choice([1, 5, 20, 120])
            value = chance.choice([0.0, 0.5, 1.0, chance.random()])  # ties are common
            stop = ours.reported(trial, live[trial], value)
            assert (stop is not None) == (theirs.on_validation(trial, live[trial], value) == "stop")
            if stop is not None:
                del live[trial]
        assert [rung.values for rung in ours.rungs] == theirs.m


def _bracket(trials: int = 9, *, rungs: tuple[int, ...] = (1, 3, 9), divisor: float = 3.0) -> Bracket:
    bracket = Bracket(BracketPlan(rungs, trials, trials), divisor)
    for trial in range(1, trials + 1):
        bracket.started(trial)
    return bracket


def test_late_report_passes_several_rungs_at_once() -> None:
    bracket = _bracket()

    stop = bracket.reported(1, 9, 0.5)

    assert stop is not None
    assert stop.kind is StopKind.FINISHED
    assert [rung.values for rung in bracket.rungs] == [[0.5], [0.5], [0.5]]


def test_of_equals_the_newcomer_goes_on() -> None:
    bracket = _bracket()
    assert bracket.reported(1, 1, 0.5) is None

    assert bracket.reported(2, 1, 0.5) is None
    assert bracket.reported(3, 1, 0.6) is not None


def test_trial_is_ranked_once_at_each_rung() -> None:
    bracket = _bracket()
    assert bracket.reported(1, 1, 0.5) is None
    assert bracket.reported(1, 2, 9.0) is None  # between rungs: no matter

    assert bracket.rungs[0].values == [0.5]
    assert bracket.rungs[1].values == []


def test_value_that_is_no_number_stops_even_the_first_at_a_rung() -> None:
    bracket = _bracket()

    stop = bracket.reported(1, 1, WORST)

    assert stop is not None
    assert stop.kind is StopKind.PRUNED
    assert "not a finite number" in stop.message


def test_failed_trial_counts_as_the_worst_at_its_rung() -> None:
    bracket = _bracket()
    bracket.ended(1, Outcome.FAILED)
    bracket.ended(2, Outcome.FAILED)

    assert bracket.rungs[0].values == [WORST, WORST]
    assert bracket.reported(3, 1, 100.0) is None


def test_failed_trial_that_was_told_to_stop_counts_once() -> None:
    bracket = _bracket()
    bracket.reported(1, 1, 0.1)
    assert bracket.reported(2, 1, 0.2) is not None

    bracket.ended(2, Outcome.FAILED)

    assert bracket.rungs[0].values == [0.1, 0.2]


def test_invalid_trial_leaves_no_trace_at_any_rung() -> None:
    bracket = _bracket()
    bracket.reported(1, 3, 0.5)
    bracket.reported(2, 1, 0.5)

    bracket.ended(1, Outcome.INVALID_HP)

    assert [rung.values for rung in bracket.rungs] == [[0.5], [], []]
    assert list(bracket.rungs[0].by_trial) == [2]


def test_stop_says_the_rank_in_words() -> None:
    bracket = _bracket()
    bracket.reported(1, 1, 0.1)

    stop = bracket.reported(2, 1, 0.2)

    assert stop is not None
    assert stop.message == "2 of 2 at rung 1, where the best 1 go on"


def test_place_of_a_stopped_trial_is_free_once_it_ended() -> None:
    searcher = build_searcher(_spec(20, 64, max_concurrent=4))
    first = [searcher.ask() for _ in range(4)]
    assert all(first)
    assert searcher.ask() is None
    brackets = [suggestion.bracket for suggestion in first if suggestion is not None]
    assert brackets == [0, 0, 1, 1]

    assert searcher.report(3, step=64, values={"loss": 0.5}) is not None
    assert searcher.ask() is None
    searcher.ended(3, Outcome.STOPPED)
    following = searcher.ask()

    assert following is not None
    assert (following.trial, following.bracket) == (5, 1)


def test_trial_that_ends_by_itself_before_a_rung_is_followed_by_another() -> None:
    """Determined starts none then, and so a training shorter than max_time starves its search."""
    searcher = build_searcher(_spec(20, 64, max_concurrent=4))
    for _ in range(4):
        searcher.ask()

    searcher.ended(1, Outcome.COMPLETED, reported=["loss"])
    assert searcher.failure() is not None  # it completed without the metric, and nobody reported it
    searcher.report(2, step=1, values={"loss": 1.0})

    assert searcher.failure() is None
    assert searcher.ask() is not None


def test_async_halving_is_one_bracket() -> None:
    spec = _spec(50, 100).with_(stopping={"name": "async_halving", "num_rungs": 3, "max_time": 100, "divisor": 3})
    (bracket,) = plan_brackets(spec, 50)
    (unlimited,) = plan_brackets(spec.with_(max_concurrent_trials=0), 50)
    (small,) = plan_brackets(spec.with_(max_concurrent_trials=0), 5)

    assert bracket == BracketPlan((11, 33, 100), 50, 16)
    assert unlimited.concurrency == 9  # divisor ** (rungs - 1)
    assert small.concurrency == 5


def test_goal_turns_the_ranking() -> None:
    spec = _spec(9, 9, divisor=3, mode="aggressive")
    least, most = build_searcher(spec), build_searcher(spec.with_(goal="maximize"))
    for searcher in (least, most):
        searcher.ask()
        searcher.ask()
        searcher.report(1, step=1, values={"loss": 1.0})

    assert least.report(2, step=1, values={"loss": 2.0}) is not None
    assert most.report(2, step=1, values={"loss": 2.0}) is None


@pytest.mark.parametrize(
    ("time_metric", "values", "counts"),
    [
        (None, {"loss": 1.0}, True),
        ("epochs", {"loss": 1.0, "epochs": 9.0}, True),
        ("epochs", {"loss": 1.0}, False),  # time unknown: no decision, and no error
        ("epochs", {"loss": 1.0, "epochs": float("nan")}, False),
        ("batches", {"loss": 1.0}, True),  # a report's step is its number of batches
    ],
)
def test_time_is_the_time_metric_or_the_step(
    time_metric: str | None, values: dict[str, float], *, counts: bool
) -> None:
    spec = _spec(1, 9, time_metric=time_metric)
    searcher = build_searcher(spec)
    searcher.ask()

    assert (searcher.report(1, step=9, values=values) is not None) is counts


def test_progress_counts_as_determined_does() -> None:
    searcher = build_searcher(_spec(10, 9, divisor=3, mode="aggressive", max_concurrent=10))
    for trial in range(1, 11):
        searcher.ask()
        searcher.report(trial, step=1, values={"loss": 1.0 / trial})

    assert searcher.progress() == pytest.approx(10 / 12)
