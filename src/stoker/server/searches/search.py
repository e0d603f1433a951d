"""Run searches: hear what trials report and how they end, stop those that do badly, ask for the next.

A searcher lives in memory and only what the store holds is true: what it decides is stored, with what it causes, before
anything else sees it, and whenever that fails it is forgotten and rebuilt from the records.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, TypeVar

from stoker.errors import ConflictError, StokerError, StoreError, UsageError
from stoker.schema.job import JobSpec
from stoker.schema.pool import Pool
from stoker.schema.search import CmaEs, Gp, SearchSpec, Tpe
from stoker.schema.state import Intent, RunState, StopReason
from stoker.search.base import Asked, Ended, Outcome, Reported, Suggestion
from stoker.search.samplers import TrialResult
from stoker.search.searcher import TrialSearcher, build_searcher
from stoker.server.live.wakeups import Wakeups
from stoker.server.scheduling.decide import used
from stoker.server.store.store import Store
from stoker.server.store.values import JobNow, OverTrial, Report, SearchBatch, SearchEntry, SearchState, TrialNow

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MOST_AT_ONCE = 1000  # trials that need nothing would otherwise all be made at once


@dataclass(slots=True)
class Search:
    """A job's search in memory. `cursor` is the number of the last report it has heard."""

    spec: JobSpec
    searcher: TrialSearcher
    cursor: int
    checkpoint: str | None = None  # what every trial starts from
    names: dict[int, set[str]] = field(default_factory=dict)  # live trials, and the metrics they have reported

    @property
    def is_slow(self) -> bool:
        """Whether to ask may take long enough for others to notice."""
        return isinstance(self.searcher.spec.sampler, Tpe | Gp | CmaEs)


