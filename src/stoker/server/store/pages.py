"""What pages show: lines of metrics, trials in columns, log lines by number, lists of jobs."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Engine

from stoker.schema.state import JobState
from stoker.server.store import columns, lines, listing, searches, series
from stoker.server.store import jobs as job_rows
from stoker.server.store.dialect import Writer
from stoker.server.store.failures import transactions
from stoker.server.store.matching import Matcher
from stoker.server.store.values import (
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


@transactions
class PageStore:
    """Reads alone, each one moment of the store; an unknown job is NotFoundError."""

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
        """The number of the newest report of any of its trials."""
        with self._engine.begin() as connection:
            return series.last(connection, job_rows.number_of(connection, job))

    def trial_rows(self, job: str, numbers: Sequence[int] | None = None) -> list[TrialRow]:
        """These trials, or all, by number."""
        with self._engine.begin() as connection:
            return columns.rows(connection, job, numbers)

    def trial_rows_but(self, job: str, known: set[int]) -> list[TrialRow]:
        """All trials but these, by number."""
        with self._engine.begin() as connection:
            return columns.rows_but(connection, job, known)

    def last_steps(self, job: str, numbers: Sequence[int]) -> dict[int, int]:
        """How far these trials have come: the highest step that each has reported."""
        with self._engine.begin() as connection:
            return columns.last_steps(connection, job, numbers)

    def last_decision(self, job: str) -> int:
        """The number of the newest record of its search: the cursor of `Store.search_results`."""
        with self._engine.begin() as connection:
            return searches.last_decision(connection, job)

    def best_trials(self, job: str, count: int) -> list[int]:
        """Numbers of the best trials, or of the newest where nothing is ranked."""
        with self._engine.begin() as connection:
            return columns.best(connection, job, count)

    def past_runs(self, *, since: float, limit: int) -> list[PastRun]:
        """The newest runs of jobs that have not ended, or not before this."""
        with self._engine.begin() as connection:
            return listing.past_runs(connection, since=since, limit=limit)

    def find_jobs(self, which: JobQuery) -> JobPage:
        with self._engine.begin() as connection:
            return listing.find(connection, which)

    def job_counts(self, which: JobQuery) -> dict[JobState, int]:
        """How many jobs that match, whatever their state and the page, are in each state."""
        with self._engine.begin() as connection:
            return listing.counts(connection, which)

    def log_columns(self, job: str, *, after: int) -> BlockColumns:
        with self._engine.begin() as connection:
            return lines.columns(connection, job_rows.number_of(connection, job), after=after)

    def log_runs(self, job: str, trial: int) -> frozenset[int]:
        """Keys of the runs of a trial."""
        with self._engine.begin() as connection:
            return lines.runs_of(connection, job_rows.number_of(connection, job), trial)

    def log_levels(self, job: str, *, after: int, limit: int) -> list[tuple[int, Mapping[int, str]]]:
        """Blocks after a cursor that have lines of another level than INFO: number, and those lines by offset."""
        with self._engine.begin() as connection:
            return lines.levels(connection, job_rows.number_of(connection, job), after=after, limit=limit)

    def log_blocks(self, numbers: Sequence[int]) -> list[Block]:
        with self._engine.begin() as connection:
            return lines.blocks(connection, numbers)

    def find_lines(self, pattern: str, lines: Sequence[str]) -> list[int]:
        """Which lines a regular expression is found in; UsageError if that takes too long."""
        return self._matcher.find(pattern, lines)

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
