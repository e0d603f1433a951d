"""Keep a run's checkpoints and models at a storage URL, and fetch the checkpoint it goes on from.

For nodes with disks of their own: what one of them has saved another could not read when it is lost.
"""

import json
import sys
from pathlib import Path
from typing import Any

from stoker.errors import StokerError
from stoker.home import Home
from stoker.supervisor.plan import Plan


class Artifacts:
    """What is told of a checkpoint or a model is told when it is there, whole; until then nothing else is read."""

    def __init__(self, plan: Plan, run_dir: Path, *, home: Home) -> None:
        assert plan.artifacts is not None
        self._base = f"{plan.artifacts.rstrip('/')}/{plan.job}/{plan.trial}/{plan.attempt}"
        self._run_dir, self._home = run_dir, home

    def keep(self, event: dict[str, Any]) -> dict[str, Any]:
        """The event with the URL in place of the path. As it was when it cannot be kept: better there than nowhere."""
        path = Path(event["path"])
        folder = "checkpoints" if event["type"] == "checkpoint" else "models"
        url = f"{self._base}/{folder}/{path.name}"
        try:
            _copy(str(path), url, home=self._home)
        except (StokerError, OSError) as error:
            sys.stderr.write(f"{path} could not be kept at {url}: {error}\n")
            return event
        return {**event, "path": url}


def fetch_checkpoint(plan: Plan, run_dir: Path, *, home: Home) -> None:
    """Have the checkpoint it goes on from on this machine, and say in run.json where. StokerError if it is not."""
    found = plan.latest_checkpoint
    if found is None:
        return
    if "://" not in found:
        if Path(found).is_absolute() and not Path(found).exists():
            raise StokerError(
                f"The checkpoint {found} is not on this machine. Nodes with disks of their own need a place for"
                " checkpoints that all of them reach: artifacts = URL under the pool, or its home on a shared disk."
            )
        return
    to = run_dir / "fetched" / found.rstrip("/").rpartition("/")[2]
    to.parent.mkdir(exist_ok=True)
    _copy(found, str(to), home=home)
    path = run_dir / "run.json"
    partial = path.with_name(".run.json")
    partial.write_text(json.dumps({**json.loads(path.read_text()), "latest_checkpoint": str(to)}))
    partial.replace(path)


def _copy(source: str, target: str, *, home: Home) -> None:
    """A file, or a folder with all that is in it."""
    from stoker.storage import Storage  # noqa: PLC0415 -- few runs need it

    Storage(home.root).copy(source, target, recursive=True)
