"""What a search is: a space, how it is sampled, when a trial is stopped, and what counts as good.

Any sampler goes with any stopping rule. Fields are declared so that each can be checked against those before it:
everything that is wrong is then reported at once.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from stoker.schema.model import Model
from stoker.schema.space import (
    MAX_GRID_AXIS,
    Categorical,
    Const,
    Discrete,
    Double,
    Errors,
    Path,
    Space,
    grid_size,
    leaves,
    parse_space,
    pick_kind,
)

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Rungs = Annotated[int, Field(ge=1, le=64)]
Divisor = Annotated[float, Field(gt=1, le=1000)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Goal(StrEnum):
    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class Objective(Model):
    """A metric and which way is better."""

    metric: Annotated[str, Field(min_length=1)]
    goal: Goal = Goal.MINIMIZE


class Single(Model):
    """One trial, at one point of the space."""

    name: Literal["single"] = "single"


class Grid(Model):
    """Every combination; ranges by their `count` of points, integers without one whole."""

    name: Literal["grid"] = "grid"


class Random(Model):
    name: Literal["random"] = "random"


class Tpe(Model):
    """Optuna's tree-structured Parzen estimator, after so many random trials."""

    name: Literal["tpe"] = "tpe"
    startup_trials: Count = 10


class Gp(Model):
    """Optuna's Gaussian process: best for few and costly trials; needs torch and scipy where the server runs."""

    name: Literal["gp"] = "gp"
    startup_trials: Count = 10


class CmaEs(Model):
    """Optuna's CMA-ES: for many numeric parameters; categories are drawn at random."""

    name: Literal["cmaes"] = "cmaes"
    startup_trials: Count = 1
    population: Annotated[int, Field(ge=2)] | None = None


class Pbt(Model):
    """Population-based training: at each interval the worst are replaced by changed copies of the best.

    A copy is a new trial that starts from the checkpoint of the one it copies.
    """

    name: Literal["pbt"] = "pbt"
    population: Annotated[int, Field(ge=2)] = 10
    interval: Annotated[float, Field(gt=0)]
    time_metric: str | None = None
    quantile: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    factors: tuple[Annotated[float, Field(gt=0, lt=1)], Annotated[float, Field(gt=1)]] = (0.8, 1.2)
    resample: Fraction = 0.25


class NoStopping(Model):
    """Trials run to their own end."""

    name: Literal["none"] = "none"


class Asha(Model):
    """Determined's adaptive_asha: brackets of rungs up to `max_time`; at each rung the best 1/divisor go on.

    Time is the value of `time_metric` in a report, or the report's step without one.
    """

    name: Literal["asha"] = "asha"
    max_time: Positive
    time_metric: str | None = None
    mode: Literal["aggressive", "standard", "conservative"] = "standard"
    divisor: Divisor = 4.0
    max_rungs: Rungs = 5
    bracket_rungs: tuple[Rungs, ...] = ()


class AsyncHalving(Model):
    """One bracket of successive halving."""

    name: Literal["async_halving"] = "async_halving"
    num_rungs: Rungs
    max_time: Positive
    time_metric: str | None = None
    divisor: Divisor = 4.0


class Median(Model):
    """AI Platform's early stopping: a trial ends when its best is worse than the median of the others' averages.

    The others are the trials that ran to their end, each averaged over its reports up to the same time.
    """

    name: Literal["median"] = "median"
    time_metric: str | None = None
    min_trials: Positive = 5
    min_time: Annotated[float, Field(ge=0)] = 0.0


SAMPLERS: dict[str, type[Model]] = {
    "single": Single,
    "grid": Grid,
    "random": Random,
    "tpe": Tpe,
    "gp": Gp,
    "cmaes": CmaEs,
    "pbt": Pbt,
}
STOPPING_RULES: dict[str, type[Model]] = {
    "none": NoStopping,
    "asha": Asha,
    "async_halving": AsyncHalving,
    "median": Median,
}

Sampler = Annotated[
    Single | Grid | Random | Tpe | Gp | CmaEs | Pbt, BeforeValidator(pick_kind(SAMPLERS, what="sampler"))
]
Stopping = Annotated[
    NoStopping | Asha | AsyncHalving | Median, BeforeValidator(pick_kind(STOPPING_RULES, what="stopping rule"))
]


class WarmStart(Model):
    """What every trial starts from: another trial's newest checkpoint, or one named by its path or id."""

    trial: int | None = None
    checkpoint: str | None = None

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if (self.trial is None) == (self.checkpoint is None):
            raise ValueError("name a `trial` or a `checkpoint`, and not both")
        return self


