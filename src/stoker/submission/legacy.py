"""Give legacy code the Python and libraries it was written for, before anything is stored.

The only place where a submission asks for legacy support. Jobs from AI Platform's or Determined's commands and files,
whose fields have an `origin`, get it, and jobs with an as-of date; native ones (a stoker.yaml, `stoker.submit`) never
do. The answer is kept under HOME and used again while the code, its requirements and the runtime are unchanged, because
finding it costs a submit 40 ms of imports.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from stoker.atomic import replace_file
from stoker.errors import UsageError
from stoker.submission.reading import EnvironmentValues, JobValues, origin_of, overlay

if TYPE_CHECKING:
    from pathlib import Path

    from stoker.compat.eras.supply import Program
    from stoker.host.home import Home
    from stoker.submission.shipment import Code, Notify

_FORMAT = 11  # of the stored answer; raised when the rules change


class _Answer(TypedDict):
    """What legacy support adds to a job."""

    python: str | None
    as_of: str | None
    requirements: list[str]
    variables: dict[str, str]
    notes: list[str]


def is_legacy(values: JobValues) -> bool:
    """Whether a job was written for another platform (its commands, files or images), or names an as-of date."""
    environment: Mapping[str, Any] = values.get("environment", {})
    return bool(origin_of(values) or environment.get("as_of"))


def add_legacy_environment(values: JobValues, code: "Code", *, home: "Home", notify: "Notify") -> JobValues:
    """The job with the requirements and the Python that its code needs and does not name. UsageError if none does."""
    environment: EnvironmentValues = values.get("environment", {})
    own = [*code.project.requirements, *environment.get("requirements", ())]
    files = _sources(code)
    memory = home.projects / f"{_key(values, own, files, code)}.supply.json"
    answer = _remembered(memory)
    if answer is None:
        from stoker.compat.eras.supply import Program

        answer = _ask(Program(files, tuple(own), values, root=code.tree.source.root), memory, home=home)
    for note in answer["notes"]:
        notify(note)
    added = _added(environment, answer)
    return overlay(values, {"environment": added}) if added else values


def _added(environment: EnvironmentValues, answer: _Answer) -> EnvironmentValues:
    added: EnvironmentValues = {}
    if answer["python"]:
        added["python"] = answer["python"]
    if answer["as_of"] or "as_of" in environment:  # `auto` and `today` become a date, or none
        added["as_of"] = answer["as_of"]
    if variables := dict(answer["variables"]):
        if "PYTHONPATH" in variables:
            own_path = environment.get("variables", {}).get("PYTHONPATH", "")
            variables["PYTHONPATH"] = ":".join(filter(None, [own_path, variables["PYTHONPATH"]]))
        added["variables"] = variables
    if answer["requirements"]:
        added["requirements"] = [*environment.get("requirements", ()), *answer["requirements"]]
    return added


def _ask(program: "Program", memory: "Path", *, home: "Home") -> _Answer:
    from stoker.compat.eras.supply import supply_for

    supply = supply_for(program, home=home, here=not _is_elsewhere())
    if supply.refusal:
        raise UsageError(supply.refusal)
    answer: _Answer = {
        "python": supply.python,
        "as_of": supply.as_of,
        "requirements": list(supply.requirements),
        "variables": dict(supply.variables),
        "notes": list(supply.notes),
    }
    if supply.is_settled:
        memory.parent.mkdir(parents=True, exist_ok=True)
        replace_file(memory, json.dumps(answer), mode=0o600)
    return answer


def _remembered(memory: "Path") -> _Answer | None:
    try:
        kept: Any = json.loads(memory.read_bytes())
    except (OSError, ValueError):
        return None
    is_answer = isinstance(kept, dict) and kept.keys() == _Answer.__annotations__.keys()
    answer: _Answer | None = kept if is_answer else None
    return answer


def _key(values: JobValues, own: list[str], files: dict[str, bytes], code: "Code") -> str:
    """A hash of everything the answer depends on, whatever the directory is called."""
    from stoker.packaging.environment.fingerprint import fingerprint

    environment = values.get("environment", {})
    asked = [environment.get("runtime"), environment.get("python"), environment.get("prefer_runtime")]
    asked.append(environment.get("as_of"))
    job = [values.get("module"), values.get("command"), values.get("resources"), origin_of(values).get("image")]
    who = [_FORMAT, _is_elsewhere(), job, own, asked, fingerprint(code.choice.runtime)]
    digest = hashlib.sha256(json.dumps(who).encode())
    for path, source in files.items():
        digest.update(f"\n{path} {len(source)}\n".encode())
        digest.update(source)
    return digest.hexdigest()[:20]


def _is_elsewhere() -> bool:
    """Another machine's server: its Pythons are its own, and not known here."""
    return bool(os.environ.get("STOKER_SERVER"))


def _sources(code: "Code") -> dict[str, bytes]:
    entries = [entry for entry in code.tree.entries if entry.path.endswith(".py") and not entry.is_dir]
    return {entry.path: entry.file.read_bytes() for entry in entries if entry.link is None}
