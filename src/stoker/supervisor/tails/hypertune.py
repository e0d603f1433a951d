"""Read the metric file of cloudml-hypertune, which rewrites it whole at each report, not atomically.

A new HyperTune() starts from an empty file, so the file may hold the newest report alone: look often, and merge.
"""

import json
import math
import os
import time
from collections.abc import Iterable
from typing import Any

from stoker.run_dir import RunDir
from stoker.supervisor.spool import Entry, Position
from stoker.supervisor.tails.reports import clean

_RESERVED = ("timestamp", "trial", "global_step", "checkpoint_path")
_SETTLED_S = 0.5  # a file changed more lately than this may change again with the same size and time
_MAX_BYTES = 4 << 20

Report = tuple[float, int, str]  # when, at which step, what


class HypertuneTail:
    """The metric file of one replica; each report is an event once, however often it is written again."""

    def __init__(self, run_dir: RunDir, *, replica: str, reported: Iterable[dict[str, Any]] = ()) -> None:
        self._path = run_dir.metric_file(replica)
        self._source = run_dir.name_of(self._path)
        self._replica = replica
        self._known = {(event["time"], event["step"], tag) for event in reported for tag in event["values"]}
        self._seen: tuple[int, int, int] | None = None

    def read(self) -> list[Entry]:
        try:
            found = os.stat(self._path)
        except OSError:
            return []
        state = (found.st_ino, found.st_size, found.st_mtime_ns)
        if state == self._seen and time.time() - found.st_mtime > _SETTLED_S:
            return []
        self._seen = state
        try:
            with open(self._path, "rb") as file:
                lines = file.read(_MAX_BYTES).splitlines()
        except OSError:
            return []
        return [entry for line in lines for entry in self._entries(line)]

    def _entries(self, line: bytes) -> list[Entry]:
        try:
            report = json.loads(line)
            when = float(report["timestamp"])
            step = int(float(report.get("global_step") or 0))
            values = {clean(tag): float(value) for tag, value in report.items() if tag not in _RESERVED}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return []  # torn, as it was being written: the next look has it whole
        if not math.isfinite(when) or abs(step) >= 2**63:
            return []
        entries = []
        for tag, value in values.items():
            if (when, step, tag) not in self._known:
                self._known.add((when, step, tag))
                number = value if math.isfinite(value) else str(value).replace("nan", "NaN").replace("inf", "Infinity")
                event = {"replica": self._replica, "group": "hypertune", "step": step, "values": {tag: number}}
                entries.append(Entry({"time": when, "type": "metric", **event}, Position(self._source)))
        return entries
