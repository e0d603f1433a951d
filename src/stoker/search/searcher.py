"""The searcher: a sampler proposes, a stopping rule prunes, and the limits of the spec hold."""

import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stoker.errors import UsageError
from stoker.schema.search import Asha, AsyncHalving, CmaEs, Goal, Gp, Grid, Median, Pbt, SearchSpec, Single, Tpe
from stoker.search.asha import WORST, AshaRule
from stoker.search.base import Asked, Ended, Outcome, Prior, Record, Reported, Stop, Suggestion
from stoker.search.median import MedianRule
from stoker.search.pbt import PbtSampler
from stoker.search.samplers import GridSampler, RandomSampler, Sampler, TrialResult
from stoker.search.space import Dice

# Without a limit of the user's: if the first so many all fail, the rest would too.
FIRST_FAILURES = 10
INVALID_IN_A_ROW = 100
_STEP_NAMES = frozenset({"step", "steps", "batches"})  # as a time metric, what a report's own step stands for


class StoppingRule(Protocol):
    """Says where there is room for a trial, and which trial should stop. Values are signed: less is better."""

    def place(self) -> int | None:
        """The bracket the next trial goes to; None when there is no room now."""
        ...

    def started(self, trial: int, place: int) -> None: ...

    def reported(self, trial: int, time: float, value: float) -> Stop | None: ...

    def ended(self, trial: int, outcome: Outcome) -> None: ...

    def progress(self) -> float | None:
        """From 0 to 1, where the rule knows better than a count of trials."""
        ...


def build_searcher(spec: SearchSpec, *, records: Iterable[Record] = (), prior: Sequence[Prior] = ()) -> "TrialSearcher":
    """A searcher as it stood after these records. `prior` are the trials of the search in `resume_from`."""
    sampler, total = _build_sampler(spec, prior)
    searcher = TrialSearcher(spec, sampler=sampler, rule=_build_rule(spec, total), max_trials=total)
    for record in records:
        searcher.replay(record)
    return searcher


def planned_trials(spec: SearchSpec) -> int:
    """How many trials the search makes at most."""
    if isinstance(spec.sampler, Single):
        return 1
    if isinstance(spec.sampler, Grid):
        points = len(GridSampler(spec).points)
        return min(points, spec.max_trials or points)
    assert spec.max_trials is not None  # SearchSpec requires it of every other sampler
    return spec.max_trials


@dataclass(slots=True)
class _Trial:
    suggestion: Suggestion
    best: float | None = None  # of the first objective, signed
    latest: dict[str, float] = field(default_factory=dict)
    step: int = 0
    outcome: Outcome | None = None
    stop: Stop | None = None


