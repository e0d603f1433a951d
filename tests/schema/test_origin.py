"""Where a job came from: as a field of jobs and files, and as stoker 0.1.0 wrote it."""

from typing import Any

import pytest

from stoker.errors import ConfigError
from stoker.origin import Origin, Platform, TrainerSettings, from_0_1
from stoker.schema.job import JobSpec
from stoker.submission import job_file

EXPERIMENT = {"name": "digits", "entrypoint": "python3 train.py"}


def a_spec(**fields: Any) -> JobSpec:
    return JobSpec.parse({"name": "a", "module": "m", **fields}, source="stoker.yaml")


def test_job_of_our_own_has_none_and_its_data_may_have_any_name() -> None:
    spec = a_spec(data={"stoker": {"mine": 1}})

    assert (spec.origin, spec.data) == (None, {"stoker": {"mine": 1}})


def test_origin_is_the_same_after_json() -> None:
    origin = Origin(
        Platform.DETERMINED, document=EXPERIMENT, trainer=TrainerSettings(max_length={"epochs": 2}), slots=4
    )
    spec = a_spec(origin=origin)

    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec
    assert Origin.from_json(spec.model_dump(mode="json")["origin"]) == origin


def test_bad_fields_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        a_spec(origin={"platform": "slurm", "trainer": {"max_lenght": {"epochs": 2}}})

    assert list(caught.value.problems) == [
        "origin.platform: input should be 'aiplatform' or 'determined' (got 'slurm')",
        "origin.trainer.max_lenght: no such field",
    ]


@pytest.mark.parametrize(
    ("kept", "origin"),
    [
        ({"experiment": EXPERIMENT, "slots": 2}, {"platform": "determined", "document": EXPERIMENT, "slots": 2}),
        ({"container": True}, {"platform": "aiplatform", "container": True, "image": None}),
        ({"trainer": {"test_mode": True}}, None),
    ],
)
def test_what_0_1_kept_in_data_is_moved(kept: dict[str, Any], origin: dict[str, Any] | None) -> None:
    assert from_0_1({"data": {"rows": 8, "stoker": kept}}) == {"data": {"rows": 8}, "origin": origin}


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"data": None},
        {"data": {"stoker": 1}},
        {"data": {"stoker": {}}},
        {"data": {"stoker": {"experiment": EXPERIMENT, "mine": 1}}},
        {"data": {"stoker": {"trainer": "me"}}},
        {"data": {"stoker": {"experiment": EXPERIMENT}}, "origin": None},
    ],
)
def test_what_is_the_users_stays(values: dict[str, Any]) -> None:
    assert from_0_1(values) is values


def test_file_that_0_1_wrote_for_an_old_directory_is_taken() -> None:
    document = {"module": "m", "data": {"rows": 8, "stoker": {"experiment": EXPERIMENT}}}

    values = job_file.read(document, source="stoker.yaml").values

    assert values["data"] == {"rows": 8}
    assert values["origin"] == {"platform": "determined", "document": EXPERIMENT}