class SearchSpec(Model):
    """The `search:` of a job. Pruning looks at `metric`; `also` holds further objectives."""

    sampler: Sampler = Random()
    stopping: Stopping = NoStopping()
    space: Space = Field({}, validate_default=True)
    metric: str | None = Field(None, min_length=1, validate_default=True)
    goal: Goal = Goal.MINIMIZE
    also: tuple[Objective, ...] = ()
    group: str | None = Field(None, description="only reports of this group count; any, if not given")
    max_trials: Positive | None = Field(None, validate_default=True)
    max_concurrent_trials: Count = Field(16, description="0: as many as fit")
    max_failed_trials: Positive | None = Field(None, description="the search fails when so many trials were given up")
    max_slots: Positive | None = Field(None, description="of all its running trials together")
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    resume_from: str | None = Field(None, description="a job whose trials this search begins by knowing")
    warm_start: WarmStart | None = None
    warm: bool = Field(True, description="fork trials from a Python that has imported what they import")

    @field_validator("space", mode="before")
    @classmethod
    def _space_is_one(cls, values: Any, info: ValidationInfo) -> Space:
        errors = Errors()
        space = parse_space(values, errors)
        _check_sampler_can_walk(leaves(space), info.data.get("sampler"), errors)
        errors.raise_any("space")
        return space

    @field_validator("metric")
    @classmethod
    def _metric_is_there_if_needed(cls, metric: str | None, info: ValidationInfo) -> str | None:
        for field in ("sampler", "stopping"):
            chosen = info.data.get(field)
            if metric is None and isinstance(chosen, Tpe | Gp | CmaEs | Pbt | Asha | AsyncHalving | Median):
                raise ValueError(f"is required: {chosen.name} compares trials by it")
        return metric

    @field_validator("also")
    @classmethod
    def _objectives_differ(cls, also: tuple[Objective, ...], info: ValidationInfo) -> tuple[Objective, ...]:
        names = [objective.metric for objective in also]
        if also and "metric" in info.data and info.data["metric"] is None:
            raise ValueError("further objectives come after a first: set `metric`")
        if len({*names, info.data.get("metric")}) <= len(names):
            raise ValueError("each objective is another metric")
        if also and isinstance(info.data.get("sampler"), CmaEs):
            raise ValueError("cmaes follows one objective; use tpe or gp for several")
        return also

    @field_validator("max_trials")
    @classmethod
    def _trials_are_bounded(cls, max_trials: int | None, info: ValidationInfo) -> int | None:
        sampler = info.data.get("sampler")
        if max_trials is None and isinstance(sampler, Random | Tpe | Gp | CmaEs | Pbt):
            raise ValueError(f"is required: {sampler.name} would go on for ever")
        halving = isinstance(info.data.get("stopping"), Asha | AsyncHalving)
        if max_trials is None and halving and not isinstance(sampler, Grid | Single):
            raise ValueError("is required: it decides how many rungs there are")
        if isinstance(sampler, Pbt) and max_trials is not None and max_trials < sampler.population:
            raise ValueError(f"must be at least the population, which is {sampler.population}")
        return max_trials

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All of them, the one that prunes first; none if nothing is compared."""
        return (Objective(metric=self.metric, goal=self.goal), *self.also) if self.metric is not None else ()

    @property
    def time_metric(self) -> str | None:
        """What counts as time for whoever asks; the report's step when None."""
        found = getattr(self.stopping, "time_metric", None)
        return found if found is not None else getattr(self.sampler, "time_metric", None)


def _check_sampler_can_walk(parameters: Mapping[Path, Any], sampler: Any, errors: Errors) -> None:
    if isinstance(sampler, Grid):
        for path, parameter in parameters.items():
            if isinstance(parameter, Double) and parameter.count is None:
                errors.add((*path, "count"), "a grid needs to know how many points of a double to try", None)
            elif (points := grid_size(parameter)) > MAX_GRID_AXIS:
                errors.add(
                    (*path, "count"), f"an axis of a grid may have {MAX_GRID_AXIS:,} points, not {points:,}", None
                )
    elif isinstance(sampler, Tpe | Gp | CmaEs | Pbt) and not errors.found:
        if not any(_varies(parameter) for parameter in parameters.values()):
            errors.add((), f"{sampler.name} needs at least one parameter that varies", list(parameters))


def _varies(parameter: Any) -> bool:
    if isinstance(parameter, Categorical | Discrete):
        return len(parameter.values) > 1
    return not isinstance(parameter, Const)
