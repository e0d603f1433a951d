"""The store on a SQL database: opens transactions; what happens in them is in the files beside."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, Row, Select, Table, bindparam, select, update

from stoker.errors import NotFoundError
from stoker.schema.event import EventBatch
from stoker.schema.job import Labels
from stoker.schema.record import (
    CheckpointRecord,
    Job,
    JobSummary,
    JobTrial,
    LogPage,
    MetricPoint,
    Run,
    Trial,
    TrialList,
)
from stoker.schema.state import Intent, JobState, RunState, StopReason
from stoker.search.base import Prior
from stoker.server.store import events, searches, series
from stoker.server.store import jobs as job_rows
from stoker.server.store import logs as log_rows
from stoker.server.store import runs as run_rows
from stoker.server.store.base import (
    Appended,
    JobFilter,
    JobNow,
    LogFilter,
    MetricPage,
    NewJob,
    SearchBatch,
    SearchNews,
    SearchPast,
    SearchResults,
)
from stoker.server.store.columns import checkpoint_records
from stoker.server.store.dialect import open_database, reader_of, writer_of
from stoker.server.store.matching import Matcher
from stoker.server.store.migrate import migrate
from stoker.server.store.models import SqlModelStore
from stoker.server.store.pages import SqlPageStore
from stoker.server.store.postgres import Ownership, owned_writer, patient_methods
from stoker.server.store.tables import metrics, runs, trials
from stoker.server.store.unfinished import Unfinished, has_work, is_of_use, trials_changed

_PLACE = update(runs).where(runs.c.id == bindparam("of_run"))  # built once: that costs more than to run it


def open_store(database: Path | str, *, home: str = "") -> "SqlStore":
    """The store in this SQLite file, or behind this URL.

    UsageError if it cannot be opened, ServerError if a newer stoker wrote it, ConflictError if another server has it.
    """
    engine = open_database(database)
    try:
        return SqlStore(engine, home=home)
    except BaseException:
        engine.dispose()
        raise


@patient_methods
class SqlStore:
    """See `base.Store` for the contract."""

    def __init__(self, engine: Engine, *, home: str = "") -> None:
        self._engine = reader_of(engine)
        self._matcher = Matcher()
        self._unfinished = Unfinished()
        self._owner: Ownership | None = None
        if engine.dialect.name == "sqlite":
            self._write = writer_of(engine)
            with self._write() as connection:
                migrate(connection)
        else:
            self._owner = Ownership(engine, home=home)
            self._write = owned_writer(engine, self._owner)
            with engine.begin() as connection:
                migrate(connection)
                self._owner.claim(connection)
        self.models = SqlModelStore(self._engine, self._write)
        self.pages = SqlPageStore(self._engine, self._write, self._matcher)

    def is_ours(self) -> bool:
        """False once another server has taken the database: this one has to end."""
        return self._owner is None or self._owner.keep()

    def add_job(self, new: NewJob, *, now: float) -> tuple[Job, bool]:
        with self._unfinished.changing(new.spec.name), self._write() as connection:
            return job_rows.add(connection, new, now=now)

    def job(self, job: str) -> Job:
        with self._engine.begin() as connection:
            return job_rows.whole(connection, job_rows.find(connection, job))

    def job_of(self, run: str) -> Job:
        with self._engine.begin() as connection:
            row = events.find_run(connection, run)
            return job_rows.whole(connection, job_rows.find(connection, row.job_id), only=row.trial)

    def trials(
        self, job: str, *, sort: str = "number", after: int = 0, limit: int = 100, only: int | None = None
    ) -> TrialList:
        with self._engine.begin() as connection:
            return searches.listed(connection, job, sort=sort, after=after, limit=limit, only=only)

    def trial(self, trial: int) -> JobTrial:
        with self._engine.begin() as connection:
            return job_rows.trial(connection, trial)

    def trials_numbered(self, job: str, numbers: Sequence[int]) -> tuple[Trial, ...]:
        with self._engine.begin() as connection:
            return searches.numbered(connection, job, numbers)

    def trial_states(self, job: str) -> dict[JobState, int]:
        with self._engine.begin() as connection:
            return searches.states(connection, job)

    def summary(self, job: str) -> JobSummary:
        with self._engine.begin() as connection:
            return job_rows.summary(connection, job_rows.find(connection, job))

    def jobs(self, which: JobFilter) -> tuple[JobSummary, ...]:
        with self._engine.begin() as connection:
            return job_rows.listed(connection, which)

    def change_job(
        self, job: str, *, labels: Labels | None = None, priority: int | None = None, max_slots: int | None = None
    ) -> Job:
        with self._unfinished.changing(job), self._write() as connection:
            row = job_rows.find(connection, job)
            job_rows.change(connection, row, labels=labels, priority=priority, max_slots=max_slots)
            return job_rows.whole(connection, job_rows.find(connection, job))

    def set_intent(self, job: str, intent: Intent, *, by: str, now: float, kill: bool = False) -> Job:
        with self._unfinished.changing(job), self._write() as connection:
            job_rows.set_intent(connection, job_rows.find(connection, job), intent, by=by, now=now, kill=kill)
            return job_rows.whole(connection, job_rows.find(connection, job))

    def unfinished(self) -> tuple[JobNow, ...]:
        return self._unfinished.look(self._engine)

    def has_work(self) -> bool:
        with self._engine.begin() as connection:
            return has_work(connection)

    def run(self, run: str) -> Run:
        with self._engine.begin() as connection:
            return run_rows.record(events.find_run(connection, run))

    def move_run(
        self,
        run: str,
        state: RunState,
        *,
        now: float,
        stop: StopReason | None = None,
        message: str = "",
        restart: bool = False,
    ) -> Run:
        with self._unfinished.changing_run(run), self._write() as connection:
            run_rows.move(connection, run, state, now=now, stop=stop, message=message, restart=restart)
            return run_rows.record(events.find_run(connection, run))

    def place_run(
        self, run: str, *, directory: str | None = None, handle: str | None = None, num_nodes: int | None = None
    ) -> None:
        given = {"directory": directory, "handle": handle, "num_nodes": num_nodes}
        with self._unfinished.changing_run(run), self._write() as connection:
            changes = {name: value for name, value in given.items() if value is not None}
            if not changes:
                events.find_run(connection, run)  # or it is an error all the same
            elif connection.execute(_PLACE, {"of_run": run, **changes}).rowcount == 0:
                raise NotFoundError(f"No run {run!r} on this server.")

    def order_stop(self, run: str, reason: StopReason, *, now: float) -> None:
        with self._unfinished.changing_run(run), self._write() as connection:
            run_rows.order_stop(connection, run, reason, now=now)

    def stop_order(self, run: str) -> StopReason | None:
        with self._engine.begin() as connection:
            return events.stop_order(events.find_run(connection, run))

    def add_run(self, trial: int, *, now: float) -> Run:
        with self._write() as connection:
            added = run_rows.record(events.find_run(connection, run_rows.add_next(connection, trial, now=now)))
        with self._unfinished.changing_run(added.id):
            return added

    def append_events(self, run: str, batch: EventBatch, *, now: float) -> Appended:
        noted = self._unfinished.changing_run(run) if is_of_use(batch) else nullcontext()
        with noted, self._write() as connection:
            return events.append(connection, run, batch, now=now)

    def log_page(self, job: str, which: LogFilter, *, after: int = 0, limit: int = 10_000) -> LogPage:
        with self._engine.begin() as connection:
            number = job_rows.number_of(connection, job)
            return log_rows.read_page(connection, number, which, after=after, limit=limit, find=self._matcher.find)

    def log_tail(self, job: str, which: LogFilter, *, lines: int) -> LogPage:
        with self._engine.begin() as connection:
            number = job_rows.number_of(connection, job)
            return log_rows.read_tail(connection, number, which, lines=lines, find=self._matcher.find)

    def metric_page(self, job: str, *, after: int = 0, limit: int = 1000) -> MetricPage:
        with self._engine.begin() as connection:
            number = job_rows.number_of(connection, job)
            of_user_code = metrics.c.kind != series.SYSTEM
            query = _of_job(metrics, number).where(metrics.c.number > after, of_user_code).limit(limit)
            rows = connection.execute(query).fetchall()
        return MetricPage(tuple(_metric_point(row) for row in rows), rows[-1].number if rows else after)

    def checkpoints(self, job: str) -> tuple[CheckpointRecord, ...]:
        with self._engine.begin() as connection:
            return checkpoint_records(connection, job)

    def search_past(self, job: str) -> SearchPast:
        with self._engine.begin() as connection:
            return searches.past(connection, job)

    def search_news(self, job: str, *, after: int) -> SearchNews:
        with self._engine.begin() as connection:
            return searches.news(connection, job, after=after)

    def search_results(self, job: str, *, after: int) -> SearchResults:
        with self._engine.begin() as connection:
            return searches.results(connection, job, after=after)

    def record_search(self, job: str, batch: SearchBatch, *, now: float) -> None:
        with self._unfinished.changing(job, trials_changed(batch)), self._write() as connection:
            searches.record(connection, job, batch, now=now)

    def search_prior(self, job: str, metrics: Sequence[str]) -> tuple[Prior, ...]:
        with self._engine.begin() as connection:
            return searches.prior(connection, job, metrics)

    def checkpoint_of(self, trial: int) -> str | None:
        with self._engine.begin() as connection:
            return searches.checkpoint_of(connection, trial)

    def close(self) -> None:
        if self._owner is not None:
            self._owner.close()
        self._matcher.close()
        self._engine.dispose()


def _of_job(table: Table, job: int) -> Select[Any]:
    return (
        select(table, runs.c.id.label("run_id"), trials.c.number.label("trial"))
        .join(runs, runs.c.number == table.c.run)
        .join(trials, trials.c.id == runs.c.trial)
        .where(table.c.job == job)
        .order_by(table.c.number)
    )


def _metric_point(row: Row[Any]) -> MetricPoint:
    return MetricPoint(
        run=row.run_id,
        trial=row.trial,
        time=row.time,
        replica=row.replica,
        group=row.kind,
        step=row.step,
        values=json.loads(row.points),
    )