class Searches:
    """The searches of all unfinished jobs. Used by the scheduler's thread alone."""

    def __init__(
        self,
        store: Store,
        *,
        pools: Mapping[str, Pool],
        wakeups: Wakeups,
        wake: Callable[[], None],
        now: Callable[[], float],
        background: Executor | None = None,
    ) -> None:
        self._store = store
        self._pools = pools
        self._wakeups = wakeups
        self._wake = wake
        self._now = now
        self._background = background
        self._searches: dict[str, Search] = {}
        # While a searcher is being built or asked elsewhere nobody else touches it.
        self._building: dict[str, Future[Search]] = {}
        self._asking: dict[str, Future[list[Suggestion]]] = {}

    def close(self) -> None:
        if self._background is not None:
            self._background.shutdown(wait=False, cancel_futures=True)

    def step(self) -> int:
        """Let every search take a step; how many decided something."""
        jobs = self._store.unfinished()
        going = [job for job in jobs if job.is_searching and job.intent is not Intent.STOP]
        for known in (self._searches, self._building, self._asking):
            for name in known.keys() - {job.id for job in going}:
                del known[name]
        return sum(self._step(job, jobs) for job in going)

    def _step(self, job: JobNow, jobs: Iterable[JobNow]) -> bool:
        try:
            found = self._find(job)
            return found is not None and self._advance(job, found, room=self._room(job, jobs))
        except StoreError:
            logger.exception("search of job %s could not be stored; it is rebuilt", job.id)
            self._forget(job.id)
            return False
        except StokerError as error:
            return self._give_up(job.id, str(error))
        except Exception as error:  # noqa: BLE001 - it would fail again at every tick; this way its job ends, in words
            logger.exception("search of job %s failed", job.id)
            return self._give_up(job.id, f"The search failed: {error!r}. See server.log.")

    def _give_up(self, job: str, why: str) -> bool:
        self._forget(job)
        self._store.record_search(job, SearchBatch(state="failed", failure=why), now=self._now())
        logger.info("search of job %s failed: %s", job, why)
        self._wakeups.job_changed(job)
        return True

    def _forget(self, job: str) -> None:
        self._searches.pop(job, None)
        self._building.pop(job, None)
        self._asking.pop(job, None)

    def _find(self, job: JobNow) -> Search | None:
        """The job's search, if it is there and nobody else has it in hand."""
        if job.id in self._searches:
            asking = self._asking.get(job.id)
            return self._searches[job.id] if asking is None or asking.done() else None
        if job.id not in self._building:
            self._building[job.id] = self._apart(lambda: load_search(self._store, job.id))
        building = self._building[job.id]
        if not building.done():
            return None
        del self._building[job.id]
        self._searches[job.id] = building.result()
        return self._searches[job.id]

    def _apart(self, work: Callable[[], T]) -> Future[T]:
        """Do it beside the ticks, which go on for other jobs; the scheduler is woken when it is done."""
        if self._background is None:
            self._background = ThreadPoolExecutor(max_workers=1, thread_name_prefix="search")
        future = self._background.submit(work)
        future.add_done_callback(lambda _: self._wake())
        return future

    def _advance(self, job: JobNow, search: Search, *, room: int) -> bool:
        """One step: hear the news, ask for trials, store both, stop what does badly. Whether anything was decided."""
        suggested = [_asked(search, suggestion) for suggestion in self._suggested(job.id)]
        news = self._store.search_news(job.id, after=search.cursor)
        heard = [entry for report in news.reports if (entry := hear(search, report)) is not None]
        ended = [end(search, trial) for trial in news.over if search.searcher.is_live(trial.number)]
        failure = search.searcher.failure()
        count = _wanted(job, search, room) - len(suggested) if failure is None and job.intent is Intent.RUN else 0
        asked = self._ask(job.id, search, count)
        entries = [*suggested, *heard, *ended, *asked]  # as the searcher saw it: it is rebuilt in this order
        state: SearchState = "failed" if failure else "done" if self._is_done(job.id, search) else "open"
        if entries or state != "open":
            self._keep(job.id, search, entries, state=state, failure=failure)
        ordered = self._order_stops(job, search, _told(heard))
        return bool(entries or ordered or state != "open")

    def _suggested(self, job: str) -> list[Suggestion]:
        """What was asked for in the background, now that it is there."""
        asked = self._asking.pop(job, None)
        return asked.result() if asked is not None else []

    def _ask(self, job: str, search: Search, count: int) -> list[SearchEntry]:
        if count <= 0:
            return []
        if search.is_slow:
            # Not when there is nothing to ask for: the answer wakes us, and we would ask again.
            if search.searcher.may_ask:
                self._asking[job] = self._apart(lambda: ask(search.searcher, count))
            return []
        return [_asked(search, suggestion) for suggestion in ask(search.searcher, count)]

    def _is_done(self, job: str, search: Search) -> bool:
        return job not in self._asking and search.searcher.finished

    def _keep(
        self, job: str, search: Search, entries: list[SearchEntry], *, state: SearchState, failure: str | None
    ) -> None:
        touched = {entry.record.trial for entry in entries if isinstance(entry.record, Reported)}
        values = {trial: objectives(search.searcher, search.searcher.result(trial)) for trial in sorted(touched)}
        progress = search.searcher.progress() if job not in self._asking else None
        batch = SearchBatch(entries, values, progress=progress, state=state, failure=failure)
        self._store.record_search(job, batch, now=self._now())
        self._wakeups.job_changed(job)
        if state != "open":
            logger.info("search of job %s is %s%s", job, state, f": {failure}" if failure else "")

    def _order_stops(self, job: JobNow, search: Search, told: Mapping[int, str]) -> int:
        """Wake the supervisors of trials that are to stop; how many had to be ordered to, besides those `told` now."""
        ordered = 0
        for trial in job.trials:
            if trial.number not in told:
                if not _needs_order(search, trial):
                    continue
                self._store.order_stop(trial.run.id, StopReason.PRUNE, now=self._now())
                ordered += 1
            logger.info("run %s told to stop: %s", trial.run.id, told.get(trial.number, "it was decided before"))
            self._wakeups.run_ordered(trial.run.id)
        return ordered

    def _room(self, job: JobNow, jobs: Iterable[JobNow]) -> int:
        pool = self._pools.get(job.pool)
        if pool is None:
            return 0
        return int(min(job.need.times_in(pool.capacity - used(jobs, job.pool)), _MOST_AT_ONCE))


def check_search(store: Store, search: SearchSpec) -> None:
    """Refuse, at submission, a search that could not begin."""
    if isinstance(search.sampler, Tpe | Gp | CmaEs) and find_spec("optuna") is None:
        raise UsageError(
            f"The {search.sampler.name} sampler needs optuna, which is not installed where the server runs."
            " Install it with `pip install 'stoker[search]'`, or use `sampler: random`."
        )
    if search.resume_from is not None:
        earlier = store.summary(search.resume_from)
        if not earlier.state.is_final:
            raise ConflictError(
                f"Job {search.resume_from!r} is {earlier.state}; a search can begin by knowing its trials when it has"
                " ended."
            )
    if search.warm_start is not None and search.warm_start.trial is not None:
        if store.checkpoint_of(search.warm_start.trial) is None:
            raise UsageError(f"Trial {search.warm_start.trial} has saved no checkpoint to start from.")


