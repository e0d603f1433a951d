"""The flags of `jobs submit training`, alone and over a file."""

from pathlib import Path
from typing import Any

import pytest

from stoker.compat.aiplatform import training_flags
from stoker.errors import ConfigError, UsageError
from stoker.schema.job import JobSpec
from stoker.schema.launch import Role
from stoker.submission.reading import Reading
from stoker.terminal.parser import Parser, split_user_args


def read(*words: str) -> Reading:
    parser = Parser(prog="stoker jobs submit training")
    training_flags.add(parser)
    ours, theirs = split_user_args(words)
    arguments = parser.parse_args(["taxi_1", *ours])
    arguments.user_args = None if theirs is None else tuple(theirs)
    return training_flags.read(arguments, training_flags.load_config(arguments))


def values(*words: str) -> dict[str, Any]:
    return read(*words).values


def test_a_plain_submission() -> None:
    found = values("--module-name", "trainer.task", "--job-dir", "out", "--region", "local", "--", "--epochs", "3")

    assert found == {
        "origin": {"platform": "aiplatform"},
        "name": "taxi_1",
        "module": "trainer.task",
        "job_dir": "out",
        "pool": "local",
        "args": ["--epochs", "3"],
    }


def test_user_args_are_taken_verbatim() -> None:
    theirs = ["--help", "--", "-x", "--module-name=other", "", "a b", "--job-dir"]

    assert values("--module-name", "m", "--", *theirs)["args"] == theirs


@pytest.mark.parametrize("spelling", ["standard-1", "STANDARD_1", "Standard-1"])
def test_scale_tier_is_taken_in_any_spelling(spelling: str) -> None:
    assert values("--scale-tier", spelling)["resources"] == {"tier": "STANDARD_1"}


def test_custom_machines_become_roles() -> None:
    found = values(
        *("--module-name", "m", "--scale-tier", "custom", "--master-machine-type", "n1-standard-8"),
        *("--master-accelerator", "type=nvidia-tesla-t4,count=2"),
        *("--worker-count", "2", "--worker-machine-type", "n1-standard-4"),
        *("--parameter-server-count", "1", "--parameter-server-machine-type", "large_model"),
        *("--worker-accelerator", "count=1,type=nvidia-tesla-p4"),
    )

    roles = JobSpec.parse(found, source="flags").resources.roles
    assert roles is not None
    assert (roles[Role.CHIEF].machine, roles[Role.CHIEF].gpus) == ("n1-standard-8", 2)
    assert (roles[Role.WORKER].count, roles[Role.WORKER].gpu_type) == (2, "NVIDIA_TESLA_P4")
    assert roles[Role.PS].machine == "large_model"


def test_python_runtime_and_labels() -> None:
    found = values("--runtime-version", "1.15", "--python-version", "3.7", "--labels", "a=1,b=2", "--labels", "c=3")

    assert found["environment"] == {"runtime": "1.15", "python": "3.7"}
    assert found["labels"] == {"a": "1", "b": "2", "c": "3"}
    assert found["chief_name"] == "master"


def test_our_own_flags() -> None:
    found = values("--prefer-runtime", "--max-restarts", "2", "--priority", "9", "--max-running-time", "2h")

    assert found["environment"] == {"prefer_runtime": True}
    assert found["restarts"] == {"max_restarts": 2}
    assert found["priority"] == 9
    assert found["limits"] == {"max_running_s": 7200}


def test_packages_may_be_several() -> None:
    assert read("--packages", "a.whl,b.tar.gz", "--packages", "c.zip").packages == ("a.whl", "b.tar.gz", "c.zip")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--scale-tier", "custom"), "--master-machine-type is required if scale-tier is set to `CUSTOM`."),
        (("--master-image-uri", "x", "--runtime-version", "2.1"), "Only one of --master-image-uri, --runtime-version"),
        (
            ("--scale-tier", "custom", "--master-machine-type", "a", "--worker-count", "2"),
            "--worker-count and --worker-machine-type go together",
        ),
        (("--master-machine-type", "n1-standard-4"), "only with --scale-tier custom"),
        (("--worker-count", "0"), "must be greater than 0"),
        (("--master-accelerator", "type=x"), "type=TYPE,count=N"),
        (("--labels", "a"), "KEY=VALUE"),
    ],
)
def test_flags_that_contradict_themselves_are_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(*words)

    assert says in str(caught.value)


