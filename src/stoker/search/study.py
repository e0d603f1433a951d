"""A search's trials as an Optuna study in an SQLite file, for Optuna's own plots and dashboard."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna  # type: ignore[import-not-found,unused-ignore]
from optuna.distributions import (  # type: ignore[import-not-found,unused-ignore]
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState, create_trial  # type: ignore[import-not-found,unused-ignore]

from stoker.schema.record import Trial
from stoker.schema.search import Goal, SearchSpec
from stoker.schema.space import Categorical, Const, Discrete, Double, Int, Parameter, Scale
from stoker.search.space import Layout


def write_study(file: Path, *, name: str, search: SearchSpec, trials: Sequence[Trial]) -> int:
    """Make the file with a study of this name; says how many trials are in it. Those that are not over are left out.

    Parameters have their own values (not places in a list), constants are user attributes. A trial that the search
    stopped counts as complete with the best value it had: Optuna would leave pruned ones out of its best.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        storage=f"sqlite:///{file.absolute()}",
        study_name=name,
        directions=["maximize" if o.goal is Goal.MAXIMIZE else "minimize" for o in search.objectives] or ["minimize"],
    )
    layout = Layout(search.space)
    made = [_frozen(search, layout, trial) for trial in trials if trial.outcome is not None]
    study.add_trials(made)
    return len(made)


def _frozen(search: SearchSpec, layout: Layout, trial: Trial) -> Any:
    flat = layout.flatten(trial.hparams)
    axes = {name: axis for name in flat if (axis := _distribution(layout.parameters[name])) is not None}
    values = _values(search, trial)
    good = values is not None and trial.outcome in ("completed", "stopped")
    constants = {f"hparams.{name}": value for name, value in flat.items() if name not in axes}
    attributes: dict[str, Any] = {"number": trial.number, "id": trial.id, **constants}
    if trial.stopped:
        attributes["stopped"] = trial.stopped
    return create_trial(
        state=TrialState.COMPLETE if good else TrialState.FAIL,
        values=values if good else None,
        params={name: _choice(flat[name]) if _has_choices(axes[name]) else flat[name] for name in axes},
        distributions=axes,
        user_attrs=attributes,
    )


def _values(search: SearchSpec, trial: Trial) -> list[float] | None:
    """One for each objective, if all are known and finite."""
    found: Mapping[str, float | None] = trial.objectives
    if len(search.objectives) == 1:
        found = {search.objectives[0].metric: trial.objective}
    values = [found.get(objective.metric) for objective in search.objectives]
    known = [value for value in values if value is not None and math.isfinite(value)]
    return known if known and len(known) == len(values) else None


def _distribution(parameter: Parameter) -> Any:
    match parameter:
        case Const():
            return None
        case Categorical() | Discrete():
            return CategoricalDistribution([_choice(value) for value in parameter.values])
        case Int():
            return IntDistribution(parameter.min, parameter.max, log=parameter.scale is Scale.LOG)
        case Double():
            return FloatDistribution(parameter.min, parameter.max, log=parameter.scale is Scale.LOG)


def _has_choices(distribution: Any) -> bool:
    return isinstance(distribution, CategoricalDistribution)


def _choice(value: Any) -> Any:
    """Optuna's categories are plain; a list or a map goes by how it is written."""
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
