"""How a search stands and what it found, from what the store keeps of its trials."""

import threading
from collections import OrderedDict
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from stoker.errors import NotFoundError
from stoker.schema.record import Job, SearchStatus
from stoker.schema.search import SearchSpec
from stoker.search.base import Outcome
from stoker.search.importance import parameter_importance
from stoker.search.results import best_so_far, best_trials, pareto_front
from stoker.search.samplers import TrialResult
from stoker.search.searcher import planned_trials
from stoker.server.store.store import Store
from stoker.server.store.values import SearchResult

_MOST_KEPT = 32


def search_status(store: Store, job: str, *, best: int) -> SearchStatus:
    """NotFoundError if there is no such job, or it has no search."""
    return SearchViews(store).status(job, best=best)


@dataclass(slots=True)
class _View:
    """What is known of a search's trials, up to a cursor; and what follows from it, which takes longer to find."""

    cursor: int = 0
    results: dict[int, TrialResult] = field(default_factory=dict)
    ranked: tuple[int, ...] = ()  # best first
    front: tuple[int, ...] = ()
    curve: tuple[tuple[int, float], ...] = ()
    importance: dict[str, float] = field(default_factory=dict)


class SearchViews:
    """Searches as they are looked at again and again: of ten thousand trials only what is new is read each time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._views: OrderedDict[str, _View] = OrderedDict()
        self._lock = threading.Lock()

    def status(self, job: str, *, best: int) -> SearchStatus:
        """NotFoundError if there is no such job, or it has no search."""
        found = self._store.job(job)
        spec = found.spec.search
        if spec is None:
            raise NotFoundError(f"Job {job!r} has no search: it runs one set of hyperparameters.")
        with self._lock:
            view = self._view(job, spec)
            return self._status(found, spec, view, view.ranked[:best])

    def _view(self, job: str, spec: SearchSpec) -> _View:
        view = self._views.setdefault(job, _View())
        self._views.move_to_end(job)
        if len(self._views) > _MOST_KEPT:
            self._views.popitem(last=False)
        news = self._store.search_results(job, after=view.cursor)
        if news.results:
            metrics = [objective.metric for objective in spec.objectives]
            view.results |= {result.number: _result(result, metrics, spec.space) for result in news.results}
            _conclude(spec, view)
        view.cursor = news.cursor
        return view

    def _status(self, job: Job, spec: SearchSpec, view: _View, best: Sequence[int]) -> SearchStatus:
        return SearchStatus(
            job=job.id,
            state=job.state,
            sampler=spec.sampler.name,
            stopping=spec.stopping.name,
            objectives=spec.objectives,
            max_trials=planned_trials(spec),
            progress=job.progress or 0.0,
            finished=job.state.is_final,
            failure=job.reason if job.state.is_final and job.state == "FAILED" else "",
            states={state.value: count for state, count in self._store.trial_states(job.id).items()},
            outcomes=job.search.outcomes if job.search is not None else {},
            best=self._store.trials_numbered(job.id, best),
            front=view.front,
            curve=view.curve,
            importance=view.importance,
        )


def _conclude(spec: SearchSpec, view: _View) -> None:
    bad = (Outcome.FAILED, Outcome.INVALID_HP)
    counted = [view.results[number] for number in sorted(view.results) if view.results[number].outcome not in bad]
    view.ranked = tuple(result.trial for result in best_trials(spec, counted, count=len(counted)))
    view.front = tuple(result.trial for result in pareto_front(spec, counted)) if len(spec.objectives) > 1 else ()
    view.curve = tuple(best_so_far(spec, counted))
    view.importance = parameter_importance(spec, counted)


def _result(trial: SearchResult, metrics: Sequence[str], space: Container[str]) -> TrialResult:
    values = tuple(trial.objectives.get(metric) for metric in metrics)
    searched = {name: value for name, value in trial.hparams.items() if name in space}
    outcome = None if trial.outcome is None else Outcome(trial.outcome)
    return TrialResult(trial.number, searched, values, 0, outcome)
