"""Predict for a shard: rows become instances, instances predictions, and what cannot be either an error with its place.

Models that take whole columns are given whole blocks of CSV or Parquet. Where such a block holds anything odd it is
gone through row by row, as for all other models, and so each bad row is named.
"""

import base64
import csv
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from stoker.errors import ConfigError, InstanceError
from stoker.host.prefetch import prefetch
from stoker.predict.base import Instance, Prediction, Predictor, TablePredictor
from stoker.predict.batch.plan import BatchPlan
from stoker.predict.batch.reading import Block, Row, read_blocks, read_header, split_lines
from stoker.predict.batch.writing import Output, ShardWriter
from stoker.predict.instances.csv import csv_instance, header_of
from stoker.predict.instances.example import as_instance, parse_example
from stoker.predict.instances.lines import json_value
from stoker.predict.online.encoding import encode
from stoker.schema.bundle import Signature
from stoker.storage import Storage

if TYPE_CHECKING:
    import pyarrow

_BOM = b"\xef\xbb\xbf"
_SHOWN = 200  # letters of a bad row that go into the errors file

Convert = Callable[[Row], tuple[Any, Instance]]  # the row's key, if one is asked for, and the instance


@dataclass(frozen=True, slots=True)
class Header:
    """Of a CSV file: its columns without the key's (None: the rows begin at once), and where the key is."""

    columns: list[str] | None
    key: int | None
    line: bytes  # as it is in the file


class _StopRequested(Exception):
    """Leaves a shard undone."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Predictions as they are written, a line each."""

    text: bytes
    count: int


class ShardPredictor:
    """One model, for any number of shards."""

    def __init__(
        self, storage: Storage, plan: BatchPlan, predictor: Predictor, *, batch_size: int, instance_key: str | None
    ) -> None:
        self._storage, self._plan, self._predictor = storage, plan, predictor
        self._batch_size, self._key = batch_size, instance_key
        self._signature: Signature = predictor.card.signature
        self._headers: dict[int, Header] = {}

    def predict(self, numbers: Sequence[int], output: Output, *, should_stop: Callable[[], bool]) -> Iterator[int]:
        """Write these shards, each whole; yields the number of each that is done, and ends early when told to stop."""
        with suppress(_StopRequested):
            blocks = self._blocks_with_lines(numbers)
            for number in numbers:
                with output.shard(number) as writer:
                    self._write_shard(number, blocks, writer, should_stop)
                yield number

    def _write_shard(
        self,
        number: int,
        blocks: "Iterator[tuple[Block | None, Lines | None]]",
        writer: ShardWriter,
        should_stop: Callable[[], bool],
    ) -> None:
        file = self._plan.shards[number].file
        work = _Work(self._predictor, writer, self._plan.files[file].url, self._key, self._batch_size, should_stop)
        for block, lines in blocks:
            if should_stop():
                raise _StopRequested
            if block is None:
                return
            if lines is not None:
                writer.add_lines(lines.text, lines.count)
            else:
                work.rows(self._rows(block, file), self._convert(file))

    def _blocks_with_lines(self, numbers: Sequence[int]) -> "Iterator[tuple[Block | None, Lines | None]]":
        """All blocks, each with the lines to write for it (None: predict row by row). A None ends each shard.

        One stream, not one for each shard: the next shard is read while the last blocks of this one are predicted.
        """
        if self._plan.data_format not in ("csv", "parquet") or not isinstance(self._predictor, TablePredictor):
            return ((block, None) for _file, block in self._blocks(numbers))

        def predict(of_file: tuple[int, Block | None]) -> tuple[Block | None, Lines | None]:
            file, block = of_file
            return block, None if block is None else self._by_table(block, file)

        return prefetch(predict, self._blocks(numbers), at_once=_threads())

    def _blocks(self, numbers: Sequence[int]) -> Iterator[tuple[int, Block | None]]:
        """The blocks of one shard after another, each with the number of its file; None behind each shard's last."""
        for shard in (self._plan.shards[number] for number in numbers):
            for block in read_blocks(self._storage, self._plan, shard):
                yield shard.file, block
            yield shard.file, None

    def _by_table(self, block: Block, file: int) -> "Lines | None":
        from stoker.predict.batch.tables import from_csv, from_table, lines_of  # noqa: PLC0415 -- pyarrow is an extra

        if block.table is not None:
            found = from_table(block.table, self._signature, key=self._key)
        else:
            header = self._header(file)
            data = block.data[len(header.line) :] if block.offset == 0 and header.columns is not None else block.data
            if not data.strip():
                return Lines(b"", 0)
            found = from_csv(
                data.removeprefix(_BOM), self._signature, columns=header.columns, key=(self._key, header.key)
            )
        if found is None:
            return None
        try:
            answer = cast(TablePredictor, self._predictor).predict_table(found.table)
        except InstanceError:
            return None
        return Lines(lines_of(answer, key=self._key, keys=found.keys), answer.num_rows)

    def _rows(self, block: Block, file: int) -> Iterator[Row]:
        if block.rows:
            return iter(block.rows)
        if block.table is not None:
            return _table_rows(block.table, block.row)
        rows = split_lines(block, quoted=self._plan.data_format == "csv")
        if self._plan.data_format == "csv":
            rows = (row for row in rows if row.data.strip())
            if block.offset == 0 and self._header(file).columns is not None:
                next(rows, None)
        return rows

    def _header(self, file: int) -> Header:
        if file not in self._headers:
            line = read_header(self._storage, self._plan.files[file].url)
            try:
                self._headers[file] = _header(line, self._signature, self._key)
            except (ConfigError, UnicodeDecodeError) as error:
                raise ConfigError(f"{self._plan.files[file].url}: {error}") from error
        return self._headers[file]

    def _convert(self, file: int) -> Convert:
        match self._plan.data_format:
            case "text":
                return lambda row: self._keyed(_json(row))
            case "csv":
                header = self._header(file)
                return lambda row: _csv(row, self._signature, header)
            case "parquet":
                return lambda row: self._keyed(row.data)
            case _:
                return lambda row: self._keyed(as_instance(parse_example(row.data), self._signature))

    def _keyed(self, instance: Instance) -> tuple[Any, Instance]:
        if self._key is None:
            return None, instance
        if not isinstance(instance, dict) or self._key not in instance:
            raise InstanceError("is missing, and every instance needs it (--instance-key)", index=0, field=self._key)
        if any(spec.name == self._key for spec in self._signature.inputs):
            return instance[self._key], instance
        return instance[self._key], {name: value for name, value in instance.items() if name != self._key}


