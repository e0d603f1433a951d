"""From a directory to a job, one function per step: scan, adapt, legacy environment, pack, environment check, upload.

Every way to submit goes through here: `stoker jobs submit` and `create`, Determined's commands and SDK, and
`stoker.submit`. `local train` shares `prepare_code`, the part before packing.
"""

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.errors import UsageError
from stoker.submission.legacy import add_legacy_environment, is_legacy
from stoker.submission.reading import JobValues
from stoker.submission.shipment import (
    Code,
    Notify,
    Shipment,
    build_shipment,
    check_environment,
    is_local,
    scan_package,
    writable,
)
from stoker.submission.upload import JobRecord, SubmitClient

if TYPE_CHECKING:
    from stoker.host.home import Home
    from stoker.packaging.package.tree import Source

Adapt = Callable[[JobValues, Code, Notify], tuple[JobValues, Code]]


@dataclass(frozen=True, slots=True)
class Submission:
    """A job to submit, and where the code is that it runs."""

    values: JobValues
    source: "Source | None" = None  # None: archives only, or no code at all
    include: tuple[Path, ...] = ()  # files and folders to ship with the source
    packages: tuple[str, ...] = ()  # archives to install, as paths or URLs
    adapt: Adapt | None = None  # what a foreign platform changes about a job and its code
    is_numbered: bool = False  # the name gets the next free number


@dataclass(frozen=True, slots=True)
class Prepared:
    """A submission that is ready to upload."""

    shipment: Shipment
    code: Code | None


def submit_job(
    submission: Submission,
    *,
    home: "Home",
    notify: Notify,
    before_upload: Callable[[Prepared], None] | None = None,
) -> JobRecord:
    """Store the job; UsageError before anything is stored or uploaded if it cannot run."""
    with _prepared(submission, home=home, notify=notify) as prepared, contextlib.ExitStack() as stack:
        if (job_dir := prepared.shipment.values.get("job_dir")) and is_local(job_dir):
            stack.enter_context(writable(Path(job_dir)))
        if before_upload is not None:
            before_upload(prepared)
        client = stack.enter_context(SubmitClient(home))
        submit = client.submit_numbered if submission.is_numbered else client.submit
        job = submit(prepared.shipment)
    for note in job.get("notes", ()):
        notify(note)
    return job


def dry_run(submission: Submission, *, home: "Home", notify: Notify) -> Any:
    """What would be started, as JSON; nothing is uploaded or stored."""
    with _prepared(submission, home=home, notify=notify) as prepared, SubmitClient(home) as client:
        return client.dry_run(prepared.shipment)


def prepare_code(submission: Submission, *, home: "Home", notify: Notify) -> tuple[JobValues, Code | None]:
    """Scan the source, and adapt the job to it. The fields are those to run with."""
    if submission.source is None:
        return submission.values, None
    code = scan_package(submission.source, submission.values, home=home, include=submission.include)
    for note in code.notes:
        notify(note)
    values = submission.values
    if submission.adapt is not None:
        values, code = submission.adapt(values, code, notify)
    if is_legacy(values):
        values = add_legacy_environment(values, code, home=home, notify=notify)
    return values, code


def default_name(directory: Path) -> str:
    """The directory's name, made to fit the rule for jobs, with room for a number."""
    word = re.sub(r"\W+", "_", directory.resolve().name, flags=re.ASCII).strip("_") or "job"
    return (word if word[0].isalpha() else f"job_{word}")[:100]


def with_absolute_job_dir(values: JobValues) -> JobValues:
    """A job runs elsewhere: a local path must mean the same from there."""
    job_dir = values.get("job_dir")
    if not job_dir or not is_local(job_dir):
        return values
    return {**values, "job_dir": os.path.abspath(os.path.expanduser(job_dir))}


@contextlib.contextmanager
def _prepared(submission: Submission, *, home: "Home", notify: Notify) -> Iterator[Prepared]:
    """The submission packed in a folder of its own, which is removed at the end."""
    values, code = prepare_code(submission, home=home, notify=notify)
    _check_has_something_to_run(values)
    with tempfile.TemporaryDirectory(prefix="stoker-") as folder:
        shipment = build_shipment(values, code, submission.packages, folder=Path(folder), notify=notify)
        is_scanned_for_it = _runtime(values) == _runtime(submission.values)
        check_environment(shipment, home=home, choice=code.choice if code and is_scanned_for_it else None)
        yield Prepared(shipment, code)


def _check_has_something_to_run(values: JobValues) -> None:
    if values.get("kind", "train") == "train" and not values.get("module"):
        raise UsageError("Missing --module-name, for example --module-name trainer.task.")


def _runtime(values: JobValues) -> tuple[str | None, str | None]:
    environment = values.get("environment", {})
    return environment.get("runtime"), environment.get("python")
