"""Submit what a Determined file describes, and get its code back: shared by the commands and the SDK."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.client.connection import API, Connection
from stoker.compat.search_config import notify_of, read_search
from stoker.compat.startup_hook import apply_startup_hook
from stoker.errors import NotFoundError, UsageError
from stoker.formats.archive import unpack
from stoker.packaging.package.tree import source_of_directory
from stoker.submission.pipeline import Submission, default_name, submit_job
from stoker.submission.reading import Document, JobValues, Reading, origin_of, overlay
from stoker.submission.upload import JobRecord

if TYPE_CHECKING:
    from stoker.client.client import Client
    from stoker.host.home import Home
    from stoker.schema.record import Job
    from stoker.submission.shipment import Notify


def submission_of(
    reading: Reading, directory: Path, *, include: Sequence[Path] = (), name: str | None = None
) -> Submission:
    """The job of a file, with the directory's code; its name gets the next free number."""
    values: JobValues = {**reading.values, "name": name or reading.values.get("name") or default_name(directory)}
    return Submission(
        values,
        source_of_directory(directory),
        include=tuple(include),
        packages=reading.packages,
        adapt=apply_startup_hook,
        is_numbered=True,
    )


def create_experiment(
    document: Document,
    directory: Path,
    *,
    source: str,
    home: "Home",
    notify: "Notify",
    include: Sequence[Path] = (),
    is_test: bool = False,
) -> JobRecord:
    """Submit a search in any dialect; `source` is the file's name in errors."""
    reading = read_search(document, source=source)
    notify_of(reading, notify)
    if is_test:
        reading = replace(reading, values=as_test(reading.values))
    return submit_job(submission_of(reading, directory, include=include), home=home, notify=notify)


def as_test(values: JobValues) -> JobValues:
    """One trial, never started again, and no longer than it takes to see whether it works at all."""
    search = {**values["search"], "stopping": {"name": "none"}, "max_trials": 1}
    if search["sampler"]["name"] == "single":
        search = dict(values["search"])
    else:
        search["sampler"] = {"name": "random"}
    brief: JobValues = {"restarts": {"max_restarts": 0}}
    if origin_of(values):
        brief["origin"] = {"trainer": {"test_mode": True}}
    return {**overlay(values, brief), "search": search}


def download_code(client: "Client", job: "Job", target: Path) -> None:
    """Unpack the code that was submitted; UsageError rather than overwrite a file."""
    if job.spec.package is None:
        raise NotFoundError(f"{job.id} was submitted without code of its own.")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".stoker-", dir=target) as folder:
        file, unpacked = Path(folder, "package.tar.gz"), Path(folder, "package")
        with file.open("wb") as archive_file, closing(Connection(client.address)) as connection:
            connection.download(f"{API}/packages/{job.spec.package}", archive_file)
        unpack(file, unpacked, hash=job.spec.package)
        _move_into(unpacked, target)


def _move_into(source: Path, target: Path) -> None:
    """Every file of a folder to the same place under another; UsageError before anything is moved if one is taken."""
    files = [path for path in source.rglob("*") if path.is_symlink() or not path.is_dir()]
    for file in files:
        if os.path.lexists(target / file.relative_to(source)):
            raise UsageError(f"{target / file.relative_to(source)} exists; nothing was overwritten. Choose another -o.")
    for file in files:
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        file.rename(place)
