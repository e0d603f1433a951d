"""From columns of text and numbers to columns a model takes, a block at a time; training and serving share it.

numbers   float32, NaN where missing: numeric columns, days, coordinates, distances
codes     int32: 0 missing, 1 never seen in training, then the values: categories, and parts of dates
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from stoker.recipes.tabular.hashing import bucket_of
from stoker.recipes.tabular.metadata import Categorical, Date, Metadata, Numeric

MISSING, UNSEEN, FIRST = 0, 1, 2  # codes; values begin at the third
_DATE_PARTS = {"month": 12, "weekday": 7, "hour": 24}
_EARTH_RADIUS_KM = 6371.0088

Codes = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class NumericColumn:
    """A column of `numbers`."""

    name: str
    source: Numeric


@dataclass(frozen=True, slots=True)
class CodeColumn:
    """A column of `codes`. `size` is the number of values it can have beside missing and unseen; None: to be learnt."""

    name: str
    size: int | None
    source: Categorical | None = None  # None: a part of a date


class BadValue(Exception):
    """A value that is not what its column says; whoever knows the file and the row tells the user."""

    def __init__(self, *, row: int, column: str, reason: str) -> None:
        super().__init__(reason)
        self.row, self.column, self.reason = row, column, reason


def numeric_columns(metadata: Metadata) -> tuple[NumericColumn, ...]:
    """What the columns of `numbers` are, in order."""
    found = [NumericColumn(item.name, item) for item in metadata.numeric]
    derived = [f"{date.name}.day" for date in metadata.dates]
    derived += [f"{point.name}.{axis}" for point in metadata.points for axis in ("latitude", "longitude")]
    derived += [f"{one}-{other}.km" for one, other in metadata.distances]
    return (*found, *(NumericColumn(name, Numeric(name)) for name in derived))


def code_columns(metadata: Metadata) -> tuple[CodeColumn, ...]:
    """What the columns of `codes` are, in order."""
    found = [
        CodeColumn(item.name, item.identity or item.hash_buckets or len(item.vocabulary) or None, item)
        for item in metadata.categorical
    ]
    parts = [CodeColumn(f"{d.name}.{part}", size) for d in metadata.dates for part, size in _DATE_PARTS.items()]
    return (*found, *parts)


def read_as(metadata: Metadata) -> dict[str, pl.DataType]:
    """The type each wanted column is parsed as: categories at once as categories, which costs least."""
    kinds: dict[str, pl.DataType] = {item.name: pl.Float32() for item in metadata.numeric}
    for item in metadata.categorical:
        kinds[item.name] = pl.Float64() if item.identity else _fresh_categories()
    kinds |= {date.name: pl.String() for date in metadata.dates}
    for point in metadata.points:
        kinds |= {point.latitude: pl.Float64(), point.longitude: pl.Float64()}
    return kinds


def read_target_as(metadata: Metadata) -> dict[str, pl.DataType]:
    """The same for what only training reads."""
    kinds: dict[str, pl.DataType] = {metadata.target: _fresh_categories() if metadata.labels else pl.Float32()}
    return kinds if metadata.weight is None else {**kinds, metadata.weight: pl.Float32()}


def _fresh_categories() -> pl.DataType:
    """A numbering of strings of its own: it is gone with the columns that use it."""
    return pl.Categorical(pl.Categories.random())


class Vocabulary:
    """Codes of a column's strings. One without given values learns them as they come."""

    def __init__(self, given: tuple[str, ...] | None, *, missing: tuple[str, ...], buckets: int = 0) -> None:
        self._missing = frozenset(missing) | {""}
        self._learns = given is None and not buckets
        self._buckets = buckets
        self._codes: dict[str, int] = {value: FIRST + i for i, value in enumerate(given or ())}
        self._by_number = np.zeros(0, np.int32)  # polars' number of a string -> its code; -1: not asked for yet

    @property
    def values(self) -> list[str]:
        return list(self._codes)

    def encode(self, column: pl.Series) -> Codes:
        """The column's codes. Work in Python is for each distinct string, never for each row."""
        numbers, missing = _numbers_of(column)
        size = int(numbers.max()) + 1 if len(numbers) else 0
        if size > len(self._by_number):
            more = np.full(size - len(self._by_number), -1, np.int32)
            self._by_number = np.concatenate([self._by_number, more])
        codes = self._look_up(numbers, missing)
        if size and self._by_number[:size].min() < 0 and codes.min() < 0:  # the small array first: it mostly answers
            self._learn(column.filter(pl.Series(codes < 0)).unique())
            codes = self._look_up(numbers, missing)
        return codes

    def most_frequent(self, counts: npt.NDArray[np.int64], max_size: int) -> tuple[tuple[str, ...], Codes]:
        """The `max_size` most frequent of the learnt values, and the new code for each old one."""
        values = sorted(self._codes, key=lambda value: (-int(counts[self._codes[value]]), value))[:max_size]
        renamed = np.full(FIRST + len(self._codes), UNSEEN, np.int32)
        renamed[MISSING] = MISSING
        for new, value in enumerate(values):
            renamed[self._codes[value]] = FIRST + new
        return tuple(values), renamed

    def _look_up(self, numbers: npt.NDArray[np.uint32], missing: npt.NDArray[np.bool_] | None) -> Codes:
        codes: Codes = self._by_number.take(numbers, mode="clip")  # none is out of range, and clipping costs least
        if missing is not None:
            codes[missing] = MISSING
        return codes

    def _learn(self, distinct: pl.Series) -> None:
        numbers = distinct.to_physical().to_numpy()
        texts = distinct.cast(pl.String).str.strip_chars()
        if self._buckets:
            missing = texts.is_in(list(self._missing)).to_numpy()
            self._by_number[numbers] = np.where(missing, MISSING, FIRST + bucket_of(texts, self._buckets))
            return
        # Sorted, because polars' threads meet them in any order, and the codes should be the same each time.
        for text, number in sorted(zip(texts.to_list(), numbers.tolist(), strict=True)):
            if text not in self._codes and text in self._missing:
                self._by_number[number] = MISSING
            elif self._learns:
                self._by_number[number] = self._codes.setdefault(text, FIRST + len(self._codes))
            else:
                self._by_number[number] = self._codes.get(text, UNSEEN)


