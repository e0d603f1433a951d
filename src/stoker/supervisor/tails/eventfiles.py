"""Read a metric from TensorBoard's event files, AI Platform's documented way for code that reports in no other.

The files are TFRecords (a length and a payload, each with its CRC32C) of Event messages; of these protobufs the few
fields that a scalar summary is made of are read here, so that no TensorFlow is needed.
"""

import math
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stoker.formats import protobuf as wire
from stoker.formats.tfrecord import HEAD_BYTES, TAIL_BYTES, is_whole, length_in
from stoker.supervisor.spool import Entry, Position
from stoker.supervisor.tails.reports import clean, supervisor_log

_PAUSE_S = 0.5  # between two looks
_BLOCK_BYTES = 1 << 20
_MAX_RECORD_BYTES = 1 << 20  # a larger one holds images or graphs, and no scalar
_MAX_DEPTH = 4
_MAX_OTHERS = 20  # tags that are told in the place of one that never came

Positions = Callable[[str], Position]


def event_folder(job_dir: str | None, variables: Mapping[str, str]) -> list[Path]:
    """Where user code's event files may be, on this machine: under its job-dir, or where a variable says."""
    given = [place for place in (job_dir, variables.get("AIP_TENSORBOARD_LOG_DIR")) if place]
    return [path for place in given if (path := _local(place)) is not None]


class EventFileTail:
    """The values of one tag in all event files below some folders, as they grow; each is an event once."""

    def __init__(
        self, folders: list[Path], *, tag: str, replica: str, positions: Positions, since: float = 0.0
    ) -> None:
        """Files that have not changed `since` are an earlier run's."""
        self._folders, self._tag, self._replica = folders, tag, replica
        self._positions, self._since = positions, since
        self._offsets: dict[Path, int] = {}
        self._bad: set[Path] = set()
        self._looked = -math.inf
        self._others: dict[str, tuple[int, float]] | None = {}  # tags, the newest of each; None: the wanted one came

    def read(self, *, at_once: bool = False) -> list[Entry]:
        if not at_once and time.monotonic() - self._looked < _PAUSE_S:
            return []
        self._looked = time.monotonic()
        return [entry for path in self._files() for entry in self._new(path)]

    def instead(self) -> list[Entry]:
        """The newest values of what else is there, when the tag never came: its name may have been meant otherwise."""
        told = list((self._others or {}).items())[:_MAX_OTHERS]
        return [Entry(self._metric({tag: value}, step=step, when=time.time())) for tag, (step, value) in told]

    def _files(self) -> list[Path]:
        found = {path for folder in self._folders for path in _event_files(folder)}
        return sorted(path for path in found if path not in self._bad and _modified(path) >= self._since)

    def _new(self, path: Path) -> Iterator[Entry]:
        source = f"eventfile/{path}"
        if path not in self._offsets:
            self._offsets[path] = self._positions(source).offset
            if self._offsets[path]:  # an earlier supervisor found the tag there
                self._others = None
        offset = self._offsets[path]
        try:
            with path.open("rb") as file:
                for end, record in _records(file, offset):
                    self._offsets[path] = end
                    if record is not None and (event := self._event(record)) is not None:
                        yield Entry(event, Position(source, end))
        except (ValueError, IndexError, struct.error) as error:
            self._bad.add(path)
            text = f"{path} is no event file that can be read, from byte {self._offsets[path]} on: {error}"
            yield Entry(supervisor_log(text, level="WARNING"))
        except OSError:
            return  # it was moved or removed meanwhile

    def _event(self, record: bytes) -> dict[str, Any] | None:
        when, step, summary = 0.0, 0, b""
        for number, value in _fields(record):
            match number, value:
                case 1, bytes():
                    (when,) = struct.unpack("<d", value)
                case 2, int():
                    step = wire.signed(value)
                case 5, bytes():
                    summary = value
        scalars = dict(_scalars(summary))
        if self._tag not in scalars:
            if self._others is not None:
                self._others |= {tag: (step, value) for tag, value in scalars.items()}
            return None
        if not math.isfinite(when):
            return None
        self._others = None
        return self._metric({self._tag: scalars[self._tag]}, step=step, when=when)

    def _metric(self, values: Mapping[str, float], *, step: int, when: float) -> dict[str, Any]:
        told = {clean(tag): value if math.isfinite(value) else _named(value) for tag, value in values.items()}
        where = {"replica": self._replica, "group": "tensorboard", "step": step}
        return {"time": when, "type": "metric", **where, "values": told}


