"""Read a shard as it streams by: blocks of lines, records, or tables, each row with its place in the file."""

import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from stoker.errors import StokerError
from stoker.formats.tfrecord import HEAD_BYTES, TAIL_BYTES, is_whole, length_in
from stoker.predict.batch.plan import BatchPlan, Shard, is_gzip, last_line_end
from stoker.storage import Storage

if TYPE_CHECKING:
    import pyarrow

_CHUNK = 4 << 20  # a model of tables is asked once for each: it has costs that do not grow with the rows
_MAX_LINE = 64 << 20
_TABLE_ROWS = 8192


@dataclass(frozen=True, slots=True)
class Row:
    """A line or record, as bytes (or, of a table, as values), and where it is; `problem` if it cannot be one."""

    row: int | None  # line or record of the file, from 1
    offset: int | None  # byte of the file (unpacked, if it is gzip) where it begins
    data: Any = b""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that follow each other: as text (`data`) to be split, as a table, or one by one."""

    row: int | None
    offset: int | None
    data: bytes = b""
    table: "pyarrow.Table | None" = None
    rows: tuple[Row, ...] = ()


def read_blocks(storage: Storage, plan: BatchPlan, shard: Shard) -> Iterator[Block]:
    """All of a shard, a few megabytes at a time."""
    url = plan.files[shard.file].url
    if plan.data_format == "parquet":
        yield from _tables(storage, url, shard)
        return
    with storage.open_url(url) as raw:
        packed = is_gzip(url, plan.data_format)
        stream: BinaryIO = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw
        end = None if packed else shard.end
        stream.seek(shard.start)
        try:
            if plan.data_format in ("text", "csv"):
                yield from _text(stream, shard, end=end, quoted=plan.data_format == "csv")
            else:
                yield from _records(stream, shard, end=end)
        except (EOFError, gzip.BadGzipFile, OSError) as error:
            if not packed:
                raise StokerError(f"{url}: {error}.") from error
            yield Block(None, None, rows=(Row(None, None, problem=f"the gzip file is damaged: {error}"),))


def read_header(storage: Storage, url: str) -> bytes:
    """The first line of a CSV file, with its line's end."""
    with storage.open_url(url) as raw:
        stream = gzip.GzipFile(fileobj=raw) if url.endswith(".gz") else io.BufferedReader(cast(Any, raw), _CHUNK)
        line = b""
        while (more := stream.readline(_MAX_LINE)) and len(line) < _MAX_LINE:
            line += more
            if line.count(b'"') % 2 == 0:
                break
        return line


def split_lines(block: Block, *, quoted: bool) -> Iterator[Row]:
    """The lines of a block, without their ends. A newline inside of quotes ends none."""
    row, at = block.row, block.offset or 0
    lines = block.data.splitlines(keepends=True) if b"\r" not in block.data else _split(block.data)
    held, held_row, held_at = b"", row, at
    for line in lines:
        held += line
        at += len(line)
        row = None if row is None else row + 1
        if quoted and held.count(b'"') % 2:
            continue
        yield Row(held_row, held_at, held.rstrip(b"\r\n"))
        held, held_row, held_at = b"", row, at
    if held:
        yield Row(held_row, held_at, held, problem="a quote is opened and never closed")


def _split(data: bytes) -> list[bytes]:
    """bytes.splitlines cuts at a lone carriage return too, which is no line's end here."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _text(stream: BinaryIO, shard: Shard, *, end: int | None, quoted: bool) -> Iterator[Block]:
    at, row = shard.start, shard.row
    held = b""
    while more := stream.read(_CHUNK if end is None else min(_CHUNK, end - at - len(held))):
        held += more
        cut = _last_line_end(held, quoted=quoted)
        if cut == 0 and len(held) > _MAX_LINE:
            raise StokerError(f"A line of more than {_MAX_LINE >> 20} MB begins at byte {at}: that is no line of text.")
        if cut:
            yield Block(row, at, held[:cut])
            row = None if row is None else row + held.count(b"\n", 0, cut)
            at, held = at + cut, held[cut:]
    if held:
        yield Block(row, at, held)


def _last_line_end(data: bytes, *, quoted: bool) -> int:
    place = last_line_end(data) if quoted else data.rfind(b"\n") + 1
    if place == 0 and len(data) > _MAX_LINE // 4:  # a quote that nobody closed; its lines are told apart all the same
        place = data.rfind(b"\n") + 1
    return place


def _records(stream: BinaryIO, shard: Shard, *, end: int | None) -> Iterator[Block]:
    rows: list[Row] = []
    size = 0
    for row in _each_record(stream, shard, end=end):
        rows.append(row)
        size += len(row.data)
        if size >= _CHUNK or len(rows) >= _TABLE_ROWS:
            yield Block(rows[0].row, rows[0].offset, rows=tuple(rows))
            rows, size = [], 0
    if rows:
        yield Block(rows[0].row, rows[0].offset, rows=tuple(rows))


def _each_record(stream: BinaryIO, shard: Shard, *, end: int | None) -> Iterator[Row]:
    """Length, checksum, data, checksum. A wrong length leaves nothing to go on by, so it ends the shard."""
    at, row = shard.start, shard.row or 1
    while end is None or at < end:
        head = _exactly(stream, HEAD_BYTES)
        if not head and end is None:
            return
        problem = "" if len(head) == HEAD_BYTES else "the file ends inside of a record's length"
        found = None if problem else length_in(head)
        if not problem and found is None:
            problem = "the checksum of the record's length is wrong: the file is damaged, or no TFRecord file"
        length = found or 0
        if not problem and (length > _MAX_LINE * 16 or (end is not None and at + 16 + length > end)):
            problem = f"a record of {length} bytes begins here, and the file ends before it does"
        data = b"" if problem else _exactly(stream, length + TAIL_BYTES)
        if not problem and len(data) < length + TAIL_BYTES:
            problem = f"a record of {length} bytes begins here, and the file ends before it does"
        if problem:
            yield Row(row, at, problem=f"{problem} (what follows cannot be read)")
            return
        wrong = not is_whole(data[:length], data[length:])
        yield Row(row, at, data[:length], problem="the checksum of the record is wrong: it is damaged" if wrong else "")
        at, row = at + 16 + length, row + 1


def _exactly(stream: BinaryIO, count: int) -> bytes:
    """So many bytes, or as many as there are."""
    parts = []
    while count > 0 and (part := stream.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _tables(storage: Storage, url: str, shard: Shard) -> Iterator[Block]:
    import pyarrow  # noqa: PLC0415 -- an extra
    import pyarrow.parquet  # noqa: PLC0415

    row = shard.row or 1
    try:
        with storage.open_url(url) as stream:
            file = pyarrow.parquet.ParquetFile(stream)
            groups = list(range(shard.start, shard.end))
            for batch in file.iter_batches(batch_size=_TABLE_ROWS, row_groups=groups):
                yield Block(row, None, table=pyarrow.Table.from_batches([batch]))
                row += batch.num_rows
    except pyarrow.ArrowException as error:
        raise StokerError(f"{url} cannot be read any further than row {row}: {error}.") from error
