"""The template for tables by its tutorial: trained here and as a job, and what was learnt looked at."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from stoker.host.home import Home
from stoker.predict.loading import load
from stoker.recipes import synthetic
from stoker.templates import lay_down
from tests.e2e.command import run
from tests.e2e.conftest import home  # noqa: F401 - a home of its own, whose server is ended
from tests.templates.pages import refusal, run_tutorial

Rows = pl.DataFrame


@pytest.mark.slow
def test_tabular_learns_the_census_here_and_as_a_job(home: Home, tmp_path: Path) -> None:  # noqa: F811
    project = run_tutorial("tabular", tmp_path)

    _, best = synthetic.best_score("census", synthetic.make("census", rows=5000, seed=2))
    cards = [load(project / place / "model").card for place in ("output", "jobs/people_1")]
    for card in cards:
        assert card.metrics["auc"] > best - 0.015
    assert cards[0].metrics == cards[1].metrics  # the same code, the same seed, the same data
    tests = run(["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], cwd=project)
    assert tests.code == 0, tests.out + tests.err


def cell(rows: Rows, column: str, text: str) -> Rows:
    """The third row's, as a text."""
    texts = rows.cast(pl.String)
    return texts.with_columns(pl.when(pl.int_range(pl.len()) == 2).then(pl.lit(text)).otherwise(column).alias(column))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda rows: rows.rename({"age": "years"}),
            "its header does not match the metadata's: it lacks 'age' and has",
        ),
        (lambda rows: rows.drop("age"), "its header does not match the metadata's: it lacks 'age'."),
        (lambda rows: rows.with_columns(more=1), "its header does not match the metadata's: it has 'more' besides."),
        (
            lambda rows: cell(rows, "income_bracket", "much"),
            "row 3, column 'income_bracket': the label 'much' is not one",
        ),
        (lambda rows: cell(rows, "age", "old"), "row 3, column 'age': 'old' is not a number."),
        (lambda rows: rows.clear(), "is empty: it has no rows."),
        (lambda rows: rows.filter(income_bracket="<=50K"), "The label '>50K' never occurs in the training data"),
    ],
    ids=["header", "missing column", "extra column", "label", "text", "empty", "absent class"],
)
def test_bad_data_is_one_sentence_before_training(spoil: Callable[[Rows], Rows], said: str, tmp_path: Path) -> None:
    project = lay_down("tabular", name="people", directory=tmp_path / "people")
    rows = Rows(synthetic.make("census", rows=100, seed=1))
    rows.write_csv(project / "good.csv")
    spoil(rows).write_csv(project / "bad.csv")

    for train, judged in (("bad.csv", "good.csv"), ("good.csv", "bad.csv")):
        if judged == "bad.csv" and "never occurs" in said:
            continue  # nothing is to be learnt of evaluation data
        message = refusal(project, "--train-files", train, "--eval-files", judged, "--job-dir", "out")
        assert message.startswith("error: ")
        assert said in message
        assert "\n" not in message
        assert not (project / "out").exists()