def _local(place: str) -> Path | None:
    if "://" not in place:
        return Path(place)
    from stoker.host.home import Home  # noqa: PLC0415 -- few runs need it, and every run waits for what is imported
    from stoker.storage import Storage  # noqa: PLC0415

    found: Path | None = Storage(Home.find().root).local_path(place)
    return found


def _event_files(folder: Path) -> Iterator[Path]:
    depth = len(folder.parts)
    for here, below, files in os.walk(folder):
        if len(Path(here).parts) - depth >= _MAX_DEPTH:
            below.clear()
        yield from (Path(here, name) for name in files if ".tfevents." in name)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return -math.inf


def _records(file: Any, offset: int) -> Iterator[tuple[int, bytes | None]]:
    """Whole records from an offset: where each ends, and what it holds (None: too large). ValueError: it is damaged."""
    while True:
        file.seek(offset)
        data = file.read(_BLOCK_BYTES + _MAX_RECORD_BYTES)
        at = 0
        while len(data) - at >= HEAD_BYTES:
            length = length_in(data[at : at + HEAD_BYTES])
            if length is None:
                raise ValueError(f"the length at byte {offset + at} does not match its checksum")
            end = at + HEAD_BYTES + length + TAIL_BYTES
            if length > _MAX_RECORD_BYTES:
                if os.fstat(file.fileno()).st_size < offset + end:
                    return  # it is still being written
                yield offset + end, None
                at = end
                break
            if end > len(data):
                break
            payload = data[at + HEAD_BYTES : end - TAIL_BYTES]
            if not is_whole(payload, data[end - TAIL_BYTES : end]):
                raise ValueError(f"the record at byte {offset + at} does not match its checksum")
            yield offset + end, payload
            at = end
        if at == 0:
            return
        offset += at


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """A protobuf message's fields: numbers of varints, bytes of all else."""
    return ((number, value) for number, _, value in wire.fields(message))


def _scalars(summary: bytes) -> Iterator[tuple[str, float]]:
    """Tags and values: `simple_value`s, and tensors of one number, as TensorFlow 2 writes them."""
    for number, value in _fields(summary):
        if number != 1 or not isinstance(value, bytes):
            continue
        parts = dict(_fields(value))
        tag, simple, tensor = parts.get(1), parts.get(2), parts.get(8)
        if not isinstance(tag, bytes):
            continue
        found = struct.unpack("<f", simple)[0] if isinstance(simple, bytes) else None
        if found is None and isinstance(tensor, bytes):
            found = _one_number(dict(_fields(tensor)))
        if found is not None:
            yield tag.decode("utf-8", "replace"), float(found)


# By TensorProto's dtype: how the number is packed in `tensor_content`, and the field that else holds it.
_TYPES = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10), 19: ("<e", 13)}


def _one_number(tensor: Mapping[int, int | bytes]) -> float | None:
    """The value of a TensorProto that is a scalar."""
    packing, field = _TYPES.get(int(tensor.get(1, 0)), ("", 0))
    content, given = tensor.get(4), tensor.get(field)
    if not packing:
        return None
    if isinstance(content, bytes) and len(content) == struct.calcsize(packing):
        return float(struct.unpack(packing, content)[0])
    if isinstance(given, bytes) and field in (5, 6) and len(given) == struct.calcsize(packing):
        return float(struct.unpack(packing, given)[0])
    if isinstance(given, bytes) and field in (7, 10) and given:  # packed varints: one of them
        value, end = wire.read_varint(given, 0)
        return float(wire.signed(value)) if end == len(given) else None
    return float(given) if isinstance(given, int) and field in (7, 10) else None


def _named(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
