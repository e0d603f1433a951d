"""`stoker.submit`: a directory or a script as a job, from Python."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from stoker.host.home import Home
from stoker.packaging.package.tree import source_of_directory
from stoker.submission import job_file
from stoker.submission.handle import JobHandle, handle_of
from stoker.submission.pipeline import Submission, default_name, submit_job, with_absolute_job_dir
from stoker.submission.reading import JobOptions, overlay
from stoker.submission.target import read_target


def submit(
    target: str | os.PathLike[str],
    *,
    args: Sequence[object] = (),
    name: str | None = None,
    pool: str | None = None,
    module: str | None = None,
    wait: bool = False,
    **options: Unpack[JobOptions],
) -> JobHandle:
    """Submit a job and return its handle, which waits, follows the log, reads metrics and cancels.

    `target` is a script (its directory ships), a directory with a `module` or a `command` to run in it, or a directory
    with a stoker.yaml (or that file), whose fields the arguments replace. `options` are the other fields of
    stoker.yaml: environment, resources, search, hparams, data, labels, job_dir, limits, restarts, priority, seed.
    Without a `name` the job is called like the script or the directory, with a number.

    StokerError, before anything is stored, if the job cannot run; with `wait`, returns when it has ended, however.
    """
    path = Path(target).expanduser()
    directory, document = read_target(path, module=module, has_command="command" in options)
    given = {"pool": pool, "module": module, "args": [str(word) for word in args] or None, "name": name, **options}
    document = overlay(document, {field: value for field, value in given.items() if value is not None})
    values = with_absolute_job_dir(job_file.read(document, source="stoker.submit").values)
    is_numbered = "name" not in values
    values.setdefault("name", default_name(path.with_suffix("") if path.is_file() else path))
    notes: list[str] = []
    home = Home.find().make()
    submission = Submission(values, source_of_directory(directory), is_numbered=is_numbered)
    job = submit_job(submission, home=home, notify=notes.append)
    handle = handle_of(job, home=home, notes=tuple(notes))
    if wait:
        handle.wait()
    return handle
