"""Texts with labels out of CSV, JSON lines, Parquet, folders of .txt files, storage URLs and `datasets` names.

Everything that can be wrong with them is found here, before anything is trained, and said with its file and row.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.errors import NotFoundError, UsageError
from stoker.recipes.text.files import DataFile, find_files
from stoker.recipes.text.settings import TextSettings

_TEXT_NAMES = ("text", "sentence", "review", "content", "document", "comment", "message", "body")
_LABEL_NAMES = ("label", "labels", "class", "target", "category", "sentiment")
_LONGEST_CELL = 1 << 30

Row = tuple[Any, Any]  # text and label, as the file has them


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Texts, and the number of each one's class."""

    texts: list[str]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, slots=True)
class TextData:
    """What is learnt from, what it is judged by, and the classes' names."""

    train: LabelledTexts
    evaluation: LabelledTexts
    labels: tuple[str, ...]


@dataclass(slots=True)
class _Raw:
    """Texts and labels as they are written, and which file gave how many of them."""

    texts: list[str]
    labels: list[str]
    files: list[tuple[str, int]]

    def place(self, index: int) -> str:
        for name, count in self.files:
            if index < count:
                return f"{name}, row {index + 1}"
            index -= count
        return f"row {index + 1}"


def read_data(settings: TextSettings) -> TextData:
    """The data that the settings name, divided and checked. UsageError, NotFoundError: one clear sentence each."""
    parts = _read(settings.dataset, settings)
    train = parts.get("train") or parts.get("all")
    if train is None:
        raise UsageError(f"{settings.dataset} has only test data. Name what to train on, and it as --eval-dataset.")
    if settings.eval_dataset is not None:
        known = _read(settings.eval_dataset, settings)
        parts["eval"] = known.get("eval") or known.get("all") or known["train"]
    labels = settings.labels or _labels_of(train)
    learnt = _numbered(train, labels)
    if "eval" not in parts:
        learnt, judged = _divided(learnt, share=settings.eval_share, seed=settings.seed, source=settings.dataset)
    else:
        judged = _numbered(parts["eval"], labels)
    _check_classes(learnt, labels, settings.dataset)
    return TextData(train=learnt, evaluation=judged, labels=tuple(labels))


def _read(source: str, settings: TextSettings) -> dict[str, _Raw]:
    files = find_files(source)
    if files is None:
        return _from_hub(source, settings)
    parts: dict[str, _Raw] = {}
    divided = any(file.part == "train" for file in files)
    for file in files:
        part = (file.part or "train") if divided else "all"
        raw = parts.setdefault(part, _Raw([], [], []))
        _take(raw, file.name, _rows(file, settings))
    empty = next((raw for raw in parts.values() if not raw.texts), None)
    if empty is not None:
        raise UsageError(f"{empty.files[0][0]} is empty: it has no row with a text and a label.")
    return parts


def _take(raw: _Raw, name: str, rows: Iterable[Row]) -> None:
    before = len(raw.texts)
    for number, (text, label) in enumerate(rows, start=1):
        if label is None or label == "":
            raise UsageError(f"{name}, row {number}: there is no label. Give it one, or leave the row out.")
        raw.texts.append("" if text is None else str(text))
        raw.labels.append(_as_written(label))
    raw.files.append((name, len(raw.texts) - before))


