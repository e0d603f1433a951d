"""CSV and Parquet files, here or in a bucket, as blocks of a table: never more than a few megabytes at a time."""

import csv
import gzip
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, cast

import polars as pl
import pyarrow.parquet as pq
from pyarrow.lib import ArrowException, RecordBatch

from stoker.errors import UsageError
from stoker.host.prefetch import prefetch
from stoker.recipes.tabular.metadata import Metadata
from stoker.storage import Storage

# Large enough that polars' threads share it out, small enough to stay far below the tensors' own size.
BLOCK_BYTES = 4 << 20
_PARSED_AT_ONCE = 3
_BLOCK_ROWS = 1 << 16
_BLANK_LINES = re.compile(rb"\n[\r\n]+")
_SEPARATORS = (",", "\t", ";", "|")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file, and what tells that it changed."""

    url: str
    size_bytes: int
    updated: float

    @property
    def is_parquet(self) -> bool:
        return self.url.endswith((".parquet", ".pq"))


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of a file; `first_row` is the number of the first, counted from 1 without the header."""

    frame: pl.DataFrame
    first_row: int


@dataclass(frozen=True, slots=True)
class Form:
    """How a CSV file is written."""

    separator: str
    has_header: bool
    columns: tuple[str, ...]


def find_files(patterns: Sequence[str], storage: Storage) -> tuple[DataFile, ...]:
    """The files that paths, URLs, folders and patterns name, sorted within each. NotFoundError, UsageError."""
    found: dict[str, DataFile] = {}
    for pattern in patterns:
        items = sorted(storage.list(pattern), key=lambda item: item.url)
        files = [
            item for item in items if not item.is_folder and not item.url.rsplit("/", 1)[-1].startswith((".", "_"))
        ]
        if not files:
            raise UsageError(f"{pattern}: no file there. Give CSV or Parquet files, a folder of them, or a pattern.")
        for item in files:
            found[item.url] = DataFile(item.url, item.size_bytes or 0, item.updated or 0.0)
    return tuple(found.values())


def read_blocks(
    file: DataFile, metadata: Metadata, kinds: Mapping[str, pl.DataType], storage: Storage
) -> Iterator[Block]:
    """The wanted columns (`kinds`) of a file. The next blocks are parsed while the caller works on the last.

    UsageError, in one sentence, for a header that does not fit, a file without rows, and values of the wrong kind.
    """
    frames = _parquet_frames if file.is_parquet else _csv_frames
    first_row = 1
    for frame in frames(file, metadata, kinds, storage):
        yield Block(frame, first_row)
        first_row += frame.height
    if first_row == 1:
        raise UsageError(f"{file.url} is empty: it has no rows.")


def form_of(file: DataFile, storage: Storage, *, expected: Sequence[str] = ()) -> Form:
    """A CSV file's separator and columns. With `expected` columns, a file of as many without a header will do."""
    with open_bytes(file, storage) as stream:
        line = stream.readline(1 << 20)
        while line and not line.strip():
            line = stream.readline(1 << 20)
    if not line.strip():
        raise UsageError(f"{file.url} is empty: it has no rows.")
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file.url} is not UTF-8 text. Write it as UTF-8 CSV, or as Parquet.") from error
    by_separator = {separator: _cells(text, separator) for separator in _SEPARATORS}
    best = max(_SEPARATORS, key=lambda separator: len(by_separator[separator]))
    cells = by_separator[best]
    if expected and not set(cells) & set(expected) and len(cells) == len(expected):
        return Form(best, has_header=False, columns=tuple(expected))
    return Form(best, has_header=True, columns=tuple(cells))


@contextmanager
def open_bytes(file: DataFile, storage: Storage) -> Iterator[BinaryIO]:
    """The file's bytes, unpacked if it is gzipped."""
    path = storage.local_path(file.url)
    with path.open("rb") if path is not None else storage.open_url(file.url) as raw:
        if not file.url.endswith(".gz"):
            yield raw
            return
        with gzip.GzipFile(fileobj=raw) as unpacked:
            try:
                yield cast(BinaryIO, unpacked)
            except (gzip.BadGzipFile, EOFError) as error:
                raise UsageError(f"{file.url} is no gzip file, or was cut short.") from error


def _cells(text: str, separator: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader(io.StringIO(text), delimiter=separator))]


def _check_columns(file: DataFile, found: Sequence[str], header: Sequence[str]) -> None:
    missing = [name for name in header if name not in found]
    extra = [name for name in found if name not in header]
    if missing or extra:
        parts = [f"lacks {', '.join(map(repr, missing))}"] if missing else []
        parts += [f"has {', '.join(map(repr, extra))} besides"] if extra else []
        raise UsageError(f"{file.url}: its header does not match the metadata's: it {' and '.join(parts)}.")
    if len(set(found)) < len(found):
        raise UsageError(f"{file.url}: its header has the same column twice.")


