"""What people point at when they want something to run: a script, a directory, a stoker.yaml."""

import re
from pathlib import Path

from stoker.errors import UsageError
from stoker.submission import job_file
from stoker.submission.reading import Document

_JOB_FILE = "stoker.yaml"
_MODULE = re.compile(r"[A-Za-z_][\w-]*")


def read_target(path: Path, *, module: str | None = None, has_command: bool = False) -> tuple[Path, Document]:
    """The directory to ship, and the fields of a job that the target itself gives. UsageError if it is none."""
    if path.is_file() and path.suffix in (".yaml", ".yml"):
        return path.parent, job_file.load(path)
    if path.is_file():
        if module is not None:
            raise UsageError(f"{path} is a file, and module={module!r} names another. Give the directory, or only one.")
        return path.parent, _run_script(path)
    if not path.is_dir():
        raise UsageError(f"No such file or directory: {path}. Expected a script, a directory or a stoker.yaml.")
    if module is not None or has_command:
        return path, {}
    if (path / _JOB_FILE).is_file():
        return path, job_file.load(path / _JOB_FILE)
    raise UsageError(
        f"{path} has no {_JOB_FILE} that says what to run. Name a script in it, or a module, like trainer.task."
    )


def _run_script(path: Path) -> Document:
    """As a module where its name allows: a search's hyperparameters then follow its arguments as flags."""
    if path.suffix == ".py" and _MODULE.fullmatch(path.stem):
        return {"module": path.stem}
    if path.suffix == ".py":
        return {"command": ["python", path.name]}
    return {"command": ["sh", path.name] if path.suffix == ".sh" else [f"./{path.name}"]}
