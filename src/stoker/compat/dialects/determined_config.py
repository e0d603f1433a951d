"""Determined's experiment file, as it may be written: the 0.38 dialect, and the older one with lengths in the file.

Every field of either is known here, so a misspelt one is found. What it comes to is in `determined.py`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from stoker.schema.model import Model
from stoker.schema.space import Categorical, Const, Double, Errors, Int, Path, Scale, Space, parse_space, pick_kind
from stoker.submission.reading import as_words

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Number = Annotated[float, Field(allow_inf_nan=False)]
UNITS = ("batches", "epochs", "records")


class Length(Model):
    """So many batches, epochs or records; a bare number counts whatever the trial's steps are."""

    batches: Count | None = None
    epochs: Count | None = None
    records: Count | None = None
    steps: Count | None = None

    @model_validator(mode="before")
    @classmethod
    def _number_is_steps(cls, value: Any) -> Any:
        return {"steps": value} if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _has_one_unit(self) -> Self:
        if len(self.given) != 1:
            raise ValueError(f"give one of {', '.join(UNITS)}, like {{batches: 100}}")
        return self

    @property
    def given(self) -> dict[str, int]:
        return {unit: count for unit, count in dict(self).items() if count is not None}

    @property
    def unit(self) -> str:
        return next(iter(self.given))

    @property
    def count(self) -> int:
        return self.given[self.unit]


class _Searcher(Model):
    metric: Annotated[str, Field(min_length=1)] | None = None
    smaller_is_better: bool = True
    source_trial_id: int | None = None
    source_checkpoint_uuid: str | None = None
    max_length: Length | None = None

    @field_validator("source_checkpoint_uuid")
    @classmethod
    def _one_source(cls, uuid: str | None, info: Any) -> str | None:
        if uuid is not None and info.data.get("source_trial_id") is not None:
            raise ValueError("give source_trial_id or source_checkpoint_uuid, and not both")
        return uuid


class SingleSearcher(_Searcher):
    name: Literal["single"]


class GridSearcher(_Searcher):
    name: Literal["grid"]
    max_concurrent_trials: Count = 16


class RandomSearcher(_Searcher):
    name: Literal["random"]
    max_trials: Positive
    max_concurrent_trials: Count = 16


class _Halving(RandomSearcher):
    """`max_time` of `time_metric`; in the older dialect `max_length` says both."""

    metric: Annotated[str, Field(min_length=1)]
    time_metric: Annotated[str, Field(min_length=1)] | None = None
    max_time: Positive | None = Field(None, validate_default=True)
    divisor: Annotated[float, Field(gt=1, le=1000)] = 4.0
    stop_once: bool | None = None

    @field_validator("max_time")
    @classmethod
    def _time_is_known(cls, max_time: int | None, info: Any) -> int | None:
        length = info.data.get("max_length")
        if max_time is None and "max_length" in info.data and length is None:
            raise ValueError("is required (or, in the older dialect, max_length)")
        if max_time is not None and length is None and info.data.get("time_metric", "") is None:
            raise ValueError("needs time_metric: what is it the time of?")
        return max_time


class AsyncHalvingSearcher(_Halving):
    name: Literal["async_halving"]  # type: ignore[assignment]
    num_rungs: Annotated[int, Field(ge=1, le=64)]


class AdaptiveAshaSearcher(_Halving):
    name: Literal["adaptive_asha"]  # type: ignore[assignment]
    mode: Literal["aggressive", "standard", "conservative"] = "standard"
    max_rungs: Annotated[int, Field(ge=1, le=64)] = 5
    bracket_rungs: tuple[Annotated[int, Field(ge=1, le=64)], ...] = ()


SEARCHERS: dict[str, type[Model]] = {
    "single": SingleSearcher,
    "grid": GridSearcher,
    "random": RandomSearcher,
    "async_halving": AsyncHalvingSearcher,
    "adaptive_asha": AdaptiveAshaSearcher,
}
_REMOVED = ("custom", "pbt")


def _pick_searcher(value: Any) -> Any:
    if isinstance(value, Mapping) and value.get("name") in _REMOVED:
        raise ValueError(f"the {value['name']!r} searcher was removed from Determined; adaptive_asha takes its place")
    return pick_kind(SEARCHERS, what="searcher")(value)


Searcher = Annotated[
    SingleSearcher | GridSearcher | RandomSearcher | AsyncHalvingSearcher | AdaptiveAshaSearcher,
    BeforeValidator(_pick_searcher),
]


