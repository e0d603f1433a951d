"""A submitted job in Python: its state, log, metrics and best trial, and a small table of it in notebooks."""

import html
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stoker.errors import WaitTimeoutError
from stoker.submission.upload import JobRecord

if TYPE_CHECKING:
    from stoker.client.client import Client
    from stoker.host.home import Home
    from stoker.schema.record import Job, LogBlock, MetricPoint, Trial
    from stoker.schema.state import JobState


class JobHandle:
    """One job on the server. Every method asks the server anew; errors are StokerErrors."""

    def __init__(self, client: "Client", job: str, *, notes: tuple[str, ...] = ()) -> None:
        self._client = client
        self.id = job
        self.notes = notes  # what the submission had to report, a line each

    @property
    def state(self) -> "JobState":
        return self._job().state

    @property
    def reason(self) -> str:
        """Why it waits, or why it failed; empty otherwise."""
        return self._job().reason

    @property
    def url(self) -> str:
        """Its page. `stoker ui` prints the address that signs a browser in."""
        return f"{self._client.address.url}/jobs/{self.id}"

    def wait(self, timeout_s: float | None = None) -> "JobState":
        """Block until the job has ended and return its state; a failed job does not raise.

        WaitTimeoutError if it is still there after `timeout_s`; the job continues.
        """
        try:
            with self._connected() as client:
                return client.wait(self.id, timeout_s=timeout_s).state
        except TimeoutError as error:
            raise WaitTimeoutError(f"{error} It continues; cancel it with `cancel()`.") from error

    def logs(self, follow: bool = False) -> Iterator[str]:
        """The lines of its log, oldest first; with `follow`, those to come as well, until the job has ended."""
        with self._connected() as client:
            blocks = client.follow(self.id) if follow else _all_blocks(client, self.id)
            for block in blocks:
                yield from block.text.splitlines()

    def metrics(self) -> "tuple[MetricPoint, ...]":
        """Every report, in order: `trial`, `group`, `step`, `time` and the `values` by name."""
        with self._connected() as client:
            return client.metrics(self.id)

    def best(self) -> "Trial | None":
        """The best trial of a search so far, None before there is one; of a job without a search, its only trial."""
        with self._connected() as client:
            job = client.job(self.id)
            trials = job.trials if job.spec.search is None else client.search(self.id, best=1).best
        return trials[0] if trials else None

    def cancel(self) -> None:
        """Stop it for good, with time to save a checkpoint; a finished job stays unchanged."""
        with self._connected() as client:
            client.cancel(self.id)

    def __repr__(self) -> str:
        job = self._job()
        return f"<stoker job {self.id}: {job.state}{f' ({job.reason})' if job.reason else ''}>"

    def _repr_html_(self) -> str:
        job = self._job()
        metrics = ", ".join(f"{name} {value:g}" for name, value in _last_metrics(job).items())
        rows = {"job": job.id, "state": job.state.value, "duration": _duration(job), "metrics": metrics}
        rows |= {"reason": job.reason, "notes": " ".join(self.notes)}
        shown = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{html.escape(text)}</td></tr>"
            for name, text in rows.items()
            if text
        )
        return f"<table>{shown}</table><a href='{html.escape(self.url)}' target='_blank'>Open its page</a>"

    def _job(self) -> "Job":
        with self._connected() as client:
            return client.job(self.id)

    @contextmanager
    def _connected(self) -> "Iterator[Client]":
        """The client, whose connection is not kept between calls: a notebook may hold a handle for days."""
        try:
            yield self._client
        finally:
            self._client.close()


def handle_of(job: JobRecord, *, home: "Home", notes: tuple[str, ...] = ()) -> JobHandle:
    """The handle of a job that was just submitted."""
    from stoker.client.client import connect

    return JobHandle(connect(home), job["id"], notes=notes)


def _all_blocks(client: "Client", job: str) -> "Iterator[LogBlock]":
    page = client.logs(job)
    while page.blocks:
        yield from page.blocks
        page = client.logs(job, after=page.cursor)


def _last_metrics(job: "Job") -> dict[str, float]:
    if job.search is not None and job.search.best is not None:
        return {f"best {job.search.metric}": job.search.best}
    return job.metrics


def _duration(job: "Job") -> str:
    from stoker.terminal.output import duration

    return duration((job.ended or time.time()) - job.created)