class Encoder:
    """Makes arrays of blocks. One per reading of a data set, because it remembers the strings it met."""

    def __init__(self, metadata: Metadata, vocabularies: dict[str, tuple[str, ...]] | None) -> None:
        """`vocabularies` are those learnt in training; None learns them."""
        self.metadata = metadata
        self.numeric = numeric_columns(metadata)
        self.codes = code_columns(metadata)
        missing = metadata.missing_values
        self.vocabularies = {
            item.name: Vocabulary(_given(item, vocabularies), missing=missing, buckets=item.hash_buckets)
            for item in metadata.categorical
            if not item.identity
        }
        self._labels = Vocabulary(metadata.labels, missing=missing)

    def features(self, block: pl.DataFrame) -> tuple[Numbers, Codes]:
        """Rows of numbers and rows of codes."""
        numbers = np.empty((block.height, len(self.numeric)), np.float32)
        for place, values in enumerate(self._number_columns(block)):
            numbers[:, place] = values
        if np.isinf(numbers).any():
            row, place = np.argwhere(np.isinf(numbers))[0]
            raise BadValue(row=int(row), column=self.numeric[place].name, reason="the number is not finite")
        codes = np.empty((block.height, len(self.codes)), np.int32)
        for place, column in enumerate(self._code_columns(block)):
            codes[:, place] = column
        if self.metadata.missing == "error":
            self._refuse_missing(numbers, codes)
        return numbers, codes

    def target(self, block: pl.DataFrame) -> Numbers:
        """The target as a number: a label's place in the list. Raises BadValue."""
        name = self.metadata.target
        if not self.metadata.labels:
            values = _floats(block[name])
            _refuse(np.isnan(values), name, "the target is missing")
            _refuse(np.isinf(values), name, "the target is not finite")
            return values
        codes = self._labels.encode(block[name])
        _refuse(codes == MISSING, name, "the label is missing")
        if (codes == UNSEEN).any():
            row = int(np.argmax(codes == UNSEEN))
            known = ", ".join(map(repr, self.metadata.labels))
            raise BadValue(row=row, column=name, reason=f"the label {block[name][row]!r} is not one of {known}")
        return (codes - FIRST).astype(np.float32)

    def weight(self, block: pl.DataFrame) -> Numbers | None:
        if self.metadata.weight is None:
            return None
        values = _floats(block[self.metadata.weight])
        _refuse(~(values >= 0), self.metadata.weight, "a weight must be 0 or more")
        return values

    def _number_columns(self, block: pl.DataFrame) -> Iterator[Numbers]:
        for item in self.metadata.numeric:
            yield _floats(block[item.name])
        for date in self.metadata.dates:
            days = times_of(block[date.name], date).dt.epoch("s").cast(pl.Float64) / 86400
            yield _floats(days)
        places = {p.name: (_doubles(block[p.latitude]), _doubles(block[p.longitude])) for p in self.metadata.points}
        for latitude, longitude in places.values():
            yield latitude.astype(np.float32)
            yield longitude.astype(np.float32)
        for one, other in self.metadata.distances:
            yield _haversine_km(*places[one], *places[other]).astype(np.float32)

    def _code_columns(self, block: pl.DataFrame) -> Iterator[Codes]:
        for item in self.metadata.categorical:
            if item.identity:
                yield _identity(_doubles(block[item.name]), item.identity)
            else:
                yield self.vocabularies[item.name].encode(block[item.name])
        for date in self.metadata.dates:
            times = times_of(block[date.name], date)
            for part in (times.dt.month() - 1, times.dt.weekday() - 1, times.dt.hour()):
                yield (part.cast(pl.Int32) + FIRST).fill_null(MISSING).to_numpy()

    def _refuse_missing(self, numbers: Numbers, codes: Codes) -> None:
        for place, column in enumerate(self.numeric):
            _refuse(np.isnan(numbers[:, place]), column.name, "the value is missing, and missing='error'")
        for place, coded in enumerate(self.codes):
            _refuse(codes[:, place] == MISSING, coded.name, "the value is missing, and missing='error'")


