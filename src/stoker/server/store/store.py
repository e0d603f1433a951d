"""The store: opens the database and its transactions; the other files of this folder say what happens in them.

`tests/contracts/store.py` is the contract as tests, over SQLite and PostgreSQL.
"""

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
from stoker.server.store.columns import checkpoint_records
from stoker.server.store.dialect import open_database, reader_of, writer_of
from stoker.server.store.failures import transactions
from stoker.server.store.matching import Matcher
from stoker.server.store.migrate import migrate
from stoker.server.store.models import ModelStore
from stoker.server.store.pages import PageStore
from stoker.server.store.postgres import Ownership, owned_writer
from stoker.server.store.tables import metrics, runs, trials
from stoker.server.store.unfinished import Unfinished, has_work, is_of_use, trials_changed
from stoker.server.store.values import (
    Appended,
    JobNow,
    LogFilter,
    MetricPage,
    NewJob,
    SearchBatch,
    SearchNews,
    SearchPast,
    SearchResults,
)

_PLACE = update(runs).where(runs.c.id == bindparam("of_run"))  # built once: that costs more than to run it


def open_store(database: Path | str, *, home: str = "") -> "Store":
    """The store in this SQLite file, or behind this URL.

    UsageError if it cannot be opened, ServerError if a newer stoker wrote it, ConflictError if another server has it.
    """
    engine = open_database(database)
    try:
        return Store(engine, home=home)
    except BaseException:
        engine.dispose()
        raise


