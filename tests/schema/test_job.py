"""JobSpec: what is refused, and with which words."""

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import ConfigError
from stoker.schema.job import JobSpec


def spec(**fields: Any) -> JobSpec:
    return JobSpec.parse({"name": "job", "module": "trainer.task", **fields}, source="stoker.yaml")


@pytest.mark.parametrize("name", ["a", "Taxi_1", "x" * 128])
def test_names_that_follow_the_rule_are_taken(name: str) -> None:
    assert spec(name=name).name == name


@pytest.mark.parametrize("name", ["", "1a", "_a", "a-b", "a b", "a.b", "ä", "x" * 129, "a\n"])
def test_names_that_break_the_rule_are_refused_with_it(name: str) -> None:
    with pytest.raises(ConfigError, match="letters, digits and underscores"):
        spec(name=name)


@pytest.mark.parametrize("module", ["trainer.task", "gym-rl.task", "a"])
def test_modules_that_python_can_run_are_taken(module: str) -> None:
    assert spec(module=module).module == module


@pytest.mark.parametrize("module", ["trainer/task.py", "trainer.task.", "", "a b", "-c"])
def test_modules_are_dotted_words(module: str) -> None:
    with pytest.raises(ConfigError):
        spec(module=module)


@pytest.mark.parametrize("labels", [{"A": "x"}, {"a": "X"}, {"1a": "x"}, {"a": "x" * 64}, {"a b": ""}])
def test_labels_follow_the_api(labels: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="label"):
        spec(labels=labels)


def test_a_command_job_needs_a_command() -> None:
    with pytest.raises(ConfigError, match="command"):
        spec(kind="command")


def test_roles_need_one_chief() -> None:
    with pytest.raises(ConfigError, match="chief"):
        spec(resources={"roles": {"worker": {"count": 2}}})


@given(st.dictionaries(st.text(max_size=8), st.one_of(st.none(), st.integers(), st.text(max_size=8)), max_size=4))
def test_any_document_is_a_spec_or_a_config_error(document: dict[str, object]) -> None:
    try:
        found = JobSpec.parse(document, source="stoker.yaml")
    except ConfigError:
        return
    assert JobSpec.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    ("hash", "filename"),
    [("/etc", "passwd"), ("ab" * 32, "../x.whl"), ("ab" * 32, ".hidden"), ("ab" * 32, ""), ("AB" * 32, "x.whl")],
)
def test_archive_that_could_name_another_file_is_refused(hash: str, filename: str) -> None:
    archives = [{"hash": hash, "filename": filename}]

    with pytest.raises(ConfigError, match=r"environment\.archives\.0"):
        JobSpec.parse({"name": "j", "module": "m", "environment": {"archives": archives}}, source="job")


def test_an_environment_is_as_of_a_date_however_yaml_reads_it() -> None:
    def as_of(value: object) -> str | None:
        return spec(environment={"as_of": value}).environment.as_of

    assert as_of(date(2020, 1, 15)) == as_of("2020-01-15") == "2020-01-15"
    assert as_of("auto") == "auto"
    with pytest.raises(ConfigError, match="as_of must be a date like 2020-01-15, auto or today"):
        as_of("last summer")