def times_of(column: pl.Series, date: Date) -> pl.Series:
    """A column as times, null where missing. Raises BadValue for what cannot be read."""
    if column.dtype != pl.String:
        return column.cast(pl.Datetime("us"))
    text = column.str.strip_chars()
    text = text.set(text == "", None)
    if date.format is not None:
        times = text.str.to_datetime(date.format, strict=False, time_unit="us")
    else:
        # A day alone is its midnight; a T may stand between day and time.
        plain = text.str.replace("T", " ", literal=True).str.slice(0, 19)
        times = plain.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, time_unit="us")
        if times.null_count() > text.null_count():
            days = plain.str.to_datetime("%Y-%m-%d", strict=False, time_unit="us")
            times = times.zip_with(times.is_not_null(), days)
    bad = times.is_null() & text.is_not_null()
    if bad.any():
        row = bad.arg_max() or 0
        wanted = date.format or "YYYY-MM-DD hh:mm:ss"
        raise BadValue(row=row, column=date.name, reason=f"{text[row]!r} is not a time ({wanted})")
    return times


def _given(item: Categorical, learnt: dict[str, tuple[str, ...]] | None) -> tuple[str, ...] | None:
    if item.vocabulary or learnt is None:
        return item.vocabulary or None
    return learnt.get(item.name, ())


def _numbers_of(column: pl.Series) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_] | None]:
    """polars' numbers of a column's strings, and where there is none; 0 stands there."""
    arrow = column.to_physical().to_arrow()
    if not arrow.null_count:
        return arrow.to_numpy(), None
    # By pyarrow: polars' fill_null takes several times as long, most of the encoding of a block.
    return arrow.fill_null(0).to_numpy(), arrow.is_null().to_numpy(zero_copy_only=False)


def _floats(column: pl.Series) -> Numbers:
    # A cast to what it is already would wait for polars' threads, which are busy with the next blocks.
    values: Numbers = (column if column.dtype == pl.Float32 else column.cast(pl.Float32)).to_numpy()  # null becomes NaN
    return values


def _doubles(column: pl.Series) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = column.cast(pl.Float64).to_numpy()
    return values


def _identity(values: npt.NDArray[np.float64], size: int) -> Codes:
    missing = np.isnan(values)
    known = ~missing & (values >= 0) & (values < size) & (values == np.floor(values))
    codes = np.where(known, values + FIRST, UNSEEN)
    return np.where(missing, MISSING, codes).astype(np.int32)


def _refuse(bad: npt.NDArray[np.bool_], column: str, reason: str) -> None:
    if bad.any():
        raise BadValue(row=int(np.argmax(bad)), column=column, reason=reason)


def _haversine_km(
    lat_1: npt.NDArray[np.float64],
    lon_1: npt.NDArray[np.float64],
    lat_2: npt.NDArray[np.float64],
    lon_2: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    a_lat, a_lon, b_lat, b_lon = map(np.radians, (lat_1, lon_1, lat_2, lon_2))
    a = np.sin((b_lat - a_lat) / 2) ** 2 + np.cos(a_lat) * np.cos(b_lat) * np.sin((b_lon - a_lon) / 2) ** 2
    return np.asarray(2 * _EARTH_RADIUS_KM * np.arcsin(np.sqrt(a)))
