"""Job files: loading them, telling dialects apart, laying one over another, and our own stoker.yaml."""

from pathlib import Path

import pytest

from stoker.compat.dialects.document import is_aiplatform, read
from stoker.errors import ConfigError, UsageError
from stoker.schema.job import JobSpec
from stoker.submission import job_file as stoker_yaml
from stoker.submission.job_file import load
from stoker.submission.reading import overlay


def test_yaml_and_json_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("trainingInput:\n  args: [--x, '1']\n")
    (tmp_path / "a.json").write_text('{"trainingInput": {"args": ["--x", "1"]}}')

    assert load(tmp_path / "a.yaml") == load(tmp_path / "a.json") == {"trainingInput": {"args": ["--x", "1"]}}


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [1\n", "line 2"),
        ("just words", "holds no fields"),
        ("", "holds no fields"),
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1: 'a' is there twice"),
        ("x: {b: 1, b: 2}\n", "'b' is there twice"),
        ("a: !!python/object/apply:os.system ['true']\n", "line 1"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load(path)

    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("document", "theirs"),
    [
        ({"trainingInput": {}}, True),
        ({"jobId": "a", "labels": {}}, True),
        ({"module": "trainer.task"}, False),
        ({"name": "a", "command": ["ls"]}, False),
        ({"trainingInputs": {}}, True),
    ],
)
def test_dialects_are_told_apart_by_content(document: dict[str, object], theirs: bool) -> None:
    assert is_aiplatform(document) is theirs


def test_overlay_goes_field_by_field_and_replaces_lists() -> None:
    base = {"a": {"x": 1, "y": 2}, "args": ["1", "2"], "keep": True}

    assert overlay(base, {"a": {"y": 3}, "args": ["9"]}) == {"a": {"x": 1, "y": 3}, "args": ["9"], "keep": True}


def test_overlay_leaves_what_is_no_section_for_the_schema_to_judge() -> None:
    assert overlay({"trainingInput": ["a"]}, {"trainingInput": {"jobDir": "x"}}) == {"trainingInput": ["a"]}


def test_stoker_yaml_takes_numbers_among_words() -> None:
    values = stoker_yaml.read({"module": "a.b", "args": ["--lr", 0.1, "--n", 3]}, source="stoker.yaml").values

    assert values["args"] == ["--lr", "0.1", "--n", "3"]


def test_stoker_yaml_with_a_command_is_a_command_job() -> None:
    values = stoker_yaml.read({"command": ["python", "train.py"]}, source="stoker.yaml").values

    assert JobSpec.parse({**values, "name": "x"}, source="x").kind == "command"


def test_stoker_yaml_names_every_bad_field() -> None:
    with pytest.raises(ConfigError) as caught:
        stoker_yaml.read(
            {"name": "a-b", "resources": {"slots": 0, "gpu": 1}, "limits": {"grace_s": "long"}, "modul": "x"},
            source="stoker.yaml",
        )

    paths = sorted(problem.split(":")[0] for problem in caught.value.problems)
    assert paths == ["limits.grace_s", "modul", "name", "resources.gpu", "resources.slots"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 0.0001),
        ("1E3", 1000.0),
        ("-2e+1", -20.0),
        ("1.5e-3", 0.0015),
        ("'1e-4'", "1e-4"),
        ("1e", "1e"),
        ("e4", "e4"),
    ],
)
def test_numbers_with_an_exponent_are_numbers(tmp_path: Path, text: str, value: object) -> None:
    (tmp_path / "a.yaml").write_text(f"x: {text}\n")

    assert load(tmp_path / "a.yaml") == {"x": value}


@pytest.mark.parametrize(
    "document",
    [
        {
            "entrypoint": "python3 train.py",
            "hyperparameters": {"x": {"type": "int", "minval": 1, "maxval": 3}},
            "searcher": {"name": "random", "metric": "loss", "max_trials": 3},
        },
        {
            "module": "a.b",
            "search": {"sampler": "random", "max_trials": 3, "space": {"x": {"type": "int", "min": 1, "max": 3}}},
        },
        {
            "trainingInput": {
                "pythonModule": "a.b",
                "hyperparameters": {
                    "maxTrials": 3,
                    "params": [{"parameterName": "x", "type": "INTEGER", "minValue": 1, "maxValue": 3}],
                },
            }
        },
    ],
)
def test_a_search_of_any_dialect_is_read(document: dict[str, object]) -> None:
    search = read(document, source="a.yaml").values["search"]

    assert (search["max_trials"], list(search["space"])) == (3, ["x"])
