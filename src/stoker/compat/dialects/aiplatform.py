"""AI Platform's Job resource (`--config`, and what its flags stand for) read into the fields of a JobSpec.

Every field of the v1 API is known here, so a misspelt one is found; those that only mean something on Google's
machines are accepted and named in `Reading.ignored`.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from stoker.compat.dialects import training_input
from stoker.compat.dialects.aiplatform_search import Hyperparameters, read_hyperparameters
from stoker.schema.job import Labels
from stoker.schema.model import Model
from stoker.submission.reading import Reading, as_words

_TOP_FIELDS = frozenset({"jobId", "trainingInput", "predictionInput", "trainingOutput", "etag", "createTime"})


def is_dialect(document: Mapping[str, Any]) -> bool:
    """Whether this looks like a Job resource of AI Platform."""
    return not _TOP_FIELDS.isdisjoint(document)


def read(document: Mapping[str, Any], *, source: str) -> Reading:
    """Part of a JobSpec. ConfigError names every bad field at once, with its path."""
    job = _Job.parse(document, source=source)
    values = job.model_dump(mode="json", by_alias=True, exclude_unset=True)
    reading = training_input.translate(values, source=source)
    asked = values.get("trainingInput", {}).get("hyperparameters")
    if asked is None:
        return reading
    search = read_hyperparameters(asked, source=source).model_dump(mode="json")
    return replace(reading, values={**reading.values, "search": search})


def _as_text(value: object) -> object:
    """A version that was written without quotes, which YAML takes for a number."""
    if value == 3.1:
        raise ValueError('write it in quotes, "3.10": YAML takes it for a number, and reads 3.10 as 3.1')
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _seconds(text: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+)?s", text):
        raise ValueError('a duration is seconds followed by s, like "7200s"')
    return text


Version = Annotated[str, BeforeValidator(_as_text)]
Duration = Annotated[str, AfterValidator(_seconds)]
Words = Annotated[tuple[str, ...], BeforeValidator(as_words)]
Count = Annotated[int, Field(ge=0)]


class _Resource(Model):
    """camelCase outside, our names inside."""

    model_config = ConfigDict(alias_generator=to_camel)


class _Accelerator(_Resource):
    type: str
    count: Annotated[int, Field(ge=0)]


class _Disk(_Resource):
    boot_disk_type: str | None = None
    boot_disk_size_gb: int | None = None


class _Replica(_Resource):
    image_uri: str | None = None
    accelerator_config: _Accelerator | None = None
    container_command: Words = ()
    container_args: Words = ()
    disk_config: _Disk | None = None
    tpu_tf_version: Version | None = None


class _Scheduling(_Resource):
    max_running_time: Duration | None = None
    max_wait_time: Duration | None = None
    priority: Annotated[int, Field(ge=0, le=1000)] | None = None
    resilient_to_worker_restart: bool | None = None
    strategy: Literal["STRATEGY_UNSPECIFIED", "ON_DEMAND", "LOW_COST"] | None = None


class _Encryption(_Resource):
    kms_key_name: str


class _TrainingInput(_Resource):
    scale_tier: str | None = None
    master_type: str | None = None
    worker_type: str | None = None
    worker_count: Count | None = None
    parameter_server_type: str | None = None
    parameter_server_count: Count | None = None
    evaluator_type: str | None = None
    evaluator_count: Count | None = None
    master_config: _Replica = _Replica()
    worker_config: _Replica = _Replica()
    parameter_server_config: _Replica = _Replica()
    evaluator_config: _Replica = _Replica()
    package_uris: tuple[str, ...] = ()
    python_module: str | None = None
    args: Words | None = None
    region: str | None = None
    job_dir: str | None = None
    runtime_version: Version | None = None
    python_version: Version | None = None
    use_chief_in_tf_config: bool | None = None
    service_account: str | None = None
    network: str | None = None
    encryption_config: _Encryption | None = None
    enable_web_access: bool | None = None
    nas_job_spec: dict[str, Any] | None = None
    scheduling: _Scheduling = _Scheduling()
    hyperparameters: Hyperparameters | None = None


class _Job(_Resource):
    job_id: str | None = None
    labels: Labels | None = None
    training_input: _TrainingInput = _TrainingInput()
    # What the service filled in, and people copy along with the rest from `jobs describe`.
    etag: str | None = None
    state: str | None = None
    create_time: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    error_message: str | None = None
    job_position: str | None = None
    training_output: dict[str, Any] | None = None
    prediction_input: dict[str, Any] | None = None
    prediction_output: dict[str, Any] | None = None
