"""How a search looks on a terminal: tables that fit, a curve, what mattered."""

import pytest

from stoker.cli.describe import page
from stoker.cli.search_report import facts, flat, report, trials_table, value_of, varied, why
from stoker.compat.commands.determined.experiment import experiments_table, sorted_by
from stoker.errors import UsageError
from stoker.schema.record import SearchStatus
from stoker.schema.state import JobState, RunState
from stoker.terminal.plot import plot_steps
from tests.cli.records import NOW, a_run, a_search_job, a_status, a_trial


def described(status: SearchStatus, *, width: int = 100) -> str:
    return "\n".join([*(f"{name}: {value}" for name, value in facts(status)), *report(status, width=width)])


def test_a_search_shows_its_best_trials_its_curve_and_what_mattered() -> None:
    text = described(a_status())

    assert "search: random with asha; minimize val_loss" in text
    assert "trials: 4 of at most 16: 1 completed, 3 stopped by the search" in text
    assert "best: val_loss=0.25 (trial 4)" in text
    assert "TRIAL  STATE      val_loss  learning_rate\n4      SUCCEEDED  0.25      0.04\n" in text
    assert "Best val_loss so far, by trial:" in text
    assert "learning_rate   75%  ##################" in text


def test_a_search_that_has_just_begun_shows_no_empty_parts() -> None:
    status = a_status(
        state=JobState.RUNNING,
        progress=0.0,
        finished=False,
        states={"RUNNING": 2, "QUEUED": 1},
        outcomes={},
        best=(),
        curve=(),
        importance={},
    )

    assert described(status).splitlines() == [
        "search: random with asha; minimize val_loss",
        "trials: 3 of at most 16: 2 running, 1 queued",
        "progress: 0%",
    ]


def test_a_search_that_failed_says_why() -> None:
    failure = "no trial reported 'accuracy'; they reported: acc, loss"

    assert f"search failed: {failure}" in described(a_status(state=JobState.RUNNING, failure=failure))
    assert failure not in described(a_status(state=JobState.FAILED, failure=failure))  # the job's own reason has it


def test_several_objectives_have_a_column_each_and_a_front() -> None:
    objectives = ({"metric": "accuracy", "goal": "maximize"}, {"metric": "latency"})
    trials = (a_trial(1, objectives={"accuracy": 0.9, "latency": 12.0}, objective=0.9),)

    text = described(a_status(objectives=objectives, best=trials, front=(1, 3)))

    assert "search: random with asha; maximize accuracy, minimize latency" in text
    assert "front: trials 1, 3" in text
    assert "TRIAL  STATE      accuracy  latency" in text


def test_a_table_tells_why_trials_were_stopped() -> None:
    stopped = a_trial(2, stopped="12 of 16 at rung 58, where the best 4 go on", outcome="stopped")
    failed = a_trial(3, JobState.FAILED, outcome="failed", runs=(a_run(1, RunState.FAILED, message="out of memory"),))
    invalid = a_trial(4, outcome="invalid_hp")

    assert why(stopped) == "12 of 16 at rung 58, where the best 4 go on"
    assert why(failed) == "out of memory"
    assert why(invalid) == "refused its hyperparameters"
    assert "WHY" not in trials_table([a_trial(1), a_trial(2)], objectives=["val_loss"], width=100)
    assert "  WHY\n" in trials_table([a_trial(1), stopped], objectives=["val_loss"], width=100)
    assert why(a_trial(2, stopped="pruned: too late", outcome="completed")) == ""


def test_hyperparameters_come_before_the_whole_reason() -> None:
    trials = [a_trial(n, stopped="12 of 16 at rung 58, where the best 4 go on", outcome="stopped") for n in (1, 2)]

    drawn = trials_table(trials, objectives=["val_loss"], width=70).splitlines()

    assert drawn[0].split() == ["TRIAL", "STATE", "val_loss", "learning_rate", "WHY"]
    assert drawn[1].endswith("…")
    assert max(map(len, drawn)) <= 70


