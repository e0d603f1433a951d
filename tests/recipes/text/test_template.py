"""The template `text` by its tutorial: trained by its Makefile here and as a job, and what it learnt looked at."""

from pathlib import Path

import numpy as np
import pytest

from stoker.home import Home
from stoker.predict.loading import load
from stoker.recipes import synthetic
from tests.e2e.conftest import home
from tests.templates.pages import run_tutorial

__all__ = ["home"]

pytestmark = pytest.mark.slow


@pytest.mark.timeout(600)  # two trainings
def test_the_tutorial_teaches_an_encoder_the_truth(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # two threads on two busy cores wait for each other

    project = run_tutorial("text", tmp_path)

    fresh = synthetic.make("reviews", rows=300, seed=77)
    truth = synthetic.expected("reviews", fresh)
    clear = np.abs(truth - 0.5) > 0.3  # where the planted words leave little doubt
    answers = load(project / "output" / "film-reviews").predict(fresh["text"].to_pylist())
    positive = np.array([answer["label"] == "positive" for answer in answers])
    assert np.mean(positive[clear] == (truth[clear] > 0.5)) > 0.85
