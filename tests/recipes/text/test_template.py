"""The template `text` by its tutorial: trained by its Makefile here and as a job, and what it learnt looked at."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import transformers

from stoker.host.home import Home
from stoker.predict.loading import load
from stoker.recipes import synthetic
from stoker.templates import lay_down
from tests.e2e.conftest import home
from tests.recipes.text.conftest import a_config, write_csv
from tests.templates.pages import refusal, run_tutorial

__all__ = ["home"]

Rows = list[dict[str, str]]


@pytest.mark.long
@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: [{"words": row["text"], "label": row["label"]} for row in rows], "has no column 'text'"),
        (lambda rows: [{"text": row["text"]} for row in rows], "has no column 'label'"),
        (lambda rows: [{**rows[0], "label": "so so"}, *rows], "row 1: label 'so so' is not one of negative, positive"),
        (lambda rows: [row for row in rows if row["label"] == "negative"], "never has the class positive"),
    ],
    ids=["header", "missing column", "label", "absent class"],
)
def test_bad_data_is_one_sentence_before_training(
    spoil: Callable[[Rows], Rows], said: str, tmp_path: Path, reviews: Rows
) -> None:
    project = lay_down("text", name="films", directory=tmp_path / "films")
    write_csv(project / "bad.csv", spoil(reviews))

    assert_refused(project, said, "--dataset", "bad.csv")


def test_an_empty_file_and_a_foreign_tokenizer_are_one_sentence(
    tmp_path: Path, reviews_csv: Path, encoder_dir: Path
) -> None:
    project = lay_down("text", name="films", directory=tmp_path / "films")
    (project / "empty.csv").write_text("text,label\n")
    transformers.AutoTokenizer.from_pretrained(encoder_dir).save_pretrained(project / "misfit")
    transformers.BertModel(a_config(20)).save_pretrained(project / "misfit")

    assert_refused(project, "empty.csv", "--dataset", "empty.csv")
    assert_refused(project, "does not fit its model", "--dataset", str(reviews_csv), "--model", "misfit")


def assert_refused(project: Path, said: str, *words: str) -> None:
    message = refusal(project, *words, "--job-dir", "out")
    assert message.startswith("error: ")
    assert said in message
    assert "\n" not in message
    assert not (project / "out").exists()