def test_flags_that_mean_nothing_here_are_named() -> None:
    found = read(
        *("--service-account", "me", "--kms-key", "k", "--network", "n"),
        *("--enable-web-access", "--tpu-tf-version", "2", "--master-image-uri", "gcr.io/x", "--project", "p"),
        *("--worker-image-uri", "y", "--quiet", "--verbosity", "debug"),
    )

    assert set(found.ignored) == {
        "--service-account",
        "--kms-key",
        "--network",
        "--enable-web-access",
        "--tpu-tf-version",
        "--master-image-uri",
        "--worker-image-uri",
        "--project",
    }
    assert found.values == {"origin": {"platform": "aiplatform"}, "name": "taxi_1"}


AI_PLATFORM = """
jobId: from_file
labels: {team: a}
trainingInput:
  scaleTier: CUSTOM
  masterType: n1-standard-4
  workerType: n1-standard-4
  workerCount: 2
  pythonModule: trainer.file
  args: [--epochs, "1"]
  region: europe-west1
  jobDir: gs://bucket/file
  packageUris: [gs://bucket/file.whl]
  serviceAccount: me@x
  scheduling: {maxRunningTime: 60s}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(AI_PLATFORM)
    return path


def test_a_config_file_is_read(config: Path) -> None:
    found = read("--config", str(config))

    assert found.values["name"] == "taxi_1"  # the command line's own
    assert found.values["module"] == "trainer.file"
    assert found.values["args"] == ["--epochs", "1"]
    assert found.values["limits"] == {"max_running_s": 60}
    assert found.packages == ("gs://bucket/file.whl",)
    assert found.ignored == ("serviceAccount",)


def test_flags_win_over_the_file_field_by_field(config: Path) -> None:
    found = read(
        *("--config", str(config), "--module-name", "trainer.flag", "--labels", "b=2", "--job-dir", "gs://bucket/flag"),
        *("--worker-count", "5", "--packages", "flag.whl", "--", "--epochs", "9"),
    )

    assert found.values["module"] == "trainer.flag"
    assert found.values["job_dir"] == "gs://bucket/flag"
    assert found.values["pool"] == "europe-west1"
    assert found.values["args"] == ["--epochs", "9"]
    assert found.values["resources"]["roles"]["worker"] == {"count": 5, "machine": "n1-standard-4"}
    assert found.packages == ("flag.whl",)


def test_an_empty_list_of_user_args_wins_too(config: Path) -> None:
    assert values("--config", str(config), "--")["args"] == []


def test_a_tier_flag_that_contradicts_the_file_is_refused(config: Path) -> None:
    with pytest.raises(ConfigError, match="workerCount"):
        read("--config", str(config), "--scale-tier", "basic")


def test_every_bad_field_of_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("trainingInput:\n  scaletier: BASIC\n  workerCount: two\n")

    with pytest.raises(ConfigError) as caught:
        read("--config", str(path), "--module-name", "m")

    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "trainingInput.workerCount",
        "trainingInput.scaletier",
    ]


def test_a_file_whose_sections_are_no_sections_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("trainingInput: [a, b]\n")

    with pytest.raises(ConfigError, match="trainingInput"):
        read("--config", str(path), "--module-name", "m")


def test_flags_win_over_a_stoker_yaml(tmp_path: Path) -> None:
    path = tmp_path / "stoker.yaml"
    path.write_text(
        "module: trainer.file\npriority: 1\nresources: {slots: 4, cpus: 2}\n"
        "environment: {python: '3.9', variables: {A: b}}\n"
    )

    found = values(
        "--config", str(path), "--priority", "5", "--scale-tier", "basic", "--python-version", "3.8", "--", "-x"
    )

    assert found["module"] == "trainer.file"
    assert found["priority"] == 5
    assert found["resources"] == {"tier": "BASIC"}
    assert found["environment"] == {"python": "3.8", "variables": {"A": "b"}}
    assert found["args"] == ["-x"]
    assert "origin" not in found, "whose job it is, the file says"
    JobSpec.parse(found, source="together")