class Resources(Model):
    slots_per_trial: Count | None = None
    slots: Count | None = None  # of a job that is no search
    max_slots: Count | None = None
    priority: Annotated[int, Field(ge=1, le=99)] | None = None
    resource_pool: str = ""
    weight: float | None = None
    is_single_node: bool | None = None
    shm_size: int | str | None = None
    devices: list[Any] | None = None
    native_parallel: bool | None = None
    agent_label: str | None = None


class _Storage(Model):
    save_experiment_best: Count = 0
    save_trial_best: Count = 1
    save_trial_latest: Count = 1


class SharedFs(_Storage):
    type: Literal["shared_fs"]
    host_path: str
    storage_path: str | None = None
    propagation: str | None = None
    container_path: str | None = None
    checkpoint_path: str | None = None
    tensorboard_path: str | None = None


class Directory(_Storage):
    type: Literal["directory"]
    container_path: str


class S3(_Storage):
    type: Literal["s3"]
    bucket: str
    access_key: str | None = None
    secret_key: str | None = None
    endpoint_url: str | None = None
    prefix: str | None = None


class Gcs(_Storage):
    type: Literal["gcs"]
    bucket: str
    prefix: str | None = None


class Azure(_Storage):
    type: Literal["azure"]
    container: str
    connection_string: str | None = None
    account_url: str | None = None
    credential: str | None = None


STORAGES: dict[str, type[Model]] = {
    "shared_fs": SharedFs,
    "directory": Directory,
    "s3": S3,
    "gcs": Gcs,
    "azure": Azure,
}


def _pick_storage(value: Any) -> Any:
    if isinstance(value, Mapping) and "type" not in value:
        return _Storage.model_validate(value)  # the policy alone; the cluster had the rest
    return pick_kind(STORAGES, what="checkpoint storage", key="type")(value)


class Reproducibility(Model):
    experiment_seed: Annotated[int, Field(ge=0, lt=2**31)] | None = None


class Optimizations(Model):
    aggregation_frequency: Positive | None = None
    average_aggregated_gradients: bool | None = None
    average_training_metrics: bool | None = None
    gradient_compression: bool | None = None
    mixed_precision: Literal["O0", "O1", "O2", "O3"] | None = None
    tensor_fusion_threshold: int | None = None
    tensor_fusion_cycle_time: int | None = None
    auto_tune_tensor_fusion: bool | None = None
    grad_updates_size_file: str | None = None


class Profiling(Model):
    enabled: bool = False
    begin_on_batch: Count | None = None
    end_after_batch: Count | None = None
    sync_timings: bool | None = None


class ByDevice(Model):
    cpu: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()
    rocm: tuple[str, ...] = ()


def _by_device(value: Any) -> Any:
    """A list is for every device."""
    found = value if isinstance(value, Mapping | ByDevice) else {"cpu": value, "cuda": value}
    if isinstance(found, Mapping):
        for device, variables in found.items():
            _check_assignments(variables, device if found is value else None)
    return found


def _check_assignments(variables: Any, device: Any) -> None:
    errors = Errors()
    for number, text in enumerate(variables if isinstance(variables, list | tuple) else ()):
        if not isinstance(text, str) or "=" not in text:
            errors.add((number,) if device is None else (str(device), number), "must be NAME=VALUE", text)
    errors.raise_any("environment_variables")


class Environment(Model):
    environment_variables: Annotated[ByDevice, BeforeValidator(_by_device)] = ByDevice()
    image: Any = None
    force_pull_image: bool | None = None
    registry_auth: dict[str, Any] | None = None
    add_capabilities: list[str] | None = None
    drop_capabilities: list[str] | None = None
    pod_spec: dict[str, Any] | None = None
    ports: Any = None
    proxy_ports: list[Any] | None = None


