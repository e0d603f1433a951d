"""What is noted of a run in the server's own run directory, because a cluster cannot be asked for it again."""

import json

from stoker.atomic import replace_file
from stoker.run_dir import RunDir


def read_started(run_dir: RunDir) -> list[dict[str, str]]:
    """Where its nodes were started, or were about to be; none when that had not begun."""
    try:
        found: list[dict[str, str]] = json.loads(run_dir.places.read_text())
        return found
    except (OSError, ValueError):
        return []


def note_started(run_dir: RunDir, places: list[dict[str, str]]) -> None:
    replace_file(run_dir.places, json.dumps(places))


def is_waiting(run_dir: RunDir) -> bool:
    """Whether it was submitted, has not begun and is to begin, whatever the cluster knows of it."""
    return run_dir.launch.exists() and not run_dir.places.exists() and not is_cancelled(run_dir)


def is_cancelled(run_dir: RunDir) -> bool:
    """Whether it was cancelled, be it that the cluster could not be told."""
    return run_dir.cancelled.exists()


def note_cancelled(run_dir: RunDir) -> bool:
    """For a bridge that finds it when its cluster answers again; False if that cannot be noted."""
    try:
        run_dir.cancelled.touch()
    except OSError:
        return False
    return True
