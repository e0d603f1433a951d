"""The pages' part of the store: opens transactions; what is asked in them is in the files beside."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Engine

from stoker.schema.record import CheckpointRecord
from stoker.schema.state import JobState
from stoker.server.store import columns, lines, listing, searches, series
from stoker.server.store import jobs as job_rows
from stoker.server.store.dialect import Writer
from stoker.server.store.matching import Matcher
from stoker.server.store.page_store import (
    Block,
    BlockColumns,
    JobPage,
    JobQuery,
    PastRun,
    SeriesAnswer,
    SeriesFilter,
    SeriesNews,
    TrialRow,
)
from stoker.server.store.postgres import patient_methods


@patient_methods
class SqlPageStore:
    """See `page_store.PageStore` for the contract."""

    def __init__(self, engine: Engine, write: Writer, matcher: Matcher) -> None:
        self._engine, self._write, self._matcher = engine, write, matcher

    def series(self, job: str, which: SeriesFilter) -> SeriesAnswer:
        self._pack(job, which.trials)
        with self._engine.begin() as connection:
            return series.read(connection, job_rows.number_of(connection, job), which)

    def series_news(
        self, job: str, *, after: int, trials: Sequence[int] | None = None, limit: int = 5000
    ) -> SeriesNews:
        with self._engine.begin() as connection:
            number = job_rows.number_of(connection, job)
            return series.news(connection, number, after=after, chosen=trials, limit=limit)

    def last_report(self, job: str) -> int:
        with self._engine.begin() as connection:
            return series.last(connection, job_rows.number_of(connection, job))

    def trial_rows(self, job: str, numbers: Sequence[int] | None = None) -> list[TrialRow]:
        with self._engine.begin() as connection:
            return columns.rows(connection, job, numbers)

    def trial_rows_but(self, job: str, known: set[int]) -> list[TrialRow]:
        with self._engine.begin() as connection:
            return columns.rows_but(connection, job, known)

    def last_steps(self, job: str, numbers: Sequence[int]) -> dict[int, int]:
        with self._engine.begin() as connection:
            return columns.last_steps(connection, job, numbers)

    def last_decision(self, job: str) -> int:
        with self._engine.begin() as connection:
            return searches.last_decision(connection, job)

    def best_trials(self, job: str, count: int) -> list[int]:
        with self._engine.begin() as connection:
            return columns.best(connection, job, count)

    def past_runs(self, *, since: float, limit: int) -> list[PastRun]:
        with self._engine.begin() as connection:
            return listing.past_runs(connection, since=since, limit=limit)

    def find_jobs(self, which: JobQuery) -> JobPage:
        with self._engine.begin() as connection:
            return listing.find(connection, which)

    def job_counts(self, which: JobQuery) -> dict[JobState, int]:
        with self._engine.begin() as connection:
            return listing.counts(connection, which)

    def log_columns(self, job: str, *, after: int) -> BlockColumns:
        with self._engine.begin() as connection:
            return lines.columns(connection, job_rows.number_of(connection, job), after=after)

    def log_runs(self, job: str, trial: int) -> frozenset[int]:
        with self._engine.begin() as connection:
            return lines.runs_of(connection, job_rows.number_of(connection, job), trial)

    def log_levels(self, job: str, *, after: int, limit: int) -> list[tuple[int, Mapping[int, str]]]:
        with self._engine.begin() as connection:
            return lines.levels(connection, job_rows.number_of(connection, job), after=after, limit=limit)

    def log_blocks(self, numbers: Sequence[int]) -> list[Block]:
        with self._engine.begin() as connection:
            return lines.blocks(connection, numbers)

    def find_lines(self, pattern: str, lines: Sequence[str]) -> list[int]:
        return self._matcher.find(pattern, lines)

    def checkpoints(self, job: str, trial: int | None) -> tuple[CheckpointRecord, ...]:
        with self._engine.begin() as connection:
            return columns.checkpoint_records(connection, job, trial)

    def _pack(self, job: str, trials: Sequence[int]) -> None:
        """Reports from before there were blocks are packed when they are first looked at."""
        with self._engine.begin() as connection:
            waiting = series.overdue(connection, job_rows.number_of(connection, job), trials)
        for trial in waiting:
            packed = 1
            while packed:
                with self._write() as connection:
                    series.lock(connection, trial)
                    packed = series.pack(connection, trial)