@dataclass(slots=True)
class _Work:
    """Rows on their way through the model, `batch_size` at a time."""

    predictor: Predictor
    writer: ShardWriter
    url: str
    key: str | None
    batch_size: int
    should_stop: Callable[[], bool]

    def rows(self, rows: Iterator[Row], convert: Convert) -> None:
        """Raises _StopRequested before the end if so: a slow model takes longer for a block than a stop may."""
        batch: list[tuple[Row, Any, Instance]] = []
        for row in rows:
            if row.problem:
                self._flush(batch)
                self._error(row, None, row.problem)
                continue
            try:
                batch.append((row, *convert(row)))
            except InstanceError as error:
                self._flush(batch)
                self._error(row, error.field, error.reason)
            if len(batch) >= self.batch_size:
                if self.should_stop():
                    raise _StopRequested
                self._flush(batch)
        self._flush(batch)

    def _flush(self, batch: list[tuple[Row, Any, Instance]]) -> None:
        """Predict for all; the bad ones among them are left out, one by one. Empties the batch."""
        left = list(batch)
        batch.clear()
        while left:
            try:
                self._write(left, self.predictor.predict([instance for _, _, instance in left]))
                return
            except InstanceError as error:
                # All before it are good, or it would not be the first.
                good, bad, left = left[: error.index], left[error.index], left[error.index + 1 :]
                if good:
                    self._write(good, self.predictor.predict([instance for _, _, instance in good]))
                self._error(bad[0], error.field, error.reason)

    def _write(self, batch: Sequence[tuple[Row, Any, Instance]], predictions: Sequence[Prediction]) -> None:
        if self.key is not None:
            predictions = [
                {self.key: key, "prediction": prediction}
                for (_, key, _), prediction in zip(batch, predictions, strict=True)
            ]
        self.writer.add_lines(b"".join(encode(each) + b"\n" for each in predictions), len(batch))

    def _error(self, row: Row, field: str | None, reason: str) -> None:
        self.writer.add_error(
            file=self.url, line=row.row, offset=row.offset, field=field, reason=reason, row=_shown(row.data)
        )


def _threads() -> int:
    """Two for each core that numeric libraries are to use (all, unless ranks share them): one waits for Python's lock
    while the other computes."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return 2 * (int(asked) if asked.isdecimal() and int(asked) else len(os.sched_getaffinity(0)))


def _header(line: bytes, signature: Signature, key: str | None) -> Header:
    cells = next(csv.reader([line.removeprefix(_BOM).decode().rstrip("\r\n")]), [])
    at = cells.index(key) if key is not None and key in cells else None
    if key is not None and at is None:
        raise ConfigError(f"its header has no column {key!r}, which --instance-key names. It has: {', '.join(cells)}.")
    is_input = any(spec.name == key for spec in signature.inputs)
    columns = header_of([cell for place, cell in enumerate(cells) if place != at or is_input], signature)
    if columns is None and at is not None:
        raise ConfigError("its first line is no header, so no column is the one that --instance-key names.")
    return Header(columns, at, line)


def _csv(row: Row, signature: Signature, header: Header) -> tuple[Any, Instance]:
    try:
        cells = next(csv.reader([row.data.removeprefix(_BOM).decode()], strict=True), [])
    except UnicodeDecodeError as error:
        raise InstanceError(f"is not UTF-8: byte {error.start} of the line", index=0) from error
    except csv.Error as error:
        raise InstanceError(f"is no CSV: {error}", index=0) from error
    if header.key is None:
        return None, csv_instance(cells, signature, header.columns, index=0)
    if len(cells) <= header.key:
        raise InstanceError(f"has {len(cells)} columns, and none for its key", index=0)
    key = cells[header.key]
    if header.columns is None or len(header.columns) < len(cells):
        cells = cells[: header.key] + cells[header.key + 1 :]
    return key, csv_instance(cells, signature, header.columns, index=0)


def _json(row: Row) -> Instance:
    line = row.data.removeprefix(_BOM) if row.offset == 0 else row.data
    try:
        return json_value(line, index=(row.row or 1) - 1)
    except InstanceError as error:
        reason = error.reason if row.row is not None else error.reason.removeprefix("line 1 ")
        raise InstanceError(reason, index=0) from error


def _table_rows(table: "pyarrow.Table", first: int | None) -> Iterator[Row]:
    for place, values in enumerate(table.to_pylist()):
        yield Row(None if first is None else first + place, None, {k: _plain(v) for k, v in values.items()})


def _plain(value: Any) -> Any:
    """A table's value as JSON has it."""
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | dict) or value is None else str(value)


def _shown(data: Any) -> str:
    text = data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else json.dumps(data, default=str)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
