"""The template for tables by its tutorial: trained here and as a job, and what was learnt looked at."""

from pathlib import Path

import pytest

from stoker.home import Home
from stoker.predict.loading import load
from stoker.recipes import synthetic
from tests.e2e.command import run
from tests.e2e.conftest import home  # noqa: F401 - a home of its own, whose server is ended
from tests.templates.pages import run_tutorial

pytestmark = pytest.mark.slow


def test_tabular_learns_the_census_here_and_as_a_job(home: Home, tmp_path: Path) -> None:  # noqa: F811
    project = run_tutorial("tabular", tmp_path)

    _, best = synthetic.best_score("census", synthetic.make("census", rows=5000, seed=2))
    cards = [load(project / place / "model").card for place in ("output", "jobs/people_1")]
    for card in cards:
        assert card.metrics["auc"] > best - 0.015
    assert cards[0].metrics == cards[1].metrics  # the same code, the same seed, the same data
    tests = run(["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], cwd=project)
    assert tests.code == 0, tests.out + tests.err
