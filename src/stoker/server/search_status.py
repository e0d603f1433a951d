"""How a search stands and what it found, from what the store keeps of its trials."""

from collections import Counter
from collections.abc import Sequence

from stoker.errors import NotFoundError
from stoker.schema.record import SearchStatus, Trial
from stoker.schema.search import SearchSpec
from stoker.search.base import Outcome
from stoker.search.importance import parameter_importance
from stoker.search.results import best_so_far, best_trials, pareto_front
from stoker.search.samplers import TrialResult
from stoker.search.searcher import planned_trials
from stoker.server.store.base import Store

_ALL = 10**9


def search_status(store: Store, job: str, *, best: int) -> SearchStatus:
    """NotFoundError if there is no such job, or it has no search."""
    found = store.job(job)
    spec = found.spec.search
    if spec is None:
        raise NotFoundError(f"Job {job!r} has no search: it runs one set of hyperparameters.")
    trials = store.trials(job, limit=_ALL).trials
    results = [_result(spec, trial) for trial in trials]
    counted = [result for result in results if result.outcome not in (Outcome.FAILED, Outcome.INVALID_HP)]
    return SearchStatus(
        job=found.id,
        state=found.state,
        sampler=spec.sampler.name,
        stopping=spec.stopping.name,
        objectives=spec.objectives,
        max_trials=planned_trials(spec),
        progress=found.progress or 0.0,
        finished=found.state.is_final,
        failure=found.reason if found.state.is_final and found.state == "FAILED" else "",
        states=dict(Counter(trial.state.value for trial in trials)),
        outcomes=dict(Counter(trial.outcome for trial in trials if trial.outcome is not None)),
        best=_best(spec, trials, counted, count=best),
        front=tuple(result.trial for result in pareto_front(spec, counted)) if len(spec.objectives) > 1 else (),
        curve=tuple(best_so_far(spec, counted)),
        importance=parameter_importance(spec, counted),
    )


def _best(
    spec: SearchSpec, trials: Sequence[Trial], results: Sequence[TrialResult], *, count: int
) -> tuple[Trial, ...]:
    numbered = {trial.number: trial for trial in trials}
    chosen = [numbered[result.trial] for result in best_trials(spec, results, count=count)]
    return tuple(trial.model_copy(update={"runs": ()}) for trial in chosen)


def _result(spec: SearchSpec, trial: Trial) -> TrialResult:
    values = tuple(trial.objectives.get(objective.metric) for objective in spec.objectives)
    searched = {name: value for name, value in trial.hparams.items() if name in spec.space}
    outcome = None if trial.outcome is None else Outcome(trial.outcome)
    return TrialResult(trial.number, searched, values, 0, outcome)
