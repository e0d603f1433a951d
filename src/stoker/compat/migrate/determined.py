"""Directories written for Determined: its experiment files as they are read here, and what its code uses."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from stoker.compat.dialects import determined
from stoker.compat.dialects.document import is_determined
from stoker.compat.eras.uses import entries_of
from stoker.compat.migrate.directory import Directory
from stoker.compat.migrate.findings import Finding, Verdict
from stoker.compat.migrate.hooks import NAME, read_hook
from stoker.compat.mounts import outside
from stoker.errors import ConfigError, StokerError
from stoker.submission.reading import JobValues, overlay

# Of the fields that an experiment file has, those that nobody else's has: any model's settings have hyperparameters.
_MARKS = frozenset(("entrypoint", "entrypoint_script", "searcher"))
_OF_TASKS = frozenset(("idle_timeout", "notebook_idle_type", "work_dir"))


def evidence(directory: Directory) -> Iterator[str]:
    for path in experiment_files(directory):
        yield f"{path} is an experiment file"
    use = directory.first_use("determined")
    if use is not None:
        yield f"{use.where} imports determined"
    for name in (".detignore", NAME):
        if name in directory.paths or (directory.root / name).exists():
            yield f"there is a {name}"


def experiment_files(directory: Directory) -> list[str]:
    """Those of one trial first: they are what people try first."""
    is_of_it = directory.first_use("determined") is not None
    found = [
        path
        for path, document in directory.documents.items()
        if is_determined(document) and (is_of_it or not _MARKS.isdisjoint(document)) and not _is_of_task(document)
    ]
    return sorted(found, key=lambda path: (not _is_single(directory.documents[path]), path))


def job_of(directory: Directory) -> tuple[JobValues, list[Finding], list[str]]:
    """The first file's job, what became of each, and the commands that submit them."""
    values: JobValues = {}
    findings: list[Finding] = []
    commands: list[str] = []
    for path in experiment_files(directory):
        document = directory.documents[path]
        try:
            reading = determined.read(outside(document).document, source=path)
        except ConfigError as error:
            problems = "; ".join(error.problems) or str(error)
            findings.append(Finding(Verdict.CANNOT, "experiment", problems, path))
            continue
        except StokerError as error:
            findings.append(Finding(Verdict.CANNOT, "experiment", str(error), path))
            continue
        commands.append(_command(path, document, _folder(directory, path, reading.values)))
        detail = f"as `{commands[-1]}`"
        if reading.ignored:
            detail += f"; of no meaning without containers: {', '.join(reading.ignored)}"
        findings.append(Finding(Verdict.RUNS, "experiment", detail, path))
        values = values or reading.values
    findings += [
        Finding(
            Verdict.RUNS, "settings", f"of a task: `stoker notebook start --config-file {path}`, or shell, or cmd", path
        )
        for path, document in directory.documents.items()
        if _is_of_task(document)
    ]
    hook = read_hook(directory.root)
    if hook.requirements and values:
        values = overlay(values, {"environment": {"requirements": list(hook.requirements)}})
    if hook.system:
        detail = f"the machines that run the job must have {', '.join(hook.system)}, of apt"
        findings.append(Finding(Verdict.NOTE, "system", detail, NAME))
    return values, findings, commands


def _command(path: str, document: dict[str, Any], folder: str) -> str:
    verb = "experiment create" if "searcher" in document else "job run"
    return f"stoker {verb} {path} {folder}"


def _folder(directory: Directory, path: str, values: JobValues) -> str:
    """Of the code: the nearest above the file that has what it runs; its own, where none has."""
    scripts = [word.removeprefix("./") for word in " ".join(values["command"]).split() if word.endswith(".sh")]
    files = [*entries_of(values), *scripts]
    own = PurePosixPath(path).parent
    for folder in (own, *own.parents):
        if any((directory.root / folder / file).is_file() for file in files):
            return str(folder)
    return str(own)


def _is_of_task(document: dict[str, Any]) -> bool:
    """Whether it is of a notebook, a shell or a command: it has their fields, and nothing to run."""
    runs = any(document.get(name) for name in (*_MARKS, "hyperparameters"))
    return not runs and not _OF_TASKS.isdisjoint(document)


def _is_single(document: dict[str, Any]) -> bool:
    searcher = document.get("searcher")
    return isinstance(searcher, dict) and searcher.get("name") == "single"
