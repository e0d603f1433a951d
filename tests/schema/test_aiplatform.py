"""AI Platform's Job resource, read into JobSpec's fields."""

from typing import Any

import pytest

from stoker.compat.dialects import aiplatform
from stoker.errors import ConfigError
from stoker.schema.job import JobSpec
from stoker.schema.launch import Role


def read(training: dict[str, Any], **job: Any) -> dict[str, Any]:
    return aiplatform.read({"trainingInput": training, **job}, source="config.yaml").values


def problems(training: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        read(training)
    return caught.value.problems


def test_a_full_config_becomes_a_valid_spec() -> None:
    values = read(
        {
            "scaleTier": "CUSTOM",
            "masterType": "n1-standard-8",
            "masterConfig": {"acceleratorConfig": {"count": 2, "type": "NVIDIA_TESLA_T4"}},
            "workerType": "n1-standard-4",
            "workerCount": 3,
            "parameterServerType": "large_model",
            "parameterServerCount": 1,
            "evaluatorType": "standard",
            "evaluatorCount": 1,
            "pythonModule": "trainer.task",
            "args": ["--epochs", 3],
            "region": "us-central1",
            "jobDir": "gs://bucket/out",
            "runtimeVersion": "2.1",
            "pythonVersion": "3.7",
            "scheduling": {"maxRunningTime": "7200s", "maxWaitTime": "3600s", "priority": 7},
        },
        jobId="census_1",
        labels={"team": "a"},
    )

    spec = JobSpec.parse(values, source="config.yaml")

    assert spec.name == "census_1"
    assert spec.labels == {"team": "a"}
    assert spec.module == "trainer.task"
    assert spec.args == ("--epochs", "3")
    assert spec.pool == "us-central1"
    assert spec.job_dir == "gs://bucket/out"
    assert (spec.environment.runtime, spec.environment.python) == ("2.1", "3.7")
    assert (spec.limits.max_running_s, spec.limits.max_waiting_s, spec.priority) == (7200, 3600, 7)
    assert spec.resources.roles is not None
    assert {role: each.count for role, each in spec.resources.roles.items()} == {
        Role.CHIEF: 1,
        Role.WORKER: 3,
        Role.PS: 1,
        Role.EVALUATOR: 1,
    }
    chief = spec.resources.roles[Role.CHIEF]
    assert (chief.machine, chief.gpus, chief.gpu_type) == ("n1-standard-8", 2, "NVIDIA_TESLA_T4")


def test_an_empty_config_says_nothing() -> None:
    assert read({}) == {"origin": {"platform": "aiplatform"}}


@pytest.mark.parametrize("spelling", ["STANDARD_1", "standard-1", "Standard_1"])
def test_scale_tier_is_taken_in_any_spelling(spelling: str) -> None:
    assert read({"scaleTier": spelling})["resources"] == {"tier": "STANDARD_1"}


@pytest.mark.parametrize(
    ("training", "name"),
    [
        ({"runtimeVersion": "1.15"}, "master"),
        ({"runtimeVersion": "2.0"}, "master"),
        ({"runtimeVersion": "2.1"}, None),
        ({"runtimeVersion": "2.11"}, None),
        ({"runtimeVersion": "1.15", "useChiefInTfConfig": True}, "chief"),
        ({"runtimeVersion": "1.15", "useChiefInTfConfig": False}, "master"),
        ({"runtimeVersion": "pytorch-2"}, None),
        ({}, None),
    ],
)
def test_chief_is_called_master_for_runtimes_before_2_1(training: dict[str, Any], name: str | None) -> None:
    assert read(training).get("chief_name") == name


def test_every_bad_field_is_named_with_its_path() -> None:
    found = problems(
        {
            "scaleTiers": "BASIC",
            "workerCount": -1,
            "pythonVersion": 3.10,
            "scheduling": {"maxRunningTime": "2h", "priority": 1001, "color": "red"},
            "masterConfig": {"acceleratorConfig": {"type": "NVIDIA_TESLA_T4"}},
            "hyperparameters": {"params": [{"parameterName": "lr", "type": "FLOAT"}]},
        }
    )

    paths = [problem.split(":")[0] for problem in found]
    assert sorted(paths) == [
        "trainingInput.hyperparameters.params.0.type",
        "trainingInput.masterConfig.acceleratorConfig.count",
        "trainingInput.pythonVersion",
        "trainingInput.scaleTiers",
        "trainingInput.scheduling.color",
        "trainingInput.scheduling.maxRunningTime",
        "trainingInput.scheduling.priority",
        "trainingInput.workerCount",
    ]


def test_a_version_that_yaml_took_for_a_number_is_read_but_for_one_that_may_be_another() -> None:
    assert read({"runtimeVersion": 2.1, "pythonVersion": 3.7}) == read(
        {"runtimeVersion": "2.1", "pythonVersion": "3.7"}
    )

    (problem,) = problems({"pythonVersion": 3.10})

    assert "quotes" in problem


def test_custom_tier_needs_machine_types() -> None:
    assert problems({"scaleTier": "CUSTOM", "workerCount": 2}) == (
        "trainingInput.masterType: is required when scaleTier is CUSTOM",
        "trainingInput.workerType: is required when workerCount is more than 0",
    )


def test_counts_and_types_are_for_custom_alone() -> None:
    assert problems({"scaleTier": "BASIC", "masterType": "n1-standard-4", "workerCount": 1}) == (
        "trainingInput.masterType: is for scaleTier CUSTOM (got BASIC)",
        "trainingInput.workerCount: is for scaleTier CUSTOM (got BASIC)",
    )


def test_a_runtime_and_an_image_exclude_each_other() -> None:
    (problem,) = problems({"runtimeVersion": "2.1", "masterConfig": {"imageUri": "gcr.io/x"}})

    assert problem.startswith("trainingInput.runtimeVersion:")


def test_no_gpus_may_be_written_as_a_count_of_none() -> None:
    none = {"acceleratorConfig": {"count": 0, "type": "NVIDIA_TESLA_K80"}}
    workers = {"workerCount": 0, "workerType": "n1-highmem-4", "workerConfig": none}
    values = read({"scaleTier": "CUSTOM", "masterType": "n1-standard-4", "masterConfig": none, **workers})

    assert values["resources"] == {"roles": {"chief": {"count": 1, "machine": "n1-standard-4"}}}


def test_a_gpu_beside_a_plain_tier_is_one_machine_with_it() -> None:
    values = read(
        {"scaleTier": "BASIC", "masterConfig": {"acceleratorConfig": {"count": 1, "type": "NVIDIA_TESLA_K80"}}}
    )

    assert values["resources"] == {"roles": {"chief": {"gpus": 1, "gpu_type": "NVIDIA_TESLA_K80"}}}


def test_a_search_is_read() -> None:
    params = [{"parameterName": "lr", "type": "DOUBLE", "minValue": 0.1, "maxValue": 1}]

    values = read({"hyperparameters": {"maxTrials": 4, "params": params, "hyperparameterMetricTag": "acc"}})

    search = JobSpec.model_validate({"name": "x", "module": "y", **values}).search
    assert search is not None
    assert (search.metric, search.max_trials, list(search.space)) == ("acc", 4, ["lr"])


def test_what_is_wrong_with_a_search_is_named_with_its_path() -> None:
    params = [{"parameterName": "lr", "type": "DOUBLE", "minValue": 1, "maxValue": 0.9}]

    (problem,) = problems({"hyperparameters": {"maxTrials": 4, "params": params}})

    assert problem.startswith("trainingInput.hyperparameters.params.0.maxValue: must not be less than minValue")


def test_a_range_of_one_value_is_that_value() -> None:
    params = [
        {"parameterName": "epochs", "type": "INTEGER", "minValue": 100, "maxValue": 100},
        {"parameterName": "rate", "type": "DOUBLE", "minValue": 0.4, "maxValue": 0.4, "scaleType": "UNIT_LOG_SCALE"},
        {"parameterName": "size", "type": "DISCRETE", "discreteValues": [1, 2]},
    ]

    space = read({"hyperparameters": {"maxTrials": 4, "params": params}})["search"]["space"]

    assert {name: one["values"] for name, one in space.items()} == {
        "epochs": [100],
        "rate": [0.4],
        "size": [1, 2],
    }


def test_batch_prediction_is_refused() -> None:
    with pytest.raises(ConfigError, match="trainingInput"):
        aiplatform.read({"predictionInput": {}}, source="config.yaml")


def test_fields_that_mean_nothing_here_are_named() -> None:
    reading = aiplatform.read(
        {
            "trainingInput": {
                "serviceAccount": "me@x",
                "network": "n",
                "scheduling": {"strategy": "LOW_COST"},
                "masterConfig": {"imageUri": "gcr.io/x", "diskConfig": {"bootDiskSizeGb": 100}},
                "packageUris": ["gs://bucket/a.whl"],
            }
        },
        source="config.yaml",
    )

    assert reading.ignored == (
        "serviceAccount",
        "network",
        "scheduling.strategy",
        "masterConfig.imageUri",
        "masterConfig.diskConfig",
    )
    assert reading.packages == ("gs://bucket/a.whl",)


def test_a_resource_copied_from_describe_is_taken() -> None:
    document = {"jobId": "a", "state": "SUCCEEDED", "createTime": "2020-01-01T00:00:00Z", "etag": "x"}

    assert aiplatform.read(document, source="job.json").values == {"origin": {"platform": "aiplatform"}, "name": "a"}
