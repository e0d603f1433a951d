"""How the inputs of a batch prediction are cut into shards: the same ones for every rank and after every restart.

The plan is made once, by rank 0, and kept beside the outputs (OUTPUT/_stoker/plan.json). A shard is a range of bytes
that begins and ends between lines or records, a range of row groups (Parquet), or a whole file (gzip).
"""

import io
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Literal

from stoker.errors import NotFoundError, StokerError, UsageError
from stoker.schema.model import Model
from stoker.storage import Storage, StorageUrl

DataFormat = Literal["text", "csv", "tf-record", "tf-record-gzip", "parquet"]
FOLDER = "_stoker"  # of the output: what stoker itself keeps there
# What a kill may cost, against files to open: at least 16 shards a rank, as far as these allow.
_SHARDS_PER_RANK = 16
_MIN_BYTES, _MAX_BYTES = 256 << 10, 16 << 20
_CHUNK = 1 << 20
_POLL_S = 0.1


class InputFile(Model):
    """A file to predict for, as it was when the plan was made."""

    url: str
    size_bytes: int
    updated: float | None


class Shard(Model):
    """A part of a file. `start` and `end` are bytes, or row groups; `row` is the number of its first line or record,
    from 1, or None where nobody has counted."""

    file: int
    start: int
    end: int
    row: int | None = 1


class BatchPlan(Model):
    """All shards, in the order of the inputs."""

    job: str
    data_format: DataFormat
    files: tuple[InputFile, ...]
    shards: tuple[Shard, ...]

    def name(self, kind: str, number: int) -> str:
        """`prediction.results-00003-of-00012`."""
        return f"prediction.{kind}-{number:05d}-of-{len(self.shards):05d}"


def plan_url(output: str) -> str:
    return f"{output.rstrip('/')}/{FOLDER}/plan.json"


