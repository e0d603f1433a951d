"""The REST API as methods; finds the server, or starts one.

    from stoker.client import connect
    client = connect()
    job = client.submit(spec)
    for block in client.follow(job.id):
        print(block.text)

What travels beneath it is in connection.py.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from stoker.client.connection import API as API
from stoker.client.connection import Connection as Connection
from stoker.client.connection import Params
from stoker.client.registry import ModelCalls
from stoker.errors import NotFoundError, ServerError, StokerError, UnreachableError
from stoker.host.home import Home, ServerAddress
from stoker.host.spawn import exit_code, spawn_detached
from stoker.schema.job import JobSpec, Labels
from stoker.schema.record import (
    CheckpointRecord,
    DryRun,
    Health,
    Job,
    JobList,
    JobSummary,
    JobTrial,
    LogBlock,
    LogPage,
    MetricPoint,
    PoolStatus,
    SearchStatus,
    TrialList,
)

if TYPE_CHECKING:
    from stoker.client.views import Views

_START_TIMEOUT_S = 60.0


class Client(ModelCalls):
    """A server's API, for people's scripts and for the command line."""

    def __init__(self, address: ServerAddress, *, home: Home | None = None, timeout_s: float = 60.0) -> None:
        self.address = address
        self._home = home or Home.find()
        self._timeout_s = timeout_s
        self._connection = Connection(address, timeout_s=timeout_s)

    @property
    def views(self) -> "Views":
        """What pages ask for: lines of metrics, trials in columns, log windows, code, the stream of news."""
        from stoker.client.views import Views  # noqa: PLC0415 -- see there

        return Views(self._request, lambda: Connection(self.address, timeout_s=self._timeout_s))

    def health(self) -> Health:
        return Health.model_validate(self._get("/health"))

    def has_package(self, package: str, filename: str | None = None) -> bool:
        try:
            self._connection.request("HEAD", API + _package_path(package, filename))
        except NotFoundError:
            return False
        return True

    def upload_package(self, package: str, file: Path) -> bool:
        """Send a package's archive if the server does not have it; says whether it did."""
        return self._upload(package, None, file)

    def upload_archive(self, archive: str, filename: str, file: Path) -> bool:
        """The same for a prebuilt wheel, sdist or zip."""
        return self._upload(archive, filename, file)

    def submit(self, spec: JobSpec) -> Job:
        """Store the job; it runs when there is room. Submitting the very same spec twice is one job."""
        return Job.model_validate(self._post("/jobs", spec.model_dump(mode="json")))

    def dry_run(self, spec: JobSpec) -> DryRun:
        """What would be started, and nothing stored."""
        return DryRun.model_validate(self._post("/jobs", spec.model_dump(mode="json"), params={"dry_run": True}))

    def jobs(
        self,
        *,
        state: Sequence[str] = (),
        name: str | None = None,
        label: str | None = None,
        pool: str | None = None,
        limit: int = 100,
    ) -> tuple[JobSummary, ...]:
        """Newest first."""
        params: Params = {"state": ",".join(state) or None, "name": name, "label": label, "pool": pool, "limit": limit}
        return JobList.model_validate(self._get("/jobs", params)).jobs

    def job(self, job: str) -> Job:
        return Job.model_validate(self._get(_job_path(job)))

    def cancel(self, job: str) -> Job:
        """Stop it for good; a finished job stays as it is."""
        return Job.model_validate(self._post(_job_path(job, "cancel")))

    def kill(self, job: str) -> Job:
        """End it at once, without time to save anything."""
        return Job.model_validate(self._post(_job_path(job, "kill")))

    def pause(self, job: str) -> Job:
        return Job.model_validate(self._post(_job_path(job, "pause")))

    def resume(self, job: str) -> Job:
        return Job.model_validate(self._post(_job_path(job, "resume")))

    def update(
        self, job: str, *, labels: Labels | None = None, priority: int | None = None, max_slots: int | None = None
    ) -> Job:
        """Replace what is given. `max_slots` is of all running trials of a search together."""
        changes = {"labels": labels, "priority": priority, "max_slots": max_slots}
        given = {name: value for name, value in changes.items() if value is not None}
        return Job.model_validate(self._request("PATCH", _job_path(job), json=given))

    def logs(self, job: str, **filters: str | int | float | None) -> LogPage:
        """A page of log blocks; `filters` are those of GET /jobs/{job}/logs."""
        return LogPage.model_validate(self._get(_job_path(job, "logs"), filters))

    def follow(self, job: str, **filters: str | int | float | None) -> Iterator[LogBlock]:
        """Log blocks as they come, until the job has ended. Survives a server that goes away and comes back."""
        after: int | None = None
        while True:
            params = {**filters, "follow": True}
            if after is not None:
                params.update(after=after, tail=None)
            try:
                for message in Connection(self.address, timeout_s=self._timeout_s).events(
                    API + _job_path(job, "logs"), params=params
                ):
                    if message.event == "end":
                        return
                    block = LogBlock.model_validate_json(message.data)
                    after = block.cursor
                    yield block
            except UnreachableError:
                self._find_server_again()

    def wait(self, job: str, *, timeout_s: float | None = None) -> Job:
        """Block until the job has ended (TimeoutError if it has not by then)."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        delay_s = 0.02
        while not (found := self.job(job)).state.is_final:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"Job {job!r} is still {found.state} after {timeout_s:g} s.")
            time.sleep(delay_s)
            delay_s = min(delay_s * 1.5, 0.5)
        return found

    def metrics(self, job: str) -> tuple[MetricPoint, ...]:
        return tuple(MetricPoint.model_validate(point) for point in self._get(_job_path(job, "metrics")))

    def search(self, job: str, *, best: int = 10) -> SearchStatus:
        """How a job's search stands, with so many of its best trials. NotFoundError if the job has no search."""
        return SearchStatus.model_validate(self._get(_job_path(job, "search"), {"best": best}))

    def trials(
        self, job: str, *, limit: int = 100, sort: str = "number", after: int = 0, trial: int | None = None
    ) -> TrialList:
        """Trials by `sort`: `number`, `newest` first, or `best` first. By number, those `after` one; or one alone."""
        params: Params = {"limit": limit, "sort": sort, "after": after, "trial": trial}
        return TrialList.model_validate(self._get(_job_path(job, "trials"), params))

    def trial(self, trial: int) -> JobTrial:
        """The trial of this id, and the name of its job."""
        return JobTrial.model_validate(self._get(f"/trials/{trial}"))

    def checkpoints(self, job: str, *, trial: int | None = None) -> tuple[CheckpointRecord, ...]:
        """Oldest first, each with the metrics that were newest at its step."""
        found = self._get(_job_path(job, "checkpoints"), {"trial": trial})
        return tuple(CheckpointRecord.model_validate(each) for each in found)

    def pools(self) -> tuple[PoolStatus, ...]:
        return tuple(PoolStatus.model_validate(pool) for pool in self._get("/pools"))

    def shutdown(self) -> None:
        """End the server; runs go on without it."""
        self._connection.request("POST", f"{API}/shutdown")

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _get(self, path: str, params: Params | None = None) -> Any:
        return self._request("GET", path, params=params)

    def _post(self, path: str, json: object = None, params: Params | None = None) -> Any:
        return self._request("POST", path, params=params, json=json)

    def _request(self, method: str, path: str, *, params: Params | None = None, json: object = None) -> Any:
        """Ask once more when the server has gone meanwhile: all of these may be repeated safely."""
        try:
            return self._connection.request(method, API + path, params=params, json=json)
        except UnreachableError:
            self._find_server_again()
            return self._connection.request(method, API + path, params=params, json=json)

    def _upload(self, package: str, filename: str | None, file: Path) -> bool:
        if self.has_package(package, filename):
            return False
        with file.open("rb") as body:
            self._connection.request("PUT", API + _package_path(package, filename), body=body)
        return True

    def _find_server_again(self) -> None:
        """After a lost connection: the same server, or the one that takes over from it."""
        self._connection.close()
        self.address = self._home.server() or self.address if self._is_remote else start_server(self._home)
        self._connection = Connection(self.address, timeout_s=self._timeout_s)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not is_alive(self.address):
            if time.monotonic() > deadline:
                raise ServerError(f"The server at {self.address.url} went away and did not come back in a minute.")
            time.sleep(0.2)

    @property
    def _is_remote(self) -> bool:
        return self.address.pid == 0


