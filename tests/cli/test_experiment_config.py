"""The file of a search: any dialect, over a template, under overrides; and what `preview-search` says of it."""

import json
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest

from stoker.compat.search_config import Override, laid_over, override, read_search, with_overrides
from stoker.errors import ConfigError, UsageError
from tests.cli.conftest import Stoker

DETERMINED = """
name: mnist adaptive
entrypoint: python3 train.py
hyperparameters:
  global_batch_size: 64
  learning_rate: {type: log, base: 10, minval: -4, maxval: 0}
searcher: {name: adaptive_asha, metric: validation_loss, max_trials: 16, max_length: {batches: 937}}
"""
OURS = """
module: trainer.task
search:
  metric: loss
  sampler: tpe
  max_trials: 20
  max_concurrent_trials: 4
  space: {x: {type: double, min: 0, max: 1}}
"""
AI_PLATFORM = """
trainingInput:
  hyperparameters:
    goal: MINIMIZE
    hyperparameterMetricTag: test_loss
    maxTrials: 20
    maxParallelTrials: 4
    params: [{parameterName: lr, type: DOUBLE, minValue: 0.0001, maxValue: 1}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "search.yaml"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("searcher.max_trials=20", Override(("searcher", "max_trials"), 20)),
        ("name=a=b", Override(("name",), "a=b")),
        (
            "hyperparameters.lr={type: log, minval: -3}",
            Override(("hyperparameters", "lr"), {"type": "log", "minval": -3}),
        ),
        ("data.path=", Override(("data", "path"), None)),
        ("labels=[a, b]", Override(("labels",), ["a", "b"])),
    ],
)
def test_an_override_is_a_path_and_a_yaml_value(text: str, wanted: Override) -> None:
    assert override(text) == wanted


@pytest.mark.parametrize("text", ["searcher", "=3", "a..b=3", "a=[1"])
def test_an_override_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        override(text)


def test_overrides_set_what_is_there_and_what_is_not() -> None:
    document = {"searcher": {"name": "random", "max_trials": 5}, "name": "x"}

    changed = with_overrides(document, [override("searcher.max_trials=9"), override("resources.max_slots=2")])

    assert changed == {"searcher": {"name": "random", "max_trials": 9}, "name": "x", "resources": {"max_slots": 2}}
    assert document["searcher"] == {"name": "random", "max_trials": 5}


def test_an_override_replaces_a_parameter_whole() -> None:
    document = {"hyperparameters": {"lr": {"type": "log", "minval": -4, "maxval": 0}}}

    assert with_overrides(document, [override("hyperparameters.lr=0.1")]) == {"hyperparameters": {"lr": 0.1}}


def test_an_override_below_a_value_is_refused() -> None:
    with pytest.raises(UsageError, match="name is 'x' and has no fields"):
        with_overrides({"name": "x"}, [override("name.first=y")])


@pytest.mark.parametrize(
    ("template", "document", "wanted"),
    [
        ({"resources": {"slots_per_trial": 2}}, {"resources": {"priority": 3}}, {"slots_per_trial": 2, "priority": 3}),
        ({"resources": {"slots_per_trial": 2}}, {"resources": {"slots_per_trial": 1}}, {"slots_per_trial": 1}),
        ({"resources": 3}, {"resources": {"priority": 3}}, {"priority": 3}),
        ({"resources": {"name": "a", "x": 1}}, {"resources": {"name": "b"}}, {"name": "b"}),
        ({"resources": {"type": "log", "x": 1}}, {"resources": {"type": "log", "y": 1}}, {"type": "log", "y": 1}),
        ({"resources": {"priority": 3}}, {}, {"priority": 3}),
    ],
)
def test_a_template_says_what_the_file_leaves_out(
    template: dict[str, Any], document: dict[str, Any], wanted: dict[str, Any]
) -> None:
    assert laid_over(template, document) == {"resources": wanted}


@pytest.mark.parametrize(("text", "trials"), [(DETERMINED, 16), (OURS, 20), (AI_PLATFORM, 20)])
def test_every_dialect_is_previewed_without_a_server(stoker: Stoker, file: Path, text: str, trials: int) -> None:
    file.write_text(text)

    result = stoker("preview-search", str(file), "--json")

    assert (result.code, json.loads(result.out)["trials"]) == (0, trials)
    assert not (file.parent / "home").exists()  # no server was started, no home made


def test_a_preview_says_lengths_and_cost(stoker: Stoker, file: Path) -> None:
    file.write_text(DETERMINED)

    result = stoker("preview-search", str(file), "--time-per-unit", "2s")

    assert "9       58 batches\n5       234 batches\n2       937 batches\n" in result.out
    assert "in all:         3,566 batches; 14,992 if none were stopped early (4.2 times as much)" in result.out
    assert "cost:           1.98 trial-hours" in result.out
    assert "takes:          at least 31m 14s" in result.out  # the longest trial, not the sum shared by sixteen
    assert "the job is called mnist_adaptive" in result.err


def test_a_preview_counts_a_stopped_trial_by_its_part(stoker: Stoker, file: Path) -> None:
    file.write_text(DETERMINED)

    result = stoker("preview-search", str(file), "--time-per-trial", "937h", "--json")

    assert json.loads(result.out)["trial_hours"] == pytest.approx(3566)


def test_a_preview_follows_overrides_and_templates(stoker: Stoker, file: Path) -> None:
    file.write_text(DETERMINED)
    template = file.with_name("template.yaml")
    template.write_text("resources: {max_slots: 4}\nsearcher: {max_trials: 99, divisor: 2}\n")

    result = stoker("preview-search", str(file), "--template", str(template), "--config", "searcher.max_trials=8")

    assert "trials:         8\n" in result.out


@pytest.mark.parametrize(
    ("text", "words", "complaint"),
    [
        ("module: trainer.task\n", (), "has no search"),
        (DETERMINED, ("--config", "searcher.max_trials=0"), "searcher.max_trials"),
        (DETERMINED, ("--config", "hyperparameters.learning_rate.minval=3"), "hyperparameters.learning_rate"),
        (OURS, ("--config", "search.sampler=tpee"), "search.sampler"),
        (OURS, ("--time-per-unit", "3s"), "--time-per-trial"),
        (OURS, ("--config", "search"), "an override is key.below=value"),
        (OURS, ("--template", "nowhere.yaml"), "Cannot read nowhere.yaml"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(
    stoker: Stoker, file: Path, text: str, words: tuple[str, ...], complaint: str
) -> None:
    file.write_text(text)

    result = stoker("preview-search", str(file), *words)

    assert (result.code, result.out) == (2, "")
    assert complaint in result.err


def test_a_file_without_a_search_says_what_was_expected() -> None:
    with pytest.raises(ConfigError, match="`searcher:` and `hyperparameters:`"):
        read_search({"module": "trainer.task"}, source="job.yaml")
