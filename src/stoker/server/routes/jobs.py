"""Jobs: submit, list, look, change, steer."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from stoker.errors import NotFoundError, UsageError
from stoker.host.home import Home
from stoker.origin import Platform
from stoker.schema.job import JobSpec, Labels, Share
from stoker.schema.model import Model
from stoker.schema.record import CheckpointRecord, DryRun, Job, JobList, Run, Trial
from stoker.schema.state import Intent, JobState, RunState
from stoker.server.live.wakeups import Wakeups
from stoker.server.routes.replies import reply, reply_many
from stoker.server.scheduling.launch import build_launch
from stoker.server.scheduling.placement import replicas_for
from stoker.server.scheduling.scheduler import Scheduler
from stoker.server.searches.search import check_search, first_trial
from stoker.server.settings import Settings, choose_pool
from stoker.server.store.listing import sort_key
from stoker.server.store.store import Store
from stoker.server.store.values import JobQuery, NewJob
from stoker.server.views.pools import Clusters

_MAX_LISTED = 10_000


class JobChanges(Model):
    """What may be changed of a job; each replaces what was there."""

    labels: Labels | None = None
    priority: int | None = None
    max_slots: Annotated[int, Field(ge=1, description="of all running trials of its search together")] | None = None


class ListQuery(Model):
    """Which jobs, in which order."""

    q: str | None = Field(None, description="words, all found in name, owner, pool or labels, in any case")
    state: str | None = Field(None, description="one or more states, with commas between")
    name: str | None = Field(None, description="the beginning of the name, or a pattern with * and ?")
    label: list[str] = Field([], description="key=value; several must all be there")
    pool: str | None = None
    owner: str | None = None
    sort: str = Field("-created", description="created, name, priority, owner, pool, started, ended; -: falling")
    limit: int = Field(100, ge=1, le=_MAX_LISTED)
    before: str | None = Field(None, description="only jobs older than this one (name or number)")
    cursor: str | None = Field(None, description="the last answer's, for the next page")
    counts: bool = Field(False, description="also count the jobs in each state")

    def query(self, *, before: int | None) -> JobQuery:
        sort_key(self.sort.removeprefix("-"))
        return JobQuery(
            words=tuple((self.q or "").split()),
            states=_states(self.state),
            name=self.name,
            labels=tuple(_label(text) for text in self.label),
            pool=self.pool,
            owner=self.owner,
            sort=self.sort.removeprefix("-"),
            falling=self.sort.startswith("-"),
            after=_place(self.cursor),
            before=before,
            limit=self.limit,
        )


@dataclass(frozen=True, slots=True)
class JobRoutes:
    """What the routes of jobs need."""

    store: Store
    scheduler: Scheduler
    clusters: Clusters
    wakeups: Wakeups
    settings: Settings
    home: Home
    owner: str
    now: Callable[[], float]

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/jobs", tags=["jobs"])
        router.add_api_route("", self.submit_job, methods=["POST"], response_model=Job | DryRun, status_code=201)
        router.add_api_route("", self.list_jobs, methods=["GET"], response_model=JobList)
        router.add_api_route("/{job}", self.get_job, methods=["GET"], response_model=Job)
        router.add_api_route("/{job}", self.change_job, methods=["PATCH"], response_model=Job)
        router.add_api_route("/{job}/cancel", self.cancel_job, methods=["POST"], response_model=Job)
        router.add_api_route("/{job}/kill", self.kill_job, methods=["POST"], response_model=Job)
        router.add_api_route("/{job}/pause", self.pause_job, methods=["POST"], response_model=Job)
        router.add_api_route("/{job}/resume", self.resume_job, methods=["POST"], response_model=Job)
        router.add_api_route(
            "/{job}/checkpoints", self.get_checkpoints, methods=["GET"], response_model=list[CheckpointRecord]
        )
        return router

    def submit_job(self, spec: JobSpec, dry_run: bool = False) -> Response:
        """Store a job; it runs when there is room.

        The same spec again is the same job (200). `dry_run`: what would be started, and nothing is stored.
        """
        is_determineds = spec.origin is not None and spec.origin.platform is Platform.DETERMINED
        self.clusters.look_again()
        pool, note = choose_pool(
            spec.pool,
            self.scheduler.pools,
            default=self.settings.default_pool,
            of_another_cluster=is_determineds,
        )
        self.clusters.await_answer(pool.name)
        pool = self.scheduler.pools.get(pool.name, pool)
        replicas = replicas_for(spec.resources, pool)
        need = Share.total(replicas)
        if dry_run:
            imagined = _imagined(spec, pool=pool.name, owner=self.owner, now=self.now())
            launch = build_launch(*imagined, replicas)
            return reply(DryRun(launch=launch, pool=pool.name, notes=(note,) if note else ()))
        self._check_uploaded(spec)
        if spec.search is not None:
            check_search(self.store, spec.search)
        new = NewJob(spec=spec, owner=self.owner, pool=pool.name, need=need)
        job, is_new = self.store.add_job(new, now=self.now())
        if is_new:
            self.scheduler.wake()
            self.wakeups.job_changed(job.id)
        return reply(job.with_(notes=(note,)) if note else job, status=201 if is_new else 200)

    def list_jobs(self, which: Annotated[ListQuery, Query()]) -> Response:
        """Jobs, newest first unless another order is asked for."""
        query = which.query(before=self._number(which.before))
        page = self.store.pages.find_jobs(query)
        jobs = tuple(self.scheduler.with_reason(job) for job in page.jobs)
        counts = {state.value: n for state, n in self.store.pages.job_counts(query).items()} if which.counts else None
        return reply(JobList(jobs=jobs, cursor=json.dumps(page.after) if page.after else None, counts=counts))

    def get_job(self, job: str) -> Response:
        """A job, whole: state, why it waits or failed, trials and runs."""
        return self._reply(self.store.job(job))

    def change_job(self, job: str, changes: JobChanges) -> Response:
        """Replace the labels, the priority, the most slots of a search. Trials that run above the new limit go on."""
        given = {name: value for name, value in changes if value is not None and name != "max_slots"}
        JobSpec.parse({**dict(self.store.job(job).spec), **given}, source="The change")  # the rules of a new job
        return self._changed(self.store.change_job(job, **dict(changes)))

    def cancel_job(self, job: str) -> Response:
        """Stop it for good. A finished job stays as it is."""
        return self._set_intent(job, Intent.STOP)

    def kill_job(self, job: str) -> Response:
        """End it at once: its processes get no time to save anything."""
        return self._set_intent(job, Intent.STOP, kill=True)

    def pause_job(self, job: str) -> Response:
        """Stop its runs; they go on from their latest checkpoints after `resume`."""
        return self._set_intent(job, Intent.PAUSE)

    def resume_job(self, job: str) -> Response:
        """Let a paused job go on."""
        return self._set_intent(job, Intent.RUN)

    def get_checkpoints(self, job: str, trial: int | None = None) -> Response:
        """The checkpoints its runs have reported, oldest first; those of one trial with their metrics."""
        return reply_many(self.store.checkpoints(job, trial=trial))

    def _set_intent(self, job: str, intent: Intent, *, kill: bool = False) -> Response:
        return self._changed(self.store.set_intent(job, intent, by=self.owner, now=self.now(), kill=kill))

    def _changed(self, job: Job) -> Response:
        self.scheduler.wake()
        self.wakeups.job_changed(job.id)
        return self._reply(job)

    def _reply(self, job: Job) -> Response:
        return reply(self.scheduler.with_reason(job))

    def _number(self, before: str | None) -> int | None:
        if before is None:
            return None
        return int(before) if before.isdecimal() else self.store.summary(before).number

    def _check_uploaded(self, spec: JobSpec) -> None:
        if spec.package is not None and not self.home.package_file(spec.package).exists():
            raise NotFoundError(f"Package {spec.package} is not on this server. Upload it first: PUT /packages/HASH.")
        for archive in spec.environment.archives:
            if not self.home.archive_file(archive.hash, archive.filename).exists():
                raise NotFoundError(
                    f"Archive {archive.filename} ({archive.hash}) is not on this server."
                    " Upload it first: PUT /packages/HASH/FILENAME."
                )


def _states(text: str | None) -> frozenset[JobState]:
    names = [name.strip().upper() for name in (text or "").split(",") if name.strip()]
    unknown = [name for name in names if name not in JobState.__members__]
    if unknown:
        raise UsageError(f"No job state {', '.join(unknown)}. States: {', '.join(JobState.__members__)}.")
    return frozenset(JobState(name) for name in names)


def _place(cursor: str | None) -> tuple[Any, int] | None:
    if cursor is None:
        return None
    try:
        key, number = json.loads(cursor)
        if isinstance(key, str | int | float) and isinstance(number, int):
            return key, number
    except (ValueError, TypeError):
        pass
    raise UsageError(f"{cursor[:80]!r} is no cursor of a list of jobs: take the last answer's.")


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is not a label to look for: write it as key=value.")
    return key, value


def _imagined(spec: JobSpec, *, pool: str, owner: str, now: float) -> tuple[Job, Trial, Run]:
    """The job's first run, as it would be."""
    run = Run(id=f"{spec.name}.1.1", attempt=1, state=RunState.QUEUED, created=now)
    hparams, seed = first_trial(spec)
    trial = Trial(id=0, number=1, hparams=hparams, seed=seed, state=JobState.QUEUED, runs=(run,))
    job = Job(
        id=spec.name,
        number=0,
        owner=owner,
        kind=spec.kind,
        state=JobState.QUEUED,
        pool=pool,
        priority=spec.priority,
        labels=spec.labels,
        created=now,
        intent=Intent.RUN,
        spec=spec,
        trials=(trial,),
    )
    return job, trial, run