def _csv_frames(
    file: DataFile, metadata: Metadata, kinds: Mapping[str, pl.DataType], storage: Storage
) -> Iterator[pl.DataFrame]:
    form = form_of(file, storage, expected=metadata.header)
    _check_columns(file, form.columns, metadata.header)
    parser = _CsvParser(file, form, kinds, metadata.missing_values)
    yield from _parsed(parser, _text_blocks(file, storage, skip_header=form.has_header))


def _parsed(parser: "_CsvParser", texts: Iterator[bytes]) -> Iterator[pl.DataFrame]:
    """In order, several in the making: polars' threads alone leave cores idle between their steps."""

    def parse(text: bytes) -> tuple[bytes, pl.DataFrame | None]:
        try:
            return text, parser.parse(text, 1)
        except UsageError:
            return text, None

    first_row = 1
    for text, frame in prefetch(parse, texts, at_once=_PARSED_AT_ONCE):
        # What is wrong is found again, for the row it is in: that was not known before the blocks before it.
        found = parser.parse(text, first_row) if frame is None else frame
        first_row += found.height
        if found.height:
            yield found


def _text_blocks(file: DataFile, storage: Storage, *, skip_header: bool) -> Iterator[bytes]:
    """Whole lines, a few megabytes of them at a time."""
    path = storage.local_path(file.url)
    if path is not None and not file.url.endswith(".gz"):
        yield from _mapped_blocks(path, skip_header=skip_header)
        return
    with open_bytes(file, storage) as stream:
        if skip_header:
            while (line := stream.readline()) and not line.strip():
                continue
        while data := stream.read(BLOCK_BYTES):
            data += stream.readline()
            while _is_inside_quotes(data) and (more := stream.readline()):
                data += more
            yield data


def _mapped_blocks(path: Path, *, skip_header: bool) -> Iterator[bytes]:
    """The same of a file that is here: each byte is copied once, which reading and joining lines would do thrice.

    Where a block ends is looked up in a map, which touches a page; to read its bytes lets go of Python's lock.
    """
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as view:
        at = 0
        while skip_header and at < len(view):
            line_end = view.find(b"\n", at) + 1 or len(view)
            skip_header = view[at:line_end].isspace()
            at = line_end
        while at < len(view):
            cut = len(view) if at + BLOCK_BYTES >= len(view) else view.rfind(b"\n", at, at + BLOCK_BYTES) + 1
            cut = cut or view.find(b"\n", at) + 1 or len(view)  # a line longer than a block
            data = os.pread(file.fileno(), cut - at, at)
            while _is_inside_quotes(data) and cut < len(view):
                end = view.find(b"\n", cut) + 1 or len(view)
                data += os.pread(file.fileno(), end - cut, cut)
                cut = end
            yield data
            at = cut


def _is_inside_quotes(data: bytes) -> bool:
    """Whether the newline at its end ends no line. (Looking for a quote is quick, counting them is not.)"""
    return b'"' in data and data.count(b'"') % 2 == 1


