"""AI Platform's `trainingInput.hyperparameters` read into a SearchSpec.

Its default algorithm was Bayesian optimisation behind closed doors; ours is TPE, which needs no torch in the server.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from stoker.schema.model import Model, config_error
from stoker.schema.search import SearchSpec
from stoker.schema.space import Categorical, Discrete, Double, Errors, Int, Loc, Scale, check_rising

PATH = ("trainingInput", "hyperparameters")
DEFAULT_TAG = "training/hptuning/metric"
MAX_DISCRETE = 1000
_SCALES = {"UNIT_LOG_SCALE": Scale.LOG, "UNIT_REVERSE_LOG_SCALE": Scale.REVERSE_LOG}
_HYPERTUNE_WORDS = frozenset({"checkpoint_path", "global_step", "timestamp", "trial"})
# Where a finding about our SearchSpec lies in theirs.
_THEIR_NAMES = {"metric": "hyperparameterMetricTag", "sampler": "algorithm"}

Count = Annotated[int, Field(ge=0)]


def read_hyperparameters(block: Mapping[str, Any], *, source: str, path: tuple[str, ...] = PATH) -> SearchSpec:
    """The search of a Job resource. ConfigError names every bad field at once, under `path`."""
    try:
        asked = Hyperparameters.model_validate(block)
        return SearchSpec.model_validate(_values(asked))
    except ValidationError as error:
        errors = Errors()
        errors.take(path, error, rename=_their_path)
        moved = ValidationError.from_exception_data(source, errors.found)
        raise config_error(moved, source=source) from error


def _their_path(loc: Loc) -> Loc:
    """Their names for our fields; a field that is missing is told by our name for it, camel case or not."""
    if loc[:1] == ("space",):
        return ("params", *loc[1:])
    return tuple(_THEIR_NAMES.get(part, to_camel(part)) if isinstance(part, str) else part for part in loc)


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class _Resource(Model):
    model_config = ConfigDict(alias_generator=to_camel)


class _Parameter(_Resource):
    parameter_name: Annotated[str, Field(min_length=1)]
    type: Literal["DOUBLE", "INTEGER", "CATEGORICAL", "DISCRETE"]
    scale_type: Literal["NONE", "UNIT_LINEAR_SCALE", "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE"] | None = None
    min_value: float | None = Field(None, allow_inf_nan=False, validate_default=True)
    max_value: float | None = Field(None, allow_inf_nan=False, validate_default=True)
    categorical_values: tuple[Annotated[str, BeforeValidator(_text)], ...] = Field((), validate_default=True)
    discrete_values: tuple[int | float, ...] = Field((), validate_default=True, max_length=MAX_DISCRETE)

    @field_validator("min_value", "max_value")
    @classmethod
    def _bound_is_there_and_whole(cls, bound: float | None, info: Any) -> float | None:
        kind = info.data.get("type")
        if kind not in ("DOUBLE", "INTEGER"):
            return bound  # ignored, as there
        if bound is None:
            raise ValueError(f"is required for type {kind}")
        if kind == "INTEGER" and bound != int(bound):
            raise ValueError("must be a whole number for type INTEGER")
        return bound

    @field_validator("min_value")
    @classmethod
    def _log_is_of_something(cls, bound: float | None, info: Any) -> float | None:
        scaled = info.data.get("scale_type") in _SCALES and info.data.get("type") in ("DOUBLE", "INTEGER")
        if scaled and bound is not None and bound <= 0:
            raise ValueError(f"{info.data['scale_type']} needs a range above zero")
        return bound

    @field_validator("max_value")
    @classmethod
    def _range_is_one(cls, bound: float | None, info: Any) -> float | None:
        low = info.data.get("min_value")
        if bound is not None and low is not None and low > bound and info.data.get("type") in ("DOUBLE", "INTEGER"):
            raise ValueError(f"must not be less than minValue, which is {low:g}")
        return bound

    @field_validator("categorical_values")
    @classmethod
    def _has_categories(cls, values: tuple[str, ...], info: Any) -> tuple[str, ...]:
        if info.data.get("type") == "CATEGORICAL" and not values:
            raise ValueError("needs at least one value")
        return values

    @field_validator("categorical_values", "discrete_values", mode="before")
    @classmethod
    def _is_there(cls, values: Any) -> Any:
        return () if values is None else values  # a key without a value, as people leave one of another type's

    @field_validator("discrete_values")
    @classmethod
    def _has_rising_values(cls, values: tuple[int | float, ...], info: Any) -> tuple[int | float, ...]:
        falls = len(values) > 1 and all(one > other for one, other in pairwise(values))
        return check_rising(values[::-1] if falls else values) if info.data.get("type") == "DISCRETE" else values


class Hyperparameters(_Resource):
    """A search as AI Platform writes it."""

    goal: Literal["GOAL_TYPE_UNSPECIFIED", "MAXIMIZE", "MINIMIZE"] = "MAXIMIZE"
    hyperparameter_metric_tag: str = DEFAULT_TAG
    max_trials: Count = 1
    max_parallel_trials: Count = 1
    max_failed_trials: Count = 0
    enable_trial_early_stopping: bool = False
    resume_previous_job_id: str | None = None
    algorithm: Literal["ALGORITHM_UNSPECIFIED", "GRID_SEARCH", "RANDOM_SEARCH", "POPULATION_BASED_TRAINING"] = (
        "ALGORITHM_UNSPECIFIED"
    )
    params: tuple[_Parameter, ...]

    @field_validator("hyperparameter_metric_tag")
    @classmethod
    def _tag_is_no_word_of_hypertunes(cls, tag: str) -> str:
        if tag in _HYPERTUNE_WORDS:
            raise ValueError("is a word that hypertune's file uses for something else; report the metric by another")
        return tag or DEFAULT_TAG

    @field_validator("params")
    @classmethod
    def _params_differ(cls, params: tuple[_Parameter, ...], info: Any) -> tuple[_Parameter, ...]:
        errors = Errors()
        if not params:
            errors.add((), "needs at least one parameter", [])
        seen: dict[str, str] = {}
        for number, parameter in enumerate(params):
            name = parameter.parameter_name
            plain = name.replace("-", "_")
            if plain in seen:
                clash = "is there twice" if seen[plain] == name else f"clashes with {seen[plain]}"
                errors.add((number, "parameterName"), clash, name)
            seen[plain] = name
            if parameter.type == "DOUBLE" and info.data.get("algorithm") == "GRID_SEARCH":
                errors.add((number, "type"), "a grid takes no DOUBLE; make it DISCRETE", parameter.type)
        errors.raise_any("params")
        return params


def _values(asked: Hyperparameters) -> dict[str, Any]:
    return {
        "sampler": _sampler(asked),
        "stopping": "median" if asked.enable_trial_early_stopping else "none",
        "space": {parameter.parameter_name: _parameter(parameter) for parameter in asked.params},
        "metric": asked.hyperparameter_metric_tag,
        "goal": "minimize" if asked.goal == "MINIMIZE" else "maximize",
        "max_trials": asked.max_trials or 1,
        "max_concurrent_trials": asked.max_parallel_trials or 1,
        "max_failed_trials": asked.max_failed_trials or None,
        "resume_from": asked.resume_previous_job_id,
    }


def _sampler(asked: Hyperparameters) -> dict[str, Any]:
    trials = asked.max_trials or 1
    if asked.algorithm == "GRID_SEARCH":
        return {"name": "grid"}
    if asked.algorithm == "POPULATION_BASED_TRAINING":
        # The service chose both for itself: here those that run together are the population, compared at every report.
        return {"name": "pbt", "population": max(min(asked.max_parallel_trials, trials), 2), "interval": 1}
    if asked.algorithm == "RANDOM_SEARCH" or trials == 1:
        return {"name": "random"}
    return {"name": "tpe", "startup_trials": min(max(trials // 3, 2), 10)}


def _parameter(parameter: _Parameter) -> Any:
    scale = _SCALES.get(parameter.scale_type or "", Scale.LINEAR)
    low = parameter.min_value
    if low is not None and low == parameter.max_value and parameter.type in ("DOUBLE", "INTEGER"):  # held where it is
        return Discrete(values=(int(low) if parameter.type == "INTEGER" else low,))
    match parameter.type:
        case "DOUBLE":
            return Double.model_validate({"min": parameter.min_value, "max": parameter.max_value, "scale": scale})
        case "INTEGER":
            return Int.model_validate({"min": parameter.min_value, "max": parameter.max_value, "scale": scale})
        case "CATEGORICAL":
            return Categorical(values=parameter.categorical_values)
        case "DISCRETE":
            return Discrete(values=parameter.discrete_values)