@transactions
class Store:
    """Jobs, trials and runs, and all that runs have said.

    1. Every method is one transaction: it happens whole or not at all, and is durable when it returns.
    2. Methods may be called from any thread. None calls out: no engine, no network, no callback inside a transaction.
    3. A run's state changes in `move_run` alone, along `schema.state.check_move`; states of trials and jobs are folds.
    4. A trial always has a run, and a job without a search its trial, from the moment it is stored. The run after a
       restart is added in the same transaction that ends the one before, so a job never looks finished in between.
    5. Events are numbered per run and node from 1. Each is taken once and in order, however often it is sent; what
       comes after a gap is not taken, and `acked` says so.
    6. A job's log blocks become visible in the order of their cursors, so who has read up to one has missed none.
    7. What does not exist is NotFoundError; what the state does not allow is ConflictError; a database that fails or
       does not answer is StoreError. Nothing changes then.
    """

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
        self.models = ModelStore(self._engine, self._write)  # the registry's part
        # What pages show: columns, windows, lines.
        self.pages = PageStore(self._engine, self._write, self._matcher)

    def is_ours(self) -> bool:
        """False once another server has taken the database: this one has to end."""
        return self._owner is None or self._owner.keep()

    def add_job(self, new: NewJob, *, now: float) -> tuple[Job, bool]:
        """Store a job with its first trial and run; True if it is new.

        The same spec under the same name is the same job; another spec under that name is ConflictError.
        """
        with self._unfinished.changing(new.spec.name), self._write() as connection:
            return job_rows.add(connection, new, now=now)

    def job(self, job: str) -> Job:
        """The job, whole; of many trials the newest hundred."""
        with self._engine.begin() as connection:
            return job_rows.whole(connection, job_rows.find(connection, job))

    def job_of(self, run: str) -> Job:
        """The job that this run belongs to, with the run's own trial alone, whose state is then the job's."""
        with self._engine.begin() as connection:
            row = events.find_run(connection, run)
            return job_rows.whole(connection, job_rows.find(connection, row.job_id), only=row.trial)

    def trials(
        self, job: str, *, sort: str = "number", after: int = 0, limit: int = 100, only: int | None = None
    ) -> TrialList:
        """Trials by `number` (those after one), `newest` first, or `best` objective first; or `only` this one."""
        with self._engine.begin() as connection:
            return searches.listed(connection, job, sort=sort, after=after, limit=limit, only=only)

    def trial(self, trial: int) -> JobTrial:
        """The trial of this id."""
        with self._engine.begin() as connection:
            return job_rows.trial(connection, trial)

    def trials_numbered(self, job: str, numbers: Sequence[int]) -> tuple[Trial, ...]:
        """These of a job's trials, in this order, without their runs."""
        with self._engine.begin() as connection:
            return searches.numbered(connection, job, numbers)

    def trial_states(self, job: str) -> dict[JobState, int]:
        """How many of its trials are in each state, counted by the database."""
        with self._engine.begin() as connection:
            return searches.states(connection, job)

    def summary(self, job: str) -> JobSummary:
        """The job's line; light enough to ask often."""
        with self._engine.begin() as connection:
            return job_rows.summary(connection, job_rows.find(connection, job))

    def change_job(
        self, job: str, *, labels: Labels | None = None, priority: int | None = None, max_slots: int | None = None
    ) -> Job:
        """Replace what is given. `max_slots` is of all running trials of a search; ConflictError without a search."""
        with self._unfinished.changing(job), self._write() as connection:
            row = job_rows.find(connection, job)
            job_rows.change(connection, row, labels=labels, priority=priority, max_slots=max_slots)
            return job_rows.whole(connection, job_rows.find(connection, job))

    def set_intent(self, job: str, intent: Intent, *, by: str, now: float, kill: bool = False) -> Job:
        """What the user wants now. Idempotent. A finished job can only be stopped, which changes nothing.

        With `kill`, its runs are to be ended at once.
        """
        with self._unfinished.changing(job), self._write() as connection:
            job_rows.set_intent(connection, job_rows.find(connection, job), intent, by=by, now=now, kill=kill)
            return job_rows.whole(connection, job_rows.find(connection, job))

    def unfinished(self) -> tuple[JobNow, ...]:
        """All unfinished jobs, oldest first: what the scheduler decides upon."""
        return self._unfinished.look(self._engine)

    def has_work(self) -> bool:
        """Whether any run is queued or live. Paused jobs are no work."""
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
        """The one door to a run's state. `restart` adds the trial's next run; only with a final state."""
        with self._unfinished.changing_run(run), self._write() as connection:
            run_rows.move(connection, run, state, now=now, stop=stop, message=message, restart=restart)
            return run_rows.record(events.find_run(connection, run))

    def place_run(
        self, run: str, *, directory: str | None = None, handle: str | None = None, num_nodes: int | None = None
    ) -> None:
        """Where the run is: its directory and on how many nodes before it is submitted, the engine's handle after."""
        given = {"directory": directory, "handle": handle, "num_nodes": num_nodes}
        with self._unfinished.changing_run(run), self._write() as connection:
            changes = {name: value for name, value in given.items() if value is not None}
            if not changes:
                events.find_run(connection, run)  # or it is an error all the same
            elif connection.execute(_PLACE, {"of_run": run, **changes}).rowcount == 0:
                raise NotFoundError(f"No run {run!r} on this server.")

    def order_stop(self, run: str, reason: StopReason, *, now: float) -> None:
        """Tell a run to stop. The first reason stays, and so does its time."""
        with self._unfinished.changing_run(run), self._write() as connection:
            run_rows.order_stop(connection, run, reason, now=now)

    def stop_order(self, run: str) -> StopReason | None:
        """The order a supervisor must obey: its run's, or `cancel` when the run is over already."""
        with self._engine.begin() as connection:
            return events.stop_order(events.find_run(connection, run))

    def add_run(self, trial: int, *, now: float) -> Run:
        """The next run of a trial whose last one is over."""
        with self._write() as connection:
            added = run_rows.record(events.find_run(connection, run_rows.add_next(connection, trial, now=now)))
        with self._unfinished.changing_run(added.id):
            return added

    def append_events(self, run: str, batch: EventBatch, *, now: float) -> Appended:
        """Take what is new of a batch: logs, metrics, checkpoints, progress, phase and exit."""
        noted = self._unfinished.changing_run(run) if is_of_use(batch) else nullcontext()
        with noted, self._write() as connection:
            return events.append(connection, run, batch, now=now)

    def log_page(self, job: str, which: LogFilter, *, after: int = 0, limit: int = 10_000) -> LogPage:
        """Blocks after a cursor, until they hold `limit` lines; of a block, the lines that match.

        An empty page means that there is no more for now. With a filter, a block's `line` is the number of its first
        matching line. Memory is bounded by the page, not by the log.
        """
        with self._engine.begin() as connection:
            number = job_rows.number_of(connection, job)
            return log_rows.read_page(connection, number, which, after=after, limit=limit, find=self._matcher.find)

    def log_tail(self, job: str, which: LogFilter, *, lines: int) -> LogPage:
        """The last lines that match."""
        with self._engine.begin() as connection:
            number = job_rows.number_of(connection, job)
            return log_rows.read_tail(connection, number, which, lines=lines, find=self._matcher.find)

    def metric_page(self, job: str, *, after: int = 0, limit: int = 1000) -> MetricPage:
        """What was reported after a cursor, in the order it came; an empty page means no more for now."""
        with self._engine.begin() as connection:
            number = job_rows.number_of(connection, job)
            of_user_code = metrics.c.kind != series.SYSTEM
            query = _of_job(metrics, number).where(metrics.c.number > after, of_user_code).limit(limit)
            rows = connection.execute(query).fetchall()
        return MetricPage(tuple(_metric_point(row) for row in rows), rows[-1].number if rows else after)

    def checkpoints(self, job: str, *, trial: int | None = None) -> tuple[CheckpointRecord, ...]:
        """What its runs have saved, oldest first; of one `trial` with the metrics that were newest at each step."""
        with self._engine.begin() as connection:
            return checkpoint_records(connection, job, trial)

    def search_past(self, job: str) -> SearchPast:
        """All records of a job's search."""
        with self._engine.begin() as connection:
            return searches.past(connection, job)

    def search_news(self, job: str, *, after: int) -> SearchNews:
        """What its searcher has not heard, by the number of the last report it has."""
        with self._engine.begin() as connection:
            return searches.news(connection, job, after=after)

    def search_results(self, job: str, *, after: int) -> SearchResults:
        """What its search has heard of trials since a cursor; all trials, from 0."""
        with self._engine.begin() as connection:
            return searches.results(connection, job, after=after)

    def record_search(self, job: str, batch: SearchBatch, *, now: float) -> None:
        """Keep what a searcher decided, and do it: new trials with their first runs, orders, ends. All or nothing."""
        with self._unfinished.changing(job, trials_changed(batch)), self._write() as connection:
            searches.record(connection, job, batch, now=now)

    def search_prior(self, job: str, metrics: Sequence[str]) -> tuple[Prior, ...]:
        """What came of a finished job's trials, for a search that begins by knowing them."""
        with self._engine.begin() as connection:
            return searches.prior(connection, job, metrics)

    def checkpoint_of(self, trial: int) -> str | None:
        """The newest checkpoint of the trial of this id."""
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
