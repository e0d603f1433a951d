"""Give code of another time what it had, before anything is stored, with a line for each thing given.

What `compat/supply` found is kept under HOME and used again while the code, what it requires and the runtime are
unchanged, because finding it out costs a submit 40 ms of imports.
"""

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from stoker.atomic import replace_file
from stoker.errors import UsageError
from stoker.submission.reading import Values, origin_of, overlay
from stoker.terminal.output import say

if TYPE_CHECKING:
    from pathlib import Path

    from stoker.compat.eras.supply import Program
    from stoker.host.home import Home
    from stoker.submission.shipment import Code

_KEPT = {"python", "requirements", "variables", "notes"}
_FORMAT = 10  # of what is kept; raised when the rules change


def with_old_times(values: Values, code: "Code", *, home: "Home") -> Values:
    """The job with the requirements and the Python that its code needs and does not name."""
    own = [*code.project.requirements, *values.get("environment", {}).get("requirements", ())]
    files = _sources(code)
    memory = home.projects / f"{_key(values, own, files, home)}.supply.json"
    found = _remembered(memory)
    if found is None:
        from stoker.compat.eras.supply import Program

        program = Program(files, tuple(own), values, aside=code.project.aside)
        found = _find_out(program, memory, home=home)
    for note in found["notes"]:
        say(note)
    if found["python"]:
        values = overlay(values, {"environment": {"python": found["python"]}})
    if given := dict(found["variables"]):
        if "PYTHONPATH" in given:
            own_path = values.get("environment", {}).get("variables", {}).get("PYTHONPATH", "")
            given["PYTHONPATH"] = ":".join(filter(None, [own_path, given["PYTHONPATH"]]))
        values = overlay(values, {"environment": {"variables": given}})
    if not found["requirements"]:
        return values
    own = list(values.get("environment", {}).get("requirements", ()))
    return overlay(values, {"environment": {"requirements": [*own, *found["requirements"]]}})


def _find_out(program: "Program", memory: "Path", *, home: "Home") -> Values:
    from stoker.compat.eras.supply import supply_for

    supply = supply_for(program, home=home, here=not _is_elsewhere())
    if supply.refusal:
        raise UsageError(supply.refusal)
    found: Values = {
        "python": supply.python,
        "requirements": list(supply.requirements),
        "variables": dict(supply.variables),
        "notes": list(supply.notes),
    }
    if supply.is_settled:
        memory.parent.mkdir(parents=True, exist_ok=True)
        replace_file(memory, json.dumps(found), mode=0o600)
    return found


def _remembered(memory: "Path") -> Values | None:
    try:
        kept: Any = json.loads(memory.read_bytes())
    except (OSError, ValueError):
        return None
    return kept if isinstance(kept, dict) and kept.keys() == _KEPT else None


def _key(values: Values, own: list[str], files: dict[str, bytes], home: "Home") -> str:
    """Of all that the answer depends on, whatever the directory is called."""
    from stoker.packaging.environment.fingerprint import fingerprint
    from stoker.packaging.environment.runtimes import choose

    environment = values.get("environment", {})
    asked = {name: environment.get(name) for name in ("runtime", "python", "prefer_runtime")}
    runtime = choose(home, runtime=asked["runtime"], python=asked["python"]).runtime
    said = [values.get(name) for name in ("module", "command", "resources")]
    said.append(origin_of(values).get("image"))
    who = [_FORMAT, _is_elsewhere(), said, own, asked, fingerprint(runtime)]
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