class _CsvParser:
    """Parses blocks of lines with polars; the slow way only when something is wrong or oddly written."""

    def __init__(
        self, file: DataFile, form: Form, kinds: Mapping[str, pl.DataType], missing_values: Sequence[str]
    ) -> None:
        self._file = file
        self._form = form
        self._kinds = kinds
        self._wanted = [name for name in form.columns if name in kinds]
        self._missing = [value for value in missing_values if value]
        # Comparing each value with a list of words triples the time, so it begins when one of them is met. Among
        # strings, columns.py looks for them; an empty value is always missing.
        self._words: list[str] = []

    def parse(self, text: bytes, first_row: int) -> pl.DataFrame:
        try:
            frame = self._read(text, {name: self._kinds.get(name, pl.String()) for name in self._form.columns})
        except pl.exceptions.PolarsError:
            self._words = self._missing
            return self._parse_slowly(text, first_row)
        last = self._form.columns[-1]
        if (last in self._kinds and not frame[last].null_count()) or b'"' in text:  # the quick one first
            return frame
        # polars takes a line that is too short, or blank, for one with missing values at its end.
        if text.count(self._form.separator.encode()) == (len(self._form.columns) - 1) * frame.height:
            return frame
        if (plain := _without_blank_lines(text)) != text:
            return self.parse(plain, first_row) if plain else frame.clear()
        self._refuse_ragged(text, first_row)
        return frame

    def _read(self, text: bytes, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
        return pl.read_csv(
            text,
            has_header=False,
            schema=schema,
            columns=[self._form.columns.index(name) for name in self._wanted],
            separator=self._form.separator,
            null_values=self._words,
        )

    def _parse_slowly(self, text: bytes, first_row: int) -> pl.DataFrame:
        """As strings first, without the blanks around them; then the first value that is no number can be named."""
        text = _without_blank_lines(text)
        self._refuse_ragged(text, first_row)
        try:
            frame = self._read(text, dict.fromkeys(self._form.columns, pl.String()))
        except pl.exceptions.PolarsError as error:
            raise UsageError(
                f"{self._file.url}, from row {first_row} on: cannot be read as CSV ({str(error).splitlines()[0]})."
            ) from error
        frame = frame.select(pl.all().str.strip_chars())
        frame = frame.select(pl.when(pl.all().is_in(["", *self._missing])).then(None).otherwise(pl.all()).name.keep())
        columns = []
        for name in self._wanted:
            kind, texts = self._kinds[name], frame[name]
            column = texts.cast(kind, strict=False)
            bad = column.is_null() & texts.is_not_null()
            if bad.any():
                row = bad.arg_max() or 0
                raise not_a_number(self._file, first_row + row, name, texts[row])
            columns.append(column)
        return pl.DataFrame(columns)

    def _refuse_ragged(self, text: bytes, first_row: int) -> None:
        lines = csv.reader(io.StringIO(text.decode("utf-8", "replace"), newline=""), delimiter=self._form.separator)
        wanted = len(self._form.columns)
        for row, cells in enumerate((cells for cells in lines if cells), start=first_row):
            if len(cells) != wanted:
                raise UsageError(f"{self._file.url}, row {row}: {len(cells)} values, expected {wanted}.")


def _without_blank_lines(text: bytes) -> bytes:
    """Those inside quotes stay: they are part of a value."""
    return text if b'"' in text else _BLANK_LINES.sub(b"\n", text).lstrip(b"\r\n")


def not_a_number(file: DataFile, row: int, column: str, text: str) -> UsageError:
    return UsageError(f"{file.url}, row {row}, column {column!r}: {text!r} is not a number.")


def _parquet_frames(
    file: DataFile, metadata: Metadata, kinds: Mapping[str, pl.DataType], storage: Storage
) -> Iterator[pl.DataFrame]:
    path = storage.local_path(file.url)
    with path.open("rb") if path is not None else storage.open_url(file.url) as stream:
        try:
            parquet = pq.ParquetFile(stream)
        except ArrowException as error:
            raise UsageError(f"{file.url} is not a Parquet file ({str(error).splitlines()[0]}).") from error
        _check_columns(file, parquet.schema_arrow.names, metadata.header)
        batches = parquet.iter_batches(_BLOCK_ROWS, columns=[name for name in metadata.header if name in kinds])

        def frame_of(numbered: tuple[int, RecordBatch]) -> pl.DataFrame:
            first_row, batch = numbered
            frame = cast(pl.DataFrame, pl.from_arrow(batch))
            return as_kinds(frame, kinds, file=file, first_row=first_row, missing_values=metadata.missing_values)

        yield from prefetch(frame_of, _numbered(batches), at_once=_PARSED_AT_ONCE)


def _numbered(batches: Iterable[RecordBatch]) -> Iterator[tuple[int, RecordBatch]]:
    first_row = 1
    for batch in batches:
        yield first_row, batch
        first_row += batch.num_rows


def as_kinds(
    frame: pl.DataFrame,
    kinds: Mapping[str, pl.DataType],
    *,
    file: DataFile,
    first_row: int,
    missing_values: Sequence[str],
) -> pl.DataFrame:
    """Columns of whatever types as those wanted; UsageError names the first value that cannot be one."""
    columns = []
    for name, kind in kinds.items():
        column = frame[name]
        if column.dtype == pl.String:
            column = column.str.strip_chars()
            column = column.set(column.is_in(["", *missing_values]), None)
        if isinstance(kind, pl.Categorical):
            column = column.cast(pl.String).cast(kind)
        elif kind != pl.String or not column.dtype.is_temporal():  # times may stay times
            cast_to = column.cast(kind, strict=False)
            bad = cast_to.is_null() & column.is_not_null()
            if bad.any():
                row = bad.arg_max() or 0
                raise not_a_number(file, first_row + row, name, str(column[row]))
            column = cast_to
        columns.append(column)
    return pl.DataFrame(columns)