def test_a_metric_of_another_group_is_found_without_it() -> None:
    trial = a_trial(1, metrics={"validation/accuracy": 0.5})

    assert [value_of(trial, name) for name in ("validation/accuracy", "accuracy", "ccuracy")] == [0.5, 0.5, None]


def test_columns_that_do_not_fit_are_counted() -> None:
    trials = [a_trial(n, hparams={f"parameter_number_{i}": n * i + n for i in range(10)}) for n in (1, 2)]

    drawn = trials_table(trials, objectives=["val_loss"], width=80)

    assert max(map(len, drawn.splitlines())) <= 80
    assert "(8 more hyperparameters do not fit: --json shows all)" in drawn


def test_only_what_differs_gets_a_column() -> None:
    points = [flat({"lr": 0.1, "model": {"kind": "deep", "width": 3}}), flat({"lr": 0.2, "model": {"kind": "deep"}})]

    assert varied(points) == ["lr", "model.width"]
    assert varied(points[:1]) == ["lr", "model.kind", "model.width"]


def test_trials_are_sorted_by_any_metric_and_those_without_it_come_last() -> None:
    trials = [a_trial(1), a_trial(2), a_trial(3, metrics={"accuracy": float("nan")}), a_trial(4, metrics={})]

    assert [trial.number for trial in sorted_by(trials, "accuracy", ["val_loss"])] == [1, 2, 3, 4]
    assert [trial.number for trial in sorted_by(trials, "~accuracy", ["val_loss"])] == [2, 1, 3, 4]
    with pytest.raises(UsageError, match="No trial has a metric 'acc'. There are: accuracy, val_loss."):
        sorted_by(trials, "acc", ["val_loss"])


def test_a_plot_is_a_staircase_between_its_extremes() -> None:
    lines = plot_steps([(1, 8.0), (2, 4.0), (4, 1.0)], width=40, height=8)

    assert lines[0].startswith("8 | **")
    assert (lines[7][:3], lines[7][-1]) == ("1 |", "*")
    assert lines[8] == "  +" + "-" * 37
    assert lines[9].split() == ["1", "4"]
    assert all(len(line) <= 40 for line in lines)
    columns = ["".join(line.ljust(40)[column] for line in lines[:8]) for column in range(4, 40)]
    assert all(column.count("*") == 1 for column in columns)  # one value at each x


def test_a_plot_fits_where_it_is_drawn() -> None:
    curve = [(float(n), 1000.0 / n) for n in range(1, 2001)]

    for width in (40, 80, 200):
        assert max(map(len, plot_steps(curve, width=width))) <= min(width, 100)


def test_a_plot_of_one_value_is_flat() -> None:
    lines = plot_steps([(1, 0.5), (9, 0.5)], width=60)

    assert [line.count("*") for line in lines] == [0] * 7 + [54, 0, 0]
    assert sum("0.5" in line for line in lines) == 1
    assert plot_steps([], width=60) == []


def test_a_plot_over_many_magnitudes_has_a_logarithmic_scale() -> None:
    lines = plot_steps([(1, 1000.0), (2, 10.0), (3, 0.1)], width=60, height=9)

    assert [row for row, line in enumerate(lines[:9]) if "*" in line] == [0, 4, 8]


def test_the_list_of_experiments_shows_the_best_so_far() -> None:
    job = a_search_job()

    drawn = experiments_table([(job, a_status())], now=NOW)

    assert drawn.splitlines()[1].split() == [
        *("mnist_1", "SUCCEEDED", "7", "random+asha", "4/16", "val_loss=0.25", "1m", "ago", "1m", "00s"),
    ]


def test_jobs_describe_shows_the_search_instead_of_every_trials_runs() -> None:
    job = a_search_job().with_(trials=tuple(a_trial(number) for number in (1, 2)))

    text = "\n".join(page(job, now=NOW, search=a_status()))

    assert "trials:         4 of at most 16" in text
    assert "Best trials by val_loss:" in text
    assert "Runs of trial" not in text
    assert "run directory:" not in text
