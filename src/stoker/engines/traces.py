"""What a run's directory tells of its supervisor and of what that started, and the end of all of it.

Standard library only, for the agents of a cluster's nodes.
"""

import json
import os
from collections.abc import Sequence

from stoker.host import processes
from stoker.host.home import end_of
from stoker.host.processes import ProcessId
from stoker.run_dir import RunDir

_LOG_BYTES = 2000
_LAST_EVENT_BYTES = 200_000  # a long traceback is in it


def living(run_dir: RunDir) -> list[ProcessId]:
    """Its supervisors, also one that has just been started, by their command line."""
    return processes.with_words([b"stoker.supervisor", os.fsencode(run_dir)])


def noted(run_dir: RunDir, who: str) -> list[ProcessId]:
    """The "supervisor" or the "replicas" of processes.json; none when it was killed before it had written that."""
    try:
        found = json.loads(run_dir.processes.read_text())[who]
        listed = [found] if who == "supervisor" else found.values()
        return [ProcessId(int(process["pid"]), int(process["start"])) for process in listed]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def has_ended(run_dir: RunDir) -> bool:
    """Whether its supervisor came to the end: the last event it wrote says how the run ended."""
    return '"type":"exited"' in end_of(run_dir.spool, size_bytes=_LAST_EVENT_BYTES).rpartition('{"seq":')[2]


def last_words(run_dir: RunDir) -> str:
    """What its supervisor said last of itself."""
    return end_of(run_dir.supervisor_log, size_bytes=_LOG_BYTES).strip()


def end_run(run_dir: RunDir, supervisors: Sequence[ProcessId]) -> bool:
    """End these and all that they started, at once; False if something cannot be ended."""
    # The supervisor goes first, so that it neither starts more nor tells of the ends that we cause.
    started = [process for one in supervisors if one.is_alive() for process in processes.descendants(one.pid)]
    processes.end_all(lambda: supervisors)
    leaders = [*noted(run_dir, "replicas"), *started]
    return processes.end_all(lambda: [*started, *processes.in_groups(leaders), *processes.of_run(run_dir)])