def connect(home: Home | None = None, *, start: bool = True, timeout_s: float = 60.0) -> Client:
    """A client of this home's server, which is started when there is none (unless `start` is False)."""
    home = (home or Home.find()).make()
    address = home.server()
    if address is not None and is_alive(address):
        return Client(address, home=home, timeout_s=timeout_s)
    if os.environ.get("STOKER_SERVER") is not None:
        raise ServerError(f"No server answers at STOKER_SERVER={os.environ['STOKER_SERVER']}. Start it, or unset it.")
    if not start:
        raise ServerError(f"No server is running for {home.root}. Start one with `stoker server start`.")
    return Client(start_server(home), home=home, timeout_s=timeout_s)


def is_alive(address: ServerAddress) -> bool:
    connection = Connection(address, timeout_s=10.0)
    try:
        reply = connection.request("GET", f"{API}/health")
    except StokerError:
        return False
    finally:
        connection.close()
    return isinstance(reply, dict) and reply.get("name") == "stoker"


def start_server(home: Home) -> ServerAddress:
    """The address of this home's server, which is started in the background if none answers.

    Several callers may start one at once: a lock lets one live, and all find that one.
    """
    home.make()
    deadline = time.monotonic() + _START_TIMEOUT_S
    pid: int | None = None
    while time.monotonic() < deadline:
        address = home.server()
        if address is not None and is_alive(address):
            return address
        if pid is None:
            pid = _spawn_server(home)
        elif (code := exit_code(pid, if_unknown=0)) is not None:
            if code != 0:
                raise ServerError(f"The server did not start: {_last_line(home.server_log)} See {home.server_log}.")
            pid = None  # another one had the lock; should that be on its way out, the next try succeeds
        time.sleep(0.01)
    raise ServerError(f"The server did not answer within {_START_TIMEOUT_S:g} s. See {home.server_log}.")


def _spawn_server(home: Home) -> int:
    environment = {**os.environ, "STOKER_HOME": str(home.root)}
    # User code may start one; but all that has this run's mark in its environment is ended with the run.
    environment.pop("STOKER_RUN_DIR", None)
    command = [sys.executable, "-P", "-m", "stoker.server"]  # -P: nothing in the current folder is imported
    return spawn_detached(command, environment=environment, log=home.server_log)


def _job_path(job: str, *rest: str) -> str:
    return "/".join(["/jobs", quote(job, safe=""), *rest])


def _package_path(package: str, filename: str | None) -> str:
    return f"/packages/{package}" + (f"/{quote(filename)}" if filename else "")


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "it said nothing."