def make_plan(
    storage: Storage, *, job: str, data_format: DataFormat, inputs: Sequence[str], output: str, ranks: int
) -> BatchPlan:
    """The plan kept for this job, or a new one. UsageError if inputs changed, or the output is another job's."""
    files = tuple(listed(storage, inputs, output=output))
    kept = read_plan(storage, output)
    if kept is not None:
        if kept.job != job:
            raise UsageError(f"{output} holds predictions of job {kept.job!r}. Choose another --output-path.")
        if kept.files != files:
            raise UsageError(
                f"The inputs changed since job {job!r} began: {_change(kept.files, files)}. Submit it anew."
            )
        return kept
    target = min(max(sum(file.size_bytes for file in files) // (_SHARDS_PER_RANK * ranks), _MIN_BYTES), _MAX_BYTES)
    shards = tuple(
        shard for number, file in enumerate(files) for shard in _cut(storage, number, file, data_format, target)
    )
    plan = BatchPlan(job=job, data_format=data_format, files=files, shards=shards)
    with storage.open_url(plan_url(output), "wb") as stream:
        stream.write(plan.model_dump_json().encode())
    return plan


def read_plan(storage: Storage, output: str) -> BatchPlan | None:
    try:
        with storage.open_url(plan_url(output)) as stream:
            return BatchPlan.model_validate_json(stream.read())
    except NotFoundError:
        return None


def wait_for_plan(storage: Storage, *, job: str, output: str, should_stop: Callable[[], bool]) -> BatchPlan | None:
    """The plan that rank 0 makes; None if told to stop before it is there. Should rank 0 die, we are told."""
    while not should_stop():
        plan = read_plan(storage, output)
        if plan is not None and plan.job == job:
            return plan
        time.sleep(_POLL_S)
    return None


def listed(storage: Storage, inputs: Sequence[str], *, output: str) -> Iterator[InputFile]:
    """The files that paths, folders and patterns name, in the order given, each once. NotFoundError if one has none.

    An output that lies inside of an input is none.
    """
    seen = set()
    own = f"{str(StorageUrl.parse(output)).rstrip('/')}/"
    for path in inputs:
        for item in sorted(storage.list(path, recursive=True), key=lambda item: item.url):
            if not item.is_folder and item.url not in seen and not item.url.startswith(own):
                seen.add(item.url)
                yield InputFile(url=item.url, size_bytes=item.size_bytes or 0, updated=item.updated)


def is_gzip(url: str, data_format: DataFormat) -> bool:
    return data_format == "tf-record-gzip" or (url.endswith(".gz") and data_format != "parquet")


def _cut(storage: Storage, number: int, file: InputFile, data_format: DataFormat, target: int) -> Iterator[Shard]:
    if data_format == "parquet":
        yield from _row_groups(storage, number, file, target)
        return
    if file.size_bytes <= target or is_gzip(file.url, data_format):
        yield Shard(file=number, start=0, end=file.size_bytes)
        return
    cutter = {"text": _lines, "csv": _quoted_lines, "tf-record": _records}[data_format]
    start = 0
    row: int | None = 1
    with storage.open_url(file.url) as raw:
        stream = io.BufferedReader(raw, _CHUNK) if isinstance(raw, io.RawIOBase) else raw
        for end, next_row in cutter(stream, file.size_bytes, target):
            yield Shard(file=number, start=start, end=end, row=row)
            start, row = end, next_row
    if start < file.size_bytes:
        yield Shard(file=number, start=start, end=file.size_bytes, row=row)


def _lines(stream: BinaryIO, size: int, target: int) -> "Iterator[tuple[int, int | None]]":
    """Where lines end next after each multiple of the target. Not all is read, so lines are not counted."""
    at = target
    while at < size:
        stream.seek(at - 1)  # a cut may fall right behind a newline
        while (chunk := stream.readline(_CHUNK)) and not chunk.endswith(b"\n"):
            pass
        end = stream.tell()
        if end >= size:
            return
        yield end, None
        at = max(end, at) + target


def _quoted_lines(stream: BinaryIO, size: int, target: int) -> "Iterator[tuple[int, int | None]]":
    """The same for CSV, where a newline inside of quotes ends nothing: whether one is, only all before it can tell."""
    at, cut, quotes, row = 0, 0, 0, 1
    while chunk := stream.read(_CHUNK):
        place = last_line_end(chunk, quotes=quotes)
        rows = chunk.count(b"\n")
        if place and at + place - cut >= target and at + place < size:
            cut = at + place
            yield cut, row + rows - chunk.count(b"\n", place)
        row += rows
        quotes += chunk.count(b'"') if b'"' in chunk else 0
        at += len(chunk)


def last_line_end(data: bytes, *, quotes: int = 0) -> int:
    """Behind the last newline that is outside of quotes, with so many quotes before the data; 0 without one."""
    place = data.rfind(b"\n") + 1
    if b'"' not in data:  # to look is much quicker than to count
        return 0 if quotes % 2 else place
    while place and (quotes + data.count(b'"', 0, place)) % 2:
        place = data.rfind(b"\n", 0, place - 1) + 1
    return place


def _records(stream: BinaryIO, size: int, target: int) -> "Iterator[tuple[int, int | None]]":
    """Length, its checksum, the data, its checksum: four fields a record."""
    at, cut, row = 0, 0, 1
    while at + 12 <= size:
        stream.seek(at)
        (length,) = struct.unpack("<Q", stream.read(12)[:8])
        at += 16 + length
        row += 1
        if at >= size:
            return  # the last, or a broken one: the shard's reader says where
        if at - cut >= target:
            cut = at
            yield at, row


def _row_groups(storage: Storage, number: int, file: InputFile, target: int) -> Iterator[Shard]:
    import pyarrow  # noqa: PLC0415 -- an extra
    import pyarrow.parquet  # noqa: PLC0415

    try:
        with storage.open_url(file.url) as stream:
            metadata = pyarrow.parquet.ParquetFile(stream).metadata
    except pyarrow.ArrowException as error:
        raise StokerError(f"{file.url} is no Parquet file, or it is damaged: {error}.") from error
    start, row, size = 0, 1, 0
    first_row = 1
    for group in range(metadata.num_row_groups):
        size += metadata.row_group(group).total_byte_size
        row += metadata.row_group(group).num_rows
        if size >= target or group + 1 == metadata.num_row_groups:
            yield Shard(file=number, start=start, end=group + 1, row=first_row)
            start, size, first_row = group + 1, 0, row


def _change(before: Sequence[InputFile], now: Sequence[InputFile]) -> str:
    known = {file.url: file for file in before}
    new = {file.url: file for file in now}
    for url in {**known, **new}:
        if url not in new:
            return f"{url} is gone"
        if url not in known:
            return f"{url} is new"
        if known[url] != new[url]:
            return f"{url} was {known[url].size_bytes} bytes, and is {new[url].size_bytes}, or was written again"
    return "their order"