def _as_written(label: Any) -> str:
    """`1` for 1, 1.0 and "1": formats differ in how they keep a class's number."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label).strip()


def _rows(file: DataFile, settings: TextSettings) -> Iterator[Row]:
    suffix = file.suffix
    if suffix == ".txt":
        return _from_text(file)
    if suffix == ".parquet":
        return _from_parquet(file, settings)
    if suffix in (".csv", ".tsv"):
        return _from_csv(file, settings, delimiter="\t" if suffix == ".tsv" else ",")
    return _from_json(file, settings)


def _from_text(file: DataFile) -> Iterator[Row]:
    folder, _, _ = file.inside.rpartition("/")
    label = folder.rpartition("/")[2]
    if not label:
        raise UsageError(f"{file.name} is in no class's folder: put it as FOLDER/CLASS/{file.inside}.")
    yield _decoded(file).strip(), label


def _from_csv(file: DataFile, settings: TextSettings, *, delimiter: str) -> Iterator[Row]:
    csv.field_size_limit(_LONGEST_CELL)
    lines = csv.reader(io.StringIO(_decoded(file), newline=""), delimiter=delimiter)
    header = next(lines, None)
    if header is None:
        raise UsageError(f"{file.name} is empty: expected a first line with the columns' names.")
    text, label = _columns(file.name, header, settings)
    at, of = header.index(text), header.index(label)
    for number, cells in enumerate(lines, start=1):
        if cells and len(cells) != len(header):
            raise UsageError(
                f"{file.name}, row {number}: {len(cells)} cells, and the header has {len(header)} columns."
                " Put texts that hold a delimiter in quotes."
            )
        if cells:
            yield cells[at], cells[of]


def _from_json(file: DataFile, settings: TextSettings) -> Iterator[Row]:
    content = _decoded(file)
    whole = content.lstrip().startswith("[")
    found = json.loads(content) if whole else (line for line in content.splitlines())
    names: tuple[str, str] | None = None
    for number, entry in enumerate(found, start=1):
        if isinstance(entry, str) and not entry.strip():
            continue
        try:
            values = entry if whole else json.loads(entry)
        except ValueError as error:
            raise UsageError(f"{file.name}, line {number}: not a JSON object: {error}.") from error
        if not isinstance(values, dict):
            raise UsageError(f"{file.name}, line {number}: expected a JSON object with a text and a label.")
        names = names or _columns(file.name, list(values), settings)
        yield values.get(names[0]), values.get(names[1])


def _from_parquet(file: DataFile, settings: TextSettings) -> Iterator[Row]:
    try:
        import pyarrow.parquet  # noqa: PLC0415 - only for those who have such files
    except ImportError as error:
        raise UsageError(f"{file.name} needs pyarrow: pip install pyarrow.") from error
    data = io.BytesIO(file.content())
    text, label = _columns(file.name, pyarrow.parquet.read_schema(data).names, settings)
    table = pyarrow.parquet.read_table(data, columns=[text, label])
    return zip(table[text].to_pylist(), table[label].to_pylist(), strict=True)


def _from_hub(name: str, settings: TextSettings) -> dict[str, _Raw]:
    try:
        import datasets  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        raise NotFoundError(
            f"No data at {name!r}. If that is a name on the Hugging Face hub: pip install datasets."
        ) from error
    try:
        found = datasets.load_dataset(name)
    except Exception as error:  # their errors are of many kinds, and all mean that it cannot be had
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise NotFoundError(f"No data at {name!r}, on this machine or on the hub: {reason}") from error
    parts: dict[str, _Raw] = {}
    for split, part in (("train", "train"), ("test", "eval"), ("validation", "eval")):
        if split in found and part not in parts:
            table = found[split]
            text, label = _columns(f"{name}:{split}", table.column_names, settings)
            names = getattr(table.features[label], "names", None)
            labels = [names[each] for each in table[label]] if names else table[label]
            parts[part] = _Raw([], [], [])
            _take(parts[part], f"{name}:{split}", zip(table[text], labels, strict=True))
    if not parts:
        raise UsageError(f"{name!r} has the splits {', '.join(found)}: expected train, and test or validation.")
    return parts


def _decoded(file: DataFile) -> str:
    data = file.content()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{file.name}, line {line}: not UTF-8 (byte 0x{data[error.start]:02x}). Save the file as UTF-8."
        ) from error


def _columns(name: str, header: Sequence[str], settings: TextSettings) -> tuple[str, str]:
    text = _column(name, header, settings.text_column, _TEXT_NAMES, setting="text_column", what="text")
    label = _column(name, header, settings.label_column, _LABEL_NAMES, setting="label_column", what="label")
    return text, label


def _column(  # noqa: PLR0913 - all by name
    name: str, header: Sequence[str], given: str | None, usual: Sequence[str], *, setting: str, what: str
) -> str:
    has = f"It has {', '.join(map(str, header)) or 'none'}"
    if given is not None:
        if given in header:
            return given
        raise UsageError(f"{name} has no column {given!r} for the {what}. {has}: choose one by {setting}.")
    found = next((each for word in usual for each in header if str(each).lower() == word), None)
    if found is None:
        raise UsageError(f"{name} has no {what} column. {has}: name the one to use by {setting}.")
    return found


def _labels_of(raw: _Raw) -> tuple[str, ...]:
    found = set(raw.labels)
    numbers = all(label.lstrip("-").isdecimal() for label in found)
    return tuple(sorted(found, key=int) if numbers else sorted(found))


def _numbered(raw: _Raw, labels: Sequence[str]) -> LabelledTexts:
    number = {label: index for index, label in enumerate(labels)}
    strange = next((index for index, label in enumerate(raw.labels) if label not in number), None)
    if strange is not None:
        raise UsageError(
            f"{raw.place(strange)}: label {raw.labels[strange]!r} is not one of {', '.join(labels)}."
            " Correct it, or add it to the labels."
        )
    return LabelledTexts(raw.texts, np.array([number[label] for label in raw.labels], np.int64))


def _divided(known: LabelledTexts, *, share: float, seed: int, source: str) -> tuple[LabelledTexts, LabelledTexts]:
    """A share of each class is kept to judge by, the same for the same seed."""
    chance = np.random.default_rng(seed)
    kept = np.zeros(len(known), bool)
    for label in np.unique(known.labels):
        rows = chance.permutation(np.flatnonzero(known.labels == label))
        kept[rows[: round(len(rows) * share)]] = True
    if not kept.any() or kept.all():
        raise UsageError(
            f"{source} has {len(known)} rows, too few to keep {share:g} of each class for evaluation."
            " Give more, or --eval-dataset."
        )
    return _chosen(known, np.flatnonzero(~kept)), _chosen(known, np.flatnonzero(kept))


def _chosen(known: LabelledTexts, rows: npt.NDArray[np.int64]) -> LabelledTexts:
    return LabelledTexts([known.texts[row] for row in rows], known.labels[rows])


def _check_classes(learnt: LabelledTexts, labels: Sequence[str], source: str) -> None:
    if len(labels) < 2:
        raise UsageError(f"{source} has one class only ({', '.join(labels)}): there is nothing to tell apart.")
    counts = np.bincount(learnt.labels, minlength=len(labels))
    if missing := [label for label, count in zip(labels, counts, strict=True) if not count]:
        raise UsageError(
            f"The training data of {source} never has the class {', '.join(missing)}."
            " Leave it out of the labels, or add texts of it."
        )
