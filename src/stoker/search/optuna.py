"""TPE, Gaussian processes and CMA-ES: Optuna's samplers by ask and tell, over a study in memory.

The study is a mirror of our own records. A fresh Optuna sampler is made for every proposal, seeded from the trial's
number, so that none carries state which a rebuilt searcher would not have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import optuna  # type: ignore[import-not-found,unused-ignore]
from optuna.distributions import (  # type: ignore[import-not-found,unused-ignore]
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState, create_trial  # type: ignore[import-not-found,unused-ignore]

from stoker.schema.search import CmaEs, Goal, Gp, SearchSpec, Tpe
from stoker.schema.space import Categorical, Const, Discrete, Double, Int, Parameter, Scale, is_possible
from stoker.search.base import Outcome, Prior, Stop, StopKind, Suggestion
from stoker.search.samplers import Proposal, TrialResult
from stoker.search.space import Dice, Layout

_STUDY = "search"


class OptunaSampler:
    """One of Optuna's samplers, fed with what our trials came to."""

    def __init__(self, spec: SearchSpec, prior: Sequence[Prior] = ()) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._spec = spec
        self._layout = Layout(spec.space)
        self._axes = {name: axis for name, p in self._layout.parameters.items() if (axis := _axis(p)) is not None}
        self._storage = optuna.storages.InMemoryStorage()
        self._study = optuna.create_study(
            storage=self._storage,
            study_name=_STUDY,
            directions=["maximize" if o.goal is Goal.MAXIMIZE else "minimize" for o in spec.objectives],
            sampler=self._fresh_sampler(0),  # also fails here and now if what it needs is not installed
        )
        self._proposed: tuple[int, int] | None = None  # our number and Optuna's of what was just proposed
        self._numbers: dict[int, int] = {}
        self._made = 0  # trials in the study
        for trial in prior:
            self._add_prior(trial)

    def has_more(self) -> bool:
        return True

    def propose(self, trial: int) -> Proposal:
        self._study.sampler = self._fresh_sampler(trial)
        asked = self._study.ask()
        self._made += 1
        chosen = self._layout.choose(lambda name, parameter: self._suggest(asked, name, parameter))
        self._proposed = (trial, asked.number)
        return Proposal(self._layout.nest(chosen), memory=self._memory(asked))

    def started(self, suggestion: Suggestion) -> None:
        if self._proposed is None and isinstance(self._spec.sampler, CmaEs):
            # The state of CMA-ES lives in what it attached to earlier trials, so it has to live through them again.
            if self.propose(suggestion.trial).memory != suggestion.memory:
                self._discard_proposed()
        if self._proposed is not None and self._proposed[0] == suggestion.trial:
            self._numbers[suggestion.trial] = self._proposed[1]
        else:
            self._numbers[suggestion.trial] = self._add_running(suggestion)
        self._proposed = None

    def reported(self, trial: int, time: float, value: float) -> Stop | None:
        return None

    def ended(self, result: TrialResult) -> None:
        number = self._numbers.pop(result.trial)
        values = [value for value in result.values if value is not None]
        known = len(values) == len(result.values)
        if not known or result.outcome in (Outcome.FAILED, Outcome.INVALID_HP):
            self._study.tell(number, state=TrialState.FAIL)
        elif self._was_pruned(result):
            study_id = self._storage.get_study_id_from_name(_STUDY)
            trial_id = self._storage.get_trial_id_from_study_id_trial_number(study_id, number)
            self._storage.set_trial_intermediate_value(trial_id, result.step, values[0])
            self._study.tell(number, state=TrialState.PRUNED)
        else:
            self._study.tell(number, values)

    def _was_pruned(self, result: TrialResult) -> bool:
        """Only TPE ranks trials that were cut short; to the others their last value is better news than none."""
        pruned = result.stop is not None and result.stop.kind is not StopKind.FINISHED
        return pruned and isinstance(self._spec.sampler, Tpe) and len(result.values) == 1

    def _fresh_sampler(self, trial: int) -> Any:
        settings, seed = self._spec.sampler, Dice(self._spec.seed, trial).seed("optuna")
        match settings:
            case Tpe():
                return optuna.samplers.TPESampler(n_startup_trials=settings.startup_trials, seed=seed)
            case Gp():
                return optuna.samplers.GPSampler(
                    n_startup_trials=settings.startup_trials, seed=seed, warn_independent_sampling=False
                )
            case CmaEs():
                return optuna.samplers.CmaEsSampler(
                    n_startup_trials=settings.startup_trials,
                    popsize=settings.population,
                    seed=seed,
                    warn_independent_sampling=False,
                )
            case _:
                raise TypeError(f"{settings.name} is not one of Optuna's samplers")

    def _suggest(self, trial: Any, name: str, parameter: Parameter) -> Any:
        axis = self._axes.get(name)
        if axis is None:
            return parameter.value if isinstance(parameter, Const) else parameter.values[0]  # type: ignore[union-attr]
        return axis.decode(axis.suggest(trial, name))

    def _discard_proposed(self) -> None:
        assert self._proposed is not None
        self._study.tell(self._proposed[1], state=TrialState.FAIL)
        self._proposed = None

    def _memory(self, asked: Any) -> dict[str, Any]:
        """A value of ours cannot always be turned back into Optuna's to the last bit, so Optuna's are kept too."""
        attributes = self._study.get_trials(deepcopy=False)[asked.number].system_attrs
        kept = {} if isinstance(self._spec.sampler, CmaEs) else dict(attributes)  # CMA-ES keeps pickles there
        return {"params": asked.params, "attributes": kept}

    def _add_running(self, suggestion: Suggestion) -> int:
        params, distributions = self._encode(suggestion.hparams)
        self._study.add_trial(
            create_trial(
                state=TrialState.RUNNING,
                params=suggestion.memory.get("params", params),
                distributions=distributions,
                system_attrs=suggestion.memory.get("attributes", {}),
            )
        )
        self._made += 1
        return self._made - 1

    def _add_prior(self, prior: Prior) -> None:
        """An earlier trial counts if it is a point of this space too."""
        flat = self._layout.flatten(prior.hparams)
        fits = all(is_possible(self._layout.parameters[name], value) for name, value in flat.items())
        if fits and len(prior.values) == len(self._spec.objectives):
            params, distributions = self._encode(prior.hparams)
            self._study.add_trial(create_trial(values=list(prior.values), params=params, distributions=distributions))
            self._made += 1

    def _encode(self, hparams: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        flat = {name: value for name, value in self._layout.flatten(hparams).items() if name in self._axes}
        params = {name: self._axes[name].encode(value) for name, value in flat.items()}
        return params, {name: self._axes[name].distribution for name in flat}


@dataclass(frozen=True, slots=True)
class _Axis:
    """A parameter as Optuna sees it: an interval, or the places in a list of values."""

    distribution: Any
    values: tuple[Any, ...] | None = None  # what the places stand for
    mirror: float | None = None  # a reverse log scale is a log scale of `mirror - value`

    def suggest(self, trial: Any, name: str) -> Any:
        found = self.distribution
        if isinstance(found, CategoricalDistribution):
            return trial.suggest_categorical(name, found.choices)
        ask = trial.suggest_int if isinstance(found, IntDistribution) else trial.suggest_float
        return ask(name, found.low, found.high, log=found.log)

    def decode(self, place: Any) -> Any:
        if self.values is not None:
            return self.values[place]
        return place if self.mirror is None else type(place)(self.mirror - place)

    def encode(self, value: Any) -> Any:
        if self.values is not None:
            return self.values.index(value)
        mirrored = value if self.mirror is None else type(value)(self.mirror - value)
        return min(max(mirrored, self.distribution.low), self.distribution.high)


def _axis(parameter: Parameter) -> _Axis | None:
    match parameter:
        case Const():
            return None
        case Categorical():
            size = len(parameter.values)
            return _Axis(CategoricalDistribution(range(size)), parameter.values) if size > 1 else None
        case Discrete():
            size = len(parameter.values)
            return _Axis(IntDistribution(0, size - 1), parameter.values) if size > 1 else None
        case Int():
            return _Axis(
                IntDistribution(parameter.min, parameter.max, log=_is_log(parameter)), mirror=_mirror(parameter)
            )
        case Double():
            return _Axis(
                FloatDistribution(parameter.min, parameter.max, log=_is_log(parameter)), mirror=_mirror(parameter)
            )
    assert_never(parameter)


def _is_log(parameter: Int | Double) -> bool:
    return parameter.scale is not Scale.LINEAR


def _mirror(parameter: Int | Double) -> float | None:
    return parameter.min + parameter.max if parameter.scale is Scale.REVERSE_LOG else None