class Experiment(Model):
    """The whole file."""

    name: str | None = None
    description: str | None = None
    labels: tuple[str, ...] = ()
    data: dict[str, Any] = {}
    workspace: str = ""
    project: str = ""
    entrypoint: str | Annotated[tuple[str, ...], BeforeValidator(as_words)] | None = None
    entrypoint_script: str | None = None
    searcher: Searcher | None = None
    hyperparameters: Space = {}
    resources: Resources = Resources()
    max_restarts: Count = 5
    checkpoint_policy: Literal["best", "all", "none"] | None = None
    checkpoint_storage: Annotated[_Storage, BeforeValidator(_pick_storage)] | None = None
    reproducibility: Reproducibility = Reproducibility()
    perform_initial_validation: bool | None = None
    min_validation_period: Length | None = None
    min_checkpoint_period: Length | None = None
    scheduling_unit: Positive | None = None
    records_per_epoch: Count | None = None
    optimizations: Optimizations = Optimizations()
    profiling: Profiling = Profiling()
    environment: Environment = Environment()
    preemption_timeout: Positive | None = None
    bind_mounts: list[Any] | None = None
    log_policies: list[Any] | None = None
    retention_policy: dict[str, Any] | None = None
    debug: bool | None = None
    integrations: dict[str, Any] | None = None
    security: dict[str, Any] | None = None
    slurm: dict[str, Any] | None = None
    pbs: dict[str, Any] | None = None
    tensorboard_storage: dict[str, Any] | None = None
    data_layer: dict[str, Any] | None = None
    internal: Any = None
    # Of notebooks, shells and commands.
    idle_timeout: Any = None
    notebook_idle_type: Any = None
    tensorboard_args: Any = None
    work_dir: Any = None

    @field_validator("hyperparameters", mode="before")
    @classmethod
    def _hyperparameters_are_known(cls, values: Any, info: Any) -> Space:
        errors = Errors()
        grid = isinstance(info.data.get("searcher"), GridSearcher)

        def read(value: Mapping[str, Any], path: Path, errors: Errors) -> Any:
            return _read_hyperparameter(value, path, errors, grid=grid)

        space = parse_space(values, errors, read=read)
        errors.raise_any("hyperparameters")
        return space

    @model_validator(mode="after")
    def _has_something_to_run(self) -> Self:
        if (self.entrypoint is None) == (self.entrypoint_script is None):
            raise ValueError("say what to run: `entrypoint: python3 train.py` (a string, or a list of words)")
        return self


class _Const(Model):
    type: Literal["const"]
    val: Any


class _Ranged(Model):
    count: Positive | None = None

    @field_validator("maxval", check_fields=False)
    @classmethod
    def _range_is_one(cls, high: float, info: Any) -> float:
        if "minval" in info.data and info.data["minval"] >= high:
            raise ValueError(f"must be more than minval, which is {info.data['minval']:g}")
        return high


class _Int(_Ranged):
    type: Literal["int"]
    minval: int
    maxval: int


class _Double(_Ranged):
    type: Literal["double"]
    minval: Number
    maxval: Number


class _Log(_Double):
    """base to the power of a number between minval and maxval."""

    type: Literal["log"]  # type: ignore[assignment]
    base: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0

    @field_validator("base")
    @classmethod
    def _base_moves(cls, base: float, info: Any) -> float:
        low, high = info.data.get("minval", 0.0), info.data.get("maxval", 1.0)
        try:
            ends = sorted((base**low, base**high))
        except OverflowError:
            ends = [0.0, 0.0]
        if not 0 < ends[0] < ends[1] < float("inf"):
            raise ValueError("base to the power of minval and of maxval must be two different, finite numbers")
        return base


class _Categorical(Model):
    type: Literal["categorical"]
    vals: tuple[Any, ...]

    @field_validator("vals")
    @classmethod
    def _has_some(cls, vals: tuple[Any, ...]) -> tuple[Any, ...]:
        if not vals:
            raise ValueError("needs at least one value")
        return vals


_HYPERPARAMETERS: dict[str, type[Model]] = {
    "const": _Const,
    "int": _Int,
    "double": _Double,
    "log": _Log,
    "categorical": _Categorical,
}


def _read_hyperparameter(value: Mapping[str, Any], path: Path, errors: Errors, *, grid: bool) -> Any:
    kind = value["type"]
    if not isinstance(kind, str) or kind not in _HYPERPARAMETERS:
        errors.add((*path, "type"), f"no such type. There are: {', '.join(_HYPERPARAMETERS)}", kind)
        return None
    try:
        found = _HYPERPARAMETERS[kind].model_validate(value)
    except ValidationError as error:
        errors.take(path, error)
        return None
    if grid and isinstance(found, _Ranged) and found.count is None:
        errors.add((*path, "count"), "a grid needs to know how many points to try", None)
    return _as_parameter(found)


def _as_parameter(found: Model) -> Any:
    match found:
        case _Const():
            return Const(value=found.val)
        case _Int():
            return Int(min=found.minval, max=found.maxval, count=found.count)
        case _Log():
            low, high = sorted((found.base**found.minval, found.base**found.maxval))
            base = max(found.base, 1 / found.base)
            return Double(min=low, max=high, scale=Scale.LOG, base=base, count=found.count)
        case _Double():
            return Double(min=found.minval, max=found.maxval, count=found.count)
        case _Categorical():
            return Categorical(values=found.vals)
    raise TypeError(type(found))
