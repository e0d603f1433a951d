"""What pages ask for, as methods of `Client.views`: whatever they show, a script can have.

Apart from client.py because of the models behind it, which a submit need not wait for.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

from stoker.client.connection import API, Connection, Params
from stoker.schema.record import JobList, PoolHistory
from stoker.schema.views import (
    Commands,
    JobDiff,
    JobEnvironment,
    LogWindow,
    PackageFiles,
    PackageText,
    Prediction,
    Rungs,
    Series,
    SeriesNews,
    TrialColumns,
)

Query = str | int | float | None


class News(NamedTuple):
    """A message of the stream: docs/server.md says what each event's data is."""

    event: str
    data: Any
    id: str


class Views:
    """Answers are in schema/views.py; queries that are passed on are those of the routes in docs/server.md."""

    def __init__(self, request: Callable[..., Any], connect: Callable[[], Connection]) -> None:
        """`request` is the client's; `connect` makes a connection for what takes longer than an answer."""
        self._request, self._connect = request, connect

    def jobs(self, **query: Query) -> JobList:
        """A page of jobs, and how many there are of each state with `counts=True`: `q`, `state`, `sort`, `cursor`."""
        return JobList.model_validate(self._get("/jobs", query))

    def series(self, job: str, *, trials: Sequence[int] = (), **query: Query) -> Series:
        """Lines of metrics (`group`, `names`), as many `points` as a chart can draw; without trials, of the best."""
        return Series.model_validate(self._get(_path(job, "series"), {"trial": _joined(trials), **query}))

    def series_since(self, job: str, after: int, *, trials: Sequence[int] = ()) -> SeriesNews:
        """All that was reported since a cursor."""
        return SeriesNews.model_validate(self._get(_path(job, "series"), {"trial": _joined(trials), "after": after}))

    def trial_columns(self, job: str, *, fields: Sequence[str] = ()) -> TrialColumns:
        """All trials: a list for each of their columns, hyperparameters and metrics."""
        return TrialColumns.model_validate(self._get(_path(job, "trials", "columns"), {"fields": _joined(fields)}))

    def rungs(self, job: str) -> Rungs:
        """Who was stopped at which rung of a search with successive halving."""
        return Rungs.model_validate(self._get(_path(job, "rungs")))

    def log_lines(self, job: str, *, begin: int = 0, count: int = 500, **query: Query) -> LogWindow:
        """A window of the lines that match (`text`, `regex`, `level`, `trial`, `replica`); a negative `begin`: the end.

        With `at`, from the first match at or after that line.
        """
        return LogWindow.model_validate(
            self._get(_path(job, "logs", "lines"), {"from": begin, "count": count, **query})
        )

    def download_log(self, job: str, to: BinaryIO, **query: Query) -> None:
        """The lines that match, as text; `stamps=True` puts time and replica before each."""
        self._download(_path(job, "logs", "download"), to, query)

    def package_files(self, job: str) -> PackageFiles:
        return PackageFiles.model_validate(self._get(_path(job, "package", "files")))

    def package_file(self, job: str, path: str) -> PackageText:
        """One of them, if it is text and not too long."""
        return PackageText.model_validate(self._get(f"{_path(job, 'package', 'files')}/{quote(path)}"))

    def download_package(self, package: str, to: BinaryIO, *, filename: str | None = None) -> None:
        """A package's archive by its hash; a prebuilt one by its file's name, too."""
        self._download(f"/packages/{quote(package)}" + (f"/{quote(filename)}" if filename else ""), to, {})

    def diff(self, job: str, other: str) -> JobDiff:
        """What differs from one job to another: their configuration, and their files."""
        return JobDiff.model_validate(self._get(_path(job, "diff", quote(other, safe=""))))

    def environment(self, job: str) -> JobEnvironment:
        return JobEnvironment.model_validate(self._get(_path(job, "environment")))

    def commands(self, job: str) -> Commands:
        """Lines for a terminal: to run it again, to go on from it, to look at it."""
        return Commands.model_validate(self._get(_path(job, "commands")))

    def pool_history(self, *, hours: float = 24.0) -> tuple[PoolHistory, ...]:
        """What of each pool was in use, since the server started."""
        return tuple(PoolHistory.model_validate(pool) for pool in self._get("/pools/history", {"hours": hours}))

    def predict(
        self, model: str, instances: Sequence[Any], *, url: str, version: str | None = None, token: str | None = None
    ) -> Prediction:
        """Ask a `stoker serve` at `url` on the server's machine."""
        question = {"url": url, "instances": list(instances), "version": version, "token": token}
        return Prediction.model_validate(
            self._request("POST", f"/models/{quote(model, safe='')}/predict", json=question)
        )

    def stream(self, *topics: str) -> Iterator[News]:
        """News of topics (`jobs`, `pools`, `job:NAME`, `trial:NAME:N`, `logs:NAME`) until the server goes away."""
        return self._events("/stream", {"topics": ",".join(topics)})

    def job_events(self) -> Iterator[News]:
        """Each job's line as it changes."""
        return self._events("/events", {})

    def _get(self, path: str, params: Params | None = None) -> Any:
        return self._request("GET", path, params=params)

    def _events(self, path: str, params: Params) -> Iterator[News]:
        for message in self._connect().events(API + path, params=params):
            yield News(message.event, json.loads(message.data), message.id)

    def _download(self, path: str, to: BinaryIO, params: Params) -> None:
        connection = self._connect()
        try:
            connection.download(API + path, to, params=params)
        finally:
            connection.close()


def _path(job: str, *rest: str) -> str:
    return "/".join(["/jobs", quote(job, safe=""), *rest])


def _joined(words: Sequence[object]) -> str | None:
    return ",".join(map(str, words)) or None