def first_trial(spec: JobSpec) -> tuple[dict[str, Any], int | None]:
    """The hyperparameters and the seed of a job's first trial."""
    if spec.search is None:
        return spec.hparams, None
    suggestion = build_searcher(spec.search).ask()
    assert suggestion is not None, "every search makes at least one trial"
    return {**spec.hparams, **suggestion.hparams}, suggestion.seed


def load_search(store: Store, job: str) -> Search:
    """The search as the store has it. StokerError if what it needs is not there (any more)."""
    spec = store.job(job).spec
    search = spec.search
    assert search is not None
    past = store.search_past(job)
    names = [objective.metric for objective in search.objectives]
    prior = store.search_prior(search.resume_from, names) if search.resume_from and names else ()
    searcher = build_searcher(search, records=past.records, prior=prior)
    start = search.warm_start
    checkpoint = None if start is None else start.checkpoint
    if start is not None and start.trial is not None:
        checkpoint = store.checkpoint_of(start.trial)
    return Search(spec, searcher, past.cursor, checkpoint)


def hear(search: Search, report: Report) -> SearchEntry | None:
    """Tell the searcher what was reported. None if it is nothing to it."""
    search.cursor = report.number
    searcher = search.searcher
    if not searcher.is_live(report.trial):
        return None
    search.names.setdefault(report.trial, set()).update(report.values)
    if not searcher.wants(report.values, group=report.group):
        return None
    wanted = {objective.metric for objective in searcher.spec.objectives} | {searcher.spec.time_metric}
    values = {name: value for name, value in report.values.items() if name in wanted}
    stop = searcher.report(report.trial, step=report.step, values=values)
    record = Reported(trial=report.trial, step=report.step, values=values, stop=stop)
    return SearchEntry(record, metric=report.number)


def end(search: Search, trial: OverTrial) -> SearchEntry:
    """Tell the searcher that a trial is over, restarts and all."""
    names = tuple(sorted(search.names.pop(trial.number, ())))
    if search.searcher.heard:
        names = ()  # they explain a metric that never comes; besides, an earlier server may have heard some of them
    outcome = _outcome(trial, was_told=trial.number in search.searcher.stopping)
    search.searcher.ended(trial.number, outcome, reported=names)
    return SearchEntry(Ended(trial=trial.number, outcome=outcome, reported=names))


def ask(searcher: TrialSearcher, count: int) -> list[Suggestion]:
    """So many trials, or as many as there are now."""
    found: list[Suggestion] = []
    while len(found) < count and (suggestion := searcher.ask()) is not None:
        found.append(suggestion)
    return found


def objectives(searcher: TrialSearcher, result: TrialResult) -> dict[str, float]:
    """A trial's objectives by name, those that have a finite value."""
    pairs = zip(searcher.spec.objectives, result.values, strict=True)
    return {objective.metric: value for objective, value in pairs if value is not None}


def _asked(search: Search, suggestion: Suggestion) -> SearchEntry:
    hparams = {**search.spec.hparams, **suggestion.hparams}
    return SearchEntry(Asked(suggestion=suggestion), hparams=hparams, checkpoint=search.checkpoint)


def _wanted(job: JobNow, search: Search, room: int) -> int:
    """How many more to ask for: as many as would start now, or one that holds the job's place in the queue."""
    queued = sum(trial.run.state is RunState.QUEUED for trial in job.trials)
    wanted = max(room, 1) - queued
    limit = search.searcher.spec.max_slots
    live = job.max_live
    if live is None and limit is not None:
        live = max(limit // search.spec.resources.slots_in_all, 1)
    return wanted if live is None else min(wanted, live - len(job.trials))


def _outcome(trial: OverTrial, *, was_told: bool) -> Outcome:
    if trial.is_invalid:
        return Outcome.INVALID_HP
    if trial.state is RunState.SUCCEEDED:
        return Outcome.COMPLETED
    pruned = trial.state is RunState.STOPPED and trial.stop is StopReason.PRUNE
    return Outcome.STOPPED if pruned or was_told else Outcome.FAILED


def _told(heard: Iterable[SearchEntry]) -> dict[int, str]:
    """The trials that are to stop by what was just heard of them, and why; the store orders it with that record."""
    reports = [entry.record for entry in heard if isinstance(entry.record, Reported)]
    return {report.trial: report.stop.message for report in reports if report.stop is not None}


def _needs_order(search: Search, trial: TrialNow) -> bool:
    """It was told to stop in an earlier run, or under an earlier server, and its run does not know."""
    return trial.number in search.searcher.stopping and not trial.run.state.is_final and trial.run.stop is None
