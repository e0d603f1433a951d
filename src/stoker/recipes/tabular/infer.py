"""Guess what a table is from a look at its first rows, and say why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow.parquet as pq

from stoker.errors import UsageError
from stoker.recipes.tabular.files import DataFile, form_of, open_bytes
from stoker.recipes.tabular.metadata import Categorical, Date, GeoPoint, Metadata, Numeric, Task, to_source
from stoker.storage import Storage

_LOOK_BYTES, _LOOK_ROWS = 16 << 20, 200_000
_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
_TARGETS = ("target", "label", "class", "y", "outcome", "income_bracket", "fare_amount", "tip", "price")
_MAX_CLASSES = 20
_MAX_VOCABULARY = 1000
_FEW_NUMBERS = 12  # so many distinct whole numbers at most are taken for categories


@dataclass(frozen=True, slots=True)
class Guess:
    """The metadata, and a line for each decision: the column, what it was taken for, and why."""

    metadata: Metadata
    reasons: tuple[tuple[str, str, str], ...]


def guess(file: DataFile, storage: Storage, *, target: str | None = None) -> Guess:
    """Look at a file. UsageError if nothing tells which column is to be predicted."""
    frame = _look(file, storage)
    if not frame.height:
        raise UsageError(f"{file.url} is empty: it has no rows.")
    chosen, why = _target(frame, target, file)
    task, labels, about = _task(frame[chosen])
    reasons = [(chosen, "target", f"{why}; {about}")]
    points = list(_points(frame.columns))
    taken = {chosen, *(name for point in points for name in (point.latitude, point.longitude))}
    reasons += [(point.name, "point", f"{point.latitude} and {point.longitude} are a pair") for point in points]
    kinds: list[Numeric | Categorical | Date] = []
    for name in frame.columns:
        if name not in taken:
            kind, what, reason = _column(frame[name])
            reasons.append((name, what, reason))
            if kind is not None:
                kinds.append(kind)
    metadata = Metadata(
        task=task,
        header=tuple(frame.columns),
        target=chosen,
        labels=labels,
        numeric=tuple(kind for kind in kinds if isinstance(kind, Numeric)),
        categorical=tuple(kind for kind in kinds if isinstance(kind, Categorical)),
        dates=tuple(kind for kind in kinds if isinstance(kind, Date)),
        points=tuple(points),
        distances=((points[0].name, points[1].name),) if len(points) == 2 else (),
    )
    return Guess(metadata, tuple(reasons))


def source_of(found: Guess, *, url: str) -> str:
    """A metadata.py, complete."""
    body = to_source(found.metadata)
    words = ("Categorical", "Date", "GeoPoint", "Metadata", "Numeric")
    imported = ", ".join(word for word in words if f"{word}(" in body)
    about = f"Guessed from {url.rsplit('/', 1)[-1]}: look it over."
    return (
        f'"""The data set: its columns, what each is, and what is to be predicted. {about}"""\n\n'
        f"from stoker.recipes.tabular import {imported}\n\nMETADATA = {body}\n"
    )


def _look(file: DataFile, storage: Storage) -> pl.DataFrame:
    """The first rows, as strings (CSV) or with their own types (Parquet)."""
    if file.is_parquet:
        path = storage.local_path(file.url)
        with path.open("rb") if path is not None else storage.open_url(file.url) as stream:
            batch = next(pq.ParquetFile(stream).iter_batches(_LOOK_ROWS), None)
            return pl.DataFrame() if batch is None else pl.DataFrame(pl.from_arrow(batch))
    form = form_of(file, storage)
    with open_bytes(file, storage) as stream:
        stream.readline()
        text = stream.read(_LOOK_BYTES) + stream.readline()
    if not text.strip():
        return pl.DataFrame()
    if len(set(form.columns)) < len(form.columns):
        raise UsageError(f"{file.url}: its header has the same column twice.")
    try:
        frame = pl.read_csv(
            text, has_header=False, schema=dict.fromkeys(form.columns, pl.String()), separator=form.separator
        )
    except pl.exceptions.PolarsError as error:
        raise UsageError(f"{file.url} cannot be read as CSV ({str(error).splitlines()[0]}).") from error
    frame = frame.select(pl.all().str.strip_chars())
    return frame.select(pl.when(pl.all().is_in(_MISSING)).then(None).otherwise(pl.all()).name.keep())


def _target(frame: pl.DataFrame, asked: str | None, file: DataFile) -> tuple[str, str]:
    names = frame.columns
    if asked is not None:
        if asked not in names:
            raise UsageError(f"{file.url} has no column {asked!r}. There are: {', '.join(names)}.")
        return asked, "you said so"
    known = next((name for name in names if name.lower() in _TARGETS), None)
    if known is not None:
        return known, "its name"
    last = names[-1]
    if frame[last].n_unique() <= _MAX_CLASSES:
        return last, "the last column, with few values"
    raise UsageError(f"Which column of {file.url} is to be predicted? Say --target, one of {', '.join(names)}.")


def _task(column: pl.Series) -> tuple[Task, tuple[str, ...], str]:
    values = sorted(column.drop_nulls().cast(pl.String).unique().to_list())
    is_number = _as_numbers(column) is not None
    if len(values) < 2:
        raise UsageError(f"The target {column.name!r} has {len(values)} distinct value(s): there is nothing to learn.")
    if is_number and len(values) > 2 and (len(values) > _MAX_CLASSES or not _is_whole(column)):
        return "regression", (), f"numbers, {len(values)} distinct"
    if len(values) > _MAX_CLASSES * 50:
        raise UsageError(f"The target {column.name!r} has {len(values)} distinct texts: too many to be classes.")
    if len(values) == 2:
        return "binary", tuple(values), f"two values, {values[1]!r} taken for the positive one"
    return "multiclass", tuple(values), f"{len(values)} distinct values"


def _points(names: Sequence[str]) -> Iterator[GeoPoint]:
    for name in names:
        if name.endswith(("latitude", "lat")):
            ending = "latitude" if name.endswith("latitude") else "lat"
            stem = name.removesuffix(ending)
            for other in ("longitude", "lon", "lng", "long"):
                if stem + other in names:
                    yield GeoPoint(stem.rstrip("_") or "place", latitude=name, longitude=stem + other)
                    break


def _column(column: pl.Series) -> tuple[Numeric | Categorical | Date | None, str, str]:
    known = column.drop_nulls()
    gaps = f", {column.null_count()} missing" if column.null_count() else ""
    if not len(known):
        return None, "left aside", "it has no values"
    distinct = known.n_unique()
    if distinct == 1:
        return None, "left aside", f"always {known[0]!r}{gaps}"
    if known.dtype.is_temporal() or _are_times(known):
        return Date(column.name), "date", f"times like {known[0]!s}{gaps}"
    numbers = _as_numbers(known)
    if numbers is None:
        return _texts(column.name, known, distinct, gaps)
    if _is_whole(known) and distinct <= _FEW_NUMBERS and 0 <= (numbers.min() or 0) and (numbers.max() or 0) < 1000:
        size = int(numbers.max() or 0) + 1
        return Categorical(column.name, identity=size), "categorical", f"{distinct} whole numbers below {size}{gaps}"
    low, high, middle = float(numbers.min() or 0), float(numbers.max() or 0), float(numbers.median() or 0)
    is_long = low >= 0 and high > 100 and high > 20 * max(middle, 1.0)
    log = ", long-tailed: its logarithm is taken" if is_long else ""
    return Numeric(column.name, log=is_long), "numeric", f"numbers from {low:g} to {high:g}{log}{gaps}"


def _texts(name: str, known: pl.Series, distinct: int, gaps: str) -> tuple[Categorical | None, str, str]:
    if distinct == len(known) and len(known) > 20:
        return None, "left aside", "every row has another text: a key, or prose"
    if distinct > _MAX_VOCABULARY:
        buckets = 1 << min(16, (distinct - 1).bit_length())
        return Categorical(name, hash_buckets=buckets), "categorical", f"{distinct} texts, hashed into {buckets}{gaps}"
    vocabulary = tuple(sorted(known.cast(pl.String).unique().to_list()))
    return Categorical(name, vocabulary=vocabulary), "categorical", f"{distinct} distinct texts{gaps}"


def _as_numbers(column: pl.Series) -> pl.Series | None:
    if column.dtype.is_numeric():
        return column.cast(pl.Float64)
    found = column.cast(pl.Float64, strict=False) if column.dtype == pl.String else None
    return found if found is not None and found.null_count() == column.null_count() else None


def _is_whole(column: pl.Series) -> bool:
    numbers = _as_numbers(column)
    return numbers is not None and bool((numbers.drop_nulls() % 1 == 0).all())


def _are_times(known: pl.Series) -> bool:
    if known.dtype != pl.String:
        return False
    first = known.head(1000)
    return bool(first.str.contains(r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d.*)?$").all())
