"""`stoker migrate`: what a directory written for AI Platform or Determined comes to here, or elsewhere."""

import json
import sys
from typing import TYPE_CHECKING, Any

from stoker.errors import ConflictError, UsageError
from stoker.terminal.output import paint, say, table
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from pathlib import Path

    from stoker.compat.migrate.findings import Assessment

_COLOURS = {"runs": "green", "needs": "yellow", "cannot": "red"}
_EXAMPLE = """
stoker migrate ./old-package
stoker migrate ./old-package --write
stoker migrate ./old-package --to slurm > job.sbatch
"""


def build(parser: Parser) -> None:
    parser.be_command(migrate, example=_EXAMPLE)
    parser.add_argument("directory", metavar="DIR", help="a directory written for AI Platform or Determined")
    parser.add_argument("--platform", choices=["aiplatform", "determined"], help="which, when it looks like both")
    parser.add_argument("--write", action="store_true", help="write DIR/stoker.yaml; refuses to overwrite one")
    parser.add_argument("--to", choices=["vertex", "ray", "slurm"], help="print the job file for that system instead")
    parser.add_argument("--offline", action="store_true", help="do not ask the package index about requirements")
    parser.add_argument("--json", action="store_true", help="print JSON")


def migrate(arguments: Arguments) -> int:
    from pathlib import Path

    from stoker.compat.migrate.assess import assess
    from stoker.host.home import Home
    from stoker.origin import Platform

    path = Path(arguments.directory)
    found = assess(
        path,
        home=Home.find().make(),
        platform=Platform(arguments.platform) if arguments.platform else None,
        look_up=not arguments.offline,
    )
    if arguments.to:
        return _leave(found, arguments.to, path)
    if arguments.json:
        print(json.dumps(_plain(found), indent=2))
    else:
        _show(found)
    if arguments.write:
        _write(found, path)
    return 0 if found.can_run else 1


def _show(found: "Assessment") -> None:
    print(f"{found.directory} was written for {found.platform.in_words}:")
    for reason in found.evidence[:5]:
        print(f"  {reason}")
    print()
    rows = [[str(f.verdict), f.what, f.where or "-", f.detail] for f in found.findings]
    print(table(["", "WHAT", "WHERE", "DETAIL"], rows, colours=[_COLOURS.get(f.verdict) for f in found.findings]))
    sys.stdout.flush()
    if found.can_run:
        say(paint("It runs as it is.", "green", stream=sys.stderr))
        for command in found.commands[:4]:
            say(f"  {command}")
    else:
        say("Some of it does not run here; see the lines that say `needs` or `cannot`.")


def _write(found: "Assessment", path: "Path") -> None:
    import yaml

    file = path / found.folder / "stoker.yaml"
    if file.exists():
        raise ConflictError(f"{file} is there already, and is left as it is. Move it away, or leave out --write.")
    if not found.values:
        raise UsageError(f"{path}: nothing to write, for nothing of it can run.")
    file.write_text(yaml.safe_dump(found.values, sort_keys=False, allow_unicode=True))
    say(f"Wrote {file}.")


def _leave(found: "Assessment", system: str, path: "Path") -> int:
    from stoker.compat.migrate.leaving import SYSTEMS

    if not found.values.get("module") and not found.values.get("command"):
        raise UsageError(f"{path}: nothing in it says what to run, so there is no job file to write.")
    print(SYSTEMS[system](found.values, path.resolve().name.replace(" ", "-")), end="")
    return 0


def _plain(found: "Assessment") -> dict[str, Any]:
    findings = [{"verdict": f.verdict, "what": f.what, "where": f.where, "detail": f.detail} for f in found.findings]
    return {
        "directory": found.directory,
        "folder": found.folder,
        "platform": found.platform,
        "can_run": found.can_run,
        "evidence": list(found.evidence),
        "findings": findings,
        "stoker_yaml": found.values,
        "commands": list(found.commands),
    }