class TrialSearcher:
    """Searcher by composition; holds the trials, and leaves points and pruning to its parts."""

    def __init__(self, spec: SearchSpec, *, sampler: Sampler, rule: StoppingRule, max_trials: int) -> None:
        self.spec = spec
        self.max_trials = max_trials
        self._sampler = sampler
        self._rule = rule
        self._objectives = spec.objectives
        self._sign = -1.0 if spec.goal is Goal.MAXIMIZE else 1.0
        self._time_metric = spec.time_metric
        self._trials: list[_Trial] = []
        self._live: set[int] = set()
        self._stopping: dict[int, Stop] = {}
        self._tally = _Tally(spec)

    def ask(self) -> Suggestion | None:
        place = self._place()
        if place is None or self._is_full:
            return None
        number = len(self._trials) + 1
        proposal = self._sampler.propose(number)
        suggestion = Suggestion(
            trial=number,
            hparams=proposal.hparams,
            seed=Dice(self.spec.seed, number).seed(),
            bracket=place,
            parent=proposal.parent,
            memory=proposal.memory,
        )
        self._start(suggestion)
        return suggestion

    def wants(self, values: Mapping[str, float], *, group: str | None = None) -> bool:
        right_group = self.spec.group is None or group is None or group == self.spec.group
        return right_group and any(objective.metric in values for objective in self._objectives)

    def report(self, trial: int, *, step: int, values: Mapping[str, float]) -> Stop | None:
        known = self._known(trial)
        known.step = step
        known.latest.update({o.metric: values[o.metric] for o in self._objectives if o.metric in values})
        if not self._objectives or self._objectives[0].metric not in values:
            return None
        self._tally.heard = True
        value = values[self._objectives[0].metric] * self._sign
        if not math.isfinite(value):
            value = WORST
        elif known.best is None or value < known.best:
            known.best = value
        stop = self._judge(known, self._time(step, values), value)
        if stop is not None:
            self._told_to_stop(known, stop)
        return stop

    def ended(self, trial: int, outcome: Outcome, *, reported: Sequence[str] = ()) -> None:
        known = self._known(trial)
        known.outcome = outcome
        self._live.discard(trial)
        self._stopping.pop(trial, None)
        self._tally.ended(known.suggestion, outcome, reported)
        self._rule.ended(trial, outcome)
        self._sampler.ended(self._result(known))

    def replay(self, record: Record) -> None:
        match record:
            case Asked():
                self._start(record.suggestion)
            case Reported():
                found = self.report(record.trial, step=record.step, values=record.values)
                # What was decided then holds, also where today's rules would decide otherwise.
                if found != record.stop:
                    self._overrule(record.trial, record.stop)
            case Ended():
                self.ended(record.trial, record.outcome, reported=record.reported)

    @property
    def may_ask(self) -> bool:
        """Whether `ask` would answer now; cheap, where to ask may not be."""
        return not self._is_full and self._place() is not None

    @property
    def _is_full(self) -> bool:
        return len(self._live) >= (self.spec.max_concurrent_trials or math.inf)

    @property
    def heard(self) -> bool:
        """Whether any trial has reported the metric."""
        return self._tally.heard

    @property
    def live(self) -> frozenset[int]:
        return frozenset(self._live)

    def is_live(self, trial: int) -> bool:
        """Whether it was asked for and has not ended."""
        return trial in self._live

    @property
    def stopping(self) -> Mapping[int, Stop]:
        return self._stopping

    @property
    def finished(self) -> bool:
        return not self._live and self._place() is None

    def failure(self) -> str | None:
        return self._tally.failure(over=self.finished)

    def progress(self) -> float:
        if self.finished:
            return 1.0
        known = self._rule.progress()
        return min(self._tally.valid_ended / self.max_trials, 1.0) if known is None else known

    def result(self, trial: int) -> TrialResult:
        return self._result(self._trials[trial - 1])

    def results(self) -> list[TrialResult]:
        """Every trial so far, in order: with one objective its best value, with several the newest of each."""
        return [self._result(trial) for trial in self._trials]

    def _place(self) -> int | None:
        """Where the next trial would go, but for how many may run at once."""
        if self._tally.failure(over=False) is not None:
            return None
        if len(self._trials) - self._tally.invalid >= self.max_trials or not self._sampler.has_more():
            return None
        return self._rule.place()

    def _start(self, suggestion: Suggestion) -> None:
        self._trials.append(_Trial(suggestion))
        self._live.add(suggestion.trial)
        self._rule.started(suggestion.trial, suggestion.bracket)
        self._sampler.started(suggestion)

    def _known(self, trial: int) -> _Trial:
        if trial not in self._live:
            raise LookupError(f"trial {trial} is not live: it was never asked for, or has ended")
        return self._trials[trial - 1]

    def _time(self, step: int, values: Mapping[str, float]) -> float | None:
        name = self._time_metric
        if name is None:
            return step
        time = values.get(name, float(step) if name in _STEP_NAMES else None)
        return time if time is not None and math.isfinite(time) else None

    def _judge(self, known: _Trial, time: float | None, value: float) -> Stop | None:
        if known.stop is not None or time is None:
            return None
        trial = known.suggestion.trial
        pruned = self._rule.reported(trial, time, value)
        if pruned is not None:
            return pruned
        return self._sampler.reported(trial, time, value)

    def _told_to_stop(self, known: _Trial, stop: Stop) -> None:
        known.stop = stop
        self._stopping[known.suggestion.trial] = stop

    def _overrule(self, trial: int, stop: Stop | None) -> None:
        known = self._trials[trial - 1]
        known.stop = None
        self._stopping.pop(trial, None)
        if stop is not None:
            self._told_to_stop(known, stop)

    def _result(self, known: _Trial) -> TrialResult:
        if len(self._objectives) == 1:
            values: tuple[float | None, ...] = (None if known.best is None else known.best * self._sign,)
        else:
            latest = (known.latest.get(objective.metric) for objective in self._objectives)
            values = tuple(value if value is not None and math.isfinite(value) else None for value in latest)
        suggestion = known.suggestion
        return TrialResult(suggestion.trial, suggestion.hparams, values, known.step, known.outcome, known.stop)


