"""`stoker.submit`: a directory or a script as a job, from Python."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from stoker.errors import UsageError
from stoker.host.home import Home
from stoker.packaging.package.tree import source_of_directory
from stoker.submission import job_file
from stoker.submission.handle import JobHandle, handle_of
from stoker.submission.pipeline import Submission, default_name, submit_job, with_absolute_job_dir
from stoker.submission.reading import Document, JobOptions, overlay

_JOB_FILE = "stoker.yaml"
_MODULE = re.compile(r"[A-Za-z_][\w-]*")


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
    directory, document = _read_target(path, module=module, options=options)
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


def _read_target(path: Path, *, module: str | None, options: JobOptions) -> tuple[Path, Document]:
    """The directory to ship, and the fields that the target itself gives."""
    if path.is_file() and path.suffix in (".yaml", ".yml"):
        return path.parent, job_file.load(path)
    if path.is_file():
        if module is not None:
            raise UsageError(f"{path} is a file, and module={module!r} names another. Give the directory, or only one.")
        return path.parent, _run_script(path)
    if not path.is_dir():
        raise UsageError(f"No such file or directory: {path}. stoker.submit takes a script or a directory.")
    if module is not None or "command" in options:
        return path, {}
    if (path / _JOB_FILE).is_file():
        return path, job_file.load(path / _JOB_FILE)
    raise UsageError(
        f"{path} has no {_JOB_FILE} that says what to run. Give module='trainer.task', or the path of a script."
    )


def _run_script(path: Path) -> Document:
    """As a module where its name allows: a search's hyperparameters then follow its arguments as flags."""
    if path.suffix == ".py" and _MODULE.fullmatch(path.stem):
        return {"module": path.stem}
    if path.suffix == ".py":
        return {"command": ["python", path.name]}
    return {"command": ["sh", path.name] if path.suffix == ".sh" else [f"./{path.name}"]}
