"""Read what user code reports through its context (events.jsonl), believing none of it."""

import json
import math
import os
import time
from collections.abc import Callable
from typing import Any

from stoker.run_dir import RunDir
from stoker.supervisor.spool import Entry, Position

_BLOCK_BYTES = 1 << 20
_LINE_BYTES = 4 << 20  # longer than this is no event of ours
_INT64 = 2**63
_START = b'{"type":'
_NOT_AN_EVENT = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


class ReportTail:
    """Whole lines of events.jsonl as events; lines that are none become one line of the supervisor's log."""

    def __init__(self, run_dir: RunDir, *, position: Position | None = None) -> None:
        self._path = run_dir.events
        self._source = run_dir.name_of(self._path)
        self._file = -1
        self._offset = position.offset if position else 0  # behind the last whole line
        self._partial = b""
        self.has_more = False

    def read(self) -> list[Entry]:
        if self._file < 0 and not self._open():
            return []
        data = os.pread(self._file, _BLOCK_BYTES, self._offset + len(self._partial))
        self.has_more = len(data) == _BLOCK_BYTES
        if not data:
            return []
        data = self._partial + data
        cut = data.rfind(b"\n") + 1
        if cut == 0 and len(data) > _LINE_BYTES:
            cut = len(data)
        self._partial = data[cut:]
        return self._entries(data[:cut])

    def finish(self) -> list[Entry]:
        """What is left when no more will come: a last line may lack its end."""
        left, self._partial = self._partial, b""
        return self._entries(left)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> bool:
        try:
            self._file = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        return True

    def _entries(self, data: bytes) -> list[Entry]:
        entries: list[Entry] = []
        bad: list[str] = []
        for line in data.splitlines(keepends=True):
            self._offset += len(line)
            if not line.strip():
                continue
            try:
                entries.append(Entry(_event(json.loads(line)), Position(self._source, self._offset)))
            except _NOT_AN_EVENT as error:
                bad.append(f"{line[:200].decode('utf-8', 'replace').rstrip()!r}: {_why(error)}")
                entries += self._after_torn(line)
        if bad:
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            text = f"events.jsonl has a line that is no event and is left out: {bad[0]}{more}"
            entries.append(Entry(supervisor_log(text, level="WARNING"), Position(self._source, self._offset)))
        return entries

    def _after_torn(self, line: bytes) -> list[Entry]:
        """The event glued to one that a full disk cut off, if that is what the line is."""
        start = line.rfind(_START)
        if start <= 0:
            return []
        try:
            return [Entry(_event(json.loads(line[start:])), Position(self._source, self._offset))]
        except _NOT_AN_EVENT:
            return []


def supervisor_log(text: str, *, level: str | None = None) -> dict[str, Any]:
    """A log event of stoker's own words."""
    text = text.rstrip("\n")
    count = text.count("\n") + 1
    levels = {} if level is None else dict.fromkeys(range(count), level)
    event = {"time": time.time(), "type": "log", "replica": "supervisor", "stream": "stdout", "line": 0}
    return {**event, "count": count, "levels": levels, "text": clean(text)}


def clean(text: str) -> str:
    """Without half characters (lone surrogates), which JSON can write and nobody can read."""
    return text.encode("utf-8", "replace").decode()


def _event(line: Any) -> dict[str, Any]:
    if not isinstance(line, dict):
        raise TypeError("not a JSON object")
    kind = line.get("type")
    make = _KINDS.get(kind) if isinstance(kind, str) else None
    if make is None:
        raise ValueError(f"unknown type {kind!r}")
    return {"time": _finite(line.get("time", time.time())), "type": kind, **make(line)}


def _metric(line: dict[str, Any]) -> dict[str, Any]:
    values = {clean(_text(name)): _value(value) for name, value in _table(line["values"]).items()}
    group, replica = clean(_text(line.get("group", "training"))), clean(_text(line.get("replica", "chief-0")))
    return {"replica": replica, "group": group, "step": _whole(line["step"]), "values": values}


def _checkpoint(line: dict[str, Any]) -> dict[str, Any]:
    metadata = {clean(_text(name)): _plain(value) for name, value in _table(line.get("metadata", {})).items()}
    found = {"step": _whole(line["step"]), "path": clean(_text(line["path"]))}
    return {**found, "size_bytes": _whole(line.get("size_bytes", 0)), "metadata": metadata}


def _model(line: dict[str, Any]) -> dict[str, Any]:
    found = {field: clean(_text(line[field])) for field in ("name", "path")}
    metrics = {clean(_text(name)): _value(value) for name, value in _table(line.get("metrics", {})).items()}
    framework = clean(_text(line.get("framework", "")))
    return {**found, "framework": framework, "metrics": metrics, "size_bytes": _whole(line.get("size_bytes", 0))}


def _progress(line: dict[str, Any]) -> dict[str, Any]:
    return {"fraction": min(max(_finite(line["fraction"]), 0.0), 1.0)}


def _invalid_hp(line: dict[str, Any]) -> dict[str, Any]:
    return {"reason": clean(_text(line.get("reason", "")))}


_KINDS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "metric": _metric,
    "checkpoint": _checkpoint,
    "model": _model,
    "progress": _progress,
    "invalid_hp": _invalid_hp,
}


def _whole(value: Any) -> int:
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _finite(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _value(value: Any) -> float | str:
    """A metric's value; NaN and the infinities travel by name."""
    if isinstance(value, str) and value in _NOT_FINITE:
        return value
    if type(value) not in (int, float):
        raise TypeError(f"{value!r} is not a number")
    number = float(value)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return value


def _plain(value: Any) -> str | int | float | bool | None:
    """A checkpoint's metadata is single values; others are kept as JSON."""
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, bool):
        return value
    if type(value) is int and -_INT64 <= value < _INT64:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    return json.dumps(value)


def _why(error: Exception) -> str:
    return f"no field {error}" if isinstance(error, KeyError) else str(error)