class _Tally:
    """Counts of how trials ended, and what they say about the search as a whole."""

    def __init__(self, spec: SearchSpec) -> None:
        self._spec = spec
        self.heard = False  # the metric was reported at least once
        self.invalid = 0
        self._ended = 0
        self._failed = 0
        self._invalid_in_a_row = 0
        self._last_failed: Suggestion | None = None
        self._silent: Sequence[str] | None = None  # what the first trial to complete without the metric did report

    @property
    def valid_ended(self) -> int:
        return self._ended - self.invalid

    def ended(self, suggestion: Suggestion, outcome: Outcome, reported: Sequence[str]) -> None:
        self._ended += 1
        invalid = outcome is Outcome.INVALID_HP
        self.invalid += invalid
        self._invalid_in_a_row = self._invalid_in_a_row + 1 if invalid else 0
        if outcome is Outcome.FAILED:
            self._failed += 1
            self._last_failed = suggestion
        if outcome is Outcome.COMPLETED and self._silent is None:
            self._silent = tuple(sorted(reported))

    def failure(self, *, over: bool) -> str | None:
        if self._too_many_failed(over=over):
            return self._failed_in_words()
        if self._invalid_in_a_row >= INVALID_IN_A_ROW:
            return f"{self._invalid_in_a_row} trials in a row refused their hyperparameters (InvalidHP)"
        metric = self._spec.metric
        if metric is not None and not self.heard and self._silent is not None:
            if not isinstance(self._spec.sampler, Single):
                where = f" in group {self._spec.group!r}" if self._spec.group is not None else ""
                others = f"they reported: {', '.join(self._silent)}" if self._silent else "they reported nothing"
                return f"no trial reported {metric!r}{where}; {others}"
        return None

    def _too_many_failed(self, *, over: bool) -> bool:
        if self._failed == 0:
            return False
        limit = self._spec.max_failed_trials
        if limit is not None:
            return self._failed >= limit
        all_failed = self._failed == self.valid_ended
        return all_failed and (over or (self._failed >= FIRST_FAILURES and not self.heard))

    def _failed_in_words(self) -> str:
        last = self._last_failed
        assert last is not None
        limit = self._spec.max_failed_trials
        reaches = f", which reaches max_failed_trials ({limit})" if limit is not None else ""
        with_ = ", ".join(f"{name}={value}" for name, value in last.hparams.items()) or "none"
        return (
            f"{self._failed} of {self.valid_ended} trials failed{reaches}."
            f" The last to fail was trial {last.trial}, with hyperparameters: {with_}"
        )


class _NoRule:
    """Trials run to their own end."""

    def place(self) -> int | None:
        return 0

    def started(self, trial: int, place: int) -> None:
        pass

    def reported(self, trial: int, time: float, value: float) -> Stop | None:
        return None

    def ended(self, trial: int, outcome: Outcome) -> None:
        pass

    def progress(self) -> float | None:
        return None


def _build_rule(spec: SearchSpec, max_trials: int) -> StoppingRule:
    match spec.stopping:
        case Asha() | AsyncHalving():
            return AshaRule(spec, max_trials)
        case Median():
            return MedianRule(spec.stopping)
        case _:
            return _NoRule()


def _build_sampler(spec: SearchSpec, prior: Sequence[Prior]) -> tuple[Sampler, int]:
    total = planned_trials(spec)
    match spec.sampler:
        case Grid():
            return GridSampler(spec), total
        case Pbt():
            return PbtSampler(spec, total), total
        case Tpe() | Gp() | CmaEs():
            return _optuna_sampler(spec, prior), total
        case _:
            return RandomSampler(spec), total


def _optuna_sampler(spec: SearchSpec, prior: Sequence[Prior]) -> Sampler:
    # Loaded when first needed: optuna takes half a second, and most searches do without.
    try:
        module = importlib.import_module("stoker.search.optuna")
        sampler: Sampler = module.OptunaSampler(spec, prior)
    except ImportError as error:
        raise UsageError(
            f"The {spec.sampler.name} sampler needs {error.name or 'optuna'}, which is not installed where the server"
            " runs. Install it with `pip install 'stoker[search]'`, or use `sampler: random`."
        ) from error
    return sampler
