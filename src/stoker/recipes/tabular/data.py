"""Files in, tensors out: parsed a block at a time, written to the cache, mapped into memory from there."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from stoker.errors import UsageError
from stoker.host.home import Home
from stoker.recipes.tabular.cache import kept, key_of
from stoker.recipes.tabular.columns import FIRST, BadValue, Encoder, read_as, read_target_as
from stoker.recipes.tabular.files import Block, DataFile, find_files, read_blocks
from stoker.recipes.tabular.metadata import Metadata
from stoker.storage import Storage

_PART_ROWS = 1 << 18


@dataclass(frozen=True)
class Table:
    """A data set as tensors, and what was learnt while reading it.

    The tensors are mapped from files: they take memory only as they are touched, and may be larger than it.
    """

    numbers: torch.Tensor  # float32 [rows, numeric columns], NaN where missing
    codes: torch.Tensor  # int32 [rows, code columns]
    target: torch.Tensor  # float32 [rows]; of a class its place among the labels
    weight: torch.Tensor | None  # float32 [rows]
    vocabularies: dict[str, tuple[str, ...]]
    files: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.target)

    @property
    def size_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors)

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """In the order that batches have them."""
        plain = (self.numbers, self.codes, self.target)
        return plain if self.weight is None else (*plain, self.weight)

    def rows(self, chosen: torch.Tensor) -> "Table":
        """Some of the rows, in memory."""
        weight = None if self.weight is None else self.weight[chosen]
        numbers, codes, target = self.numbers[chosen], self.codes[chosen], self.target[chosen]
        return replace(self, numbers=numbers, codes=codes, target=target, weight=weight)


def load(
    files: Sequence[str],
    metadata: Metadata,
    *,
    vocabularies: dict[str, tuple[str, ...]] | None = None,
    cache: Path | None = None,
    use_cache: bool = True,
    storage: Storage | None = None,
) -> Table:
    """Read CSV and Parquet files: paths, URLs, folders, patterns.

    `vocabularies` are those of the training data; without them they are learnt here. What was parsed once is found
    again in `cache` (HOME/cache/tabular) while files and metadata stay the same. UsageError says what is wrong with the
    data, in one sentence.
    """
    home = Home.find()
    storage = storage or Storage(home.root)
    found = find_files(files, storage)

    def make(folder: Path) -> None:
        _parse_into(folder, found, metadata, vocabularies, storage)

    if not use_cache:
        with tempfile.TemporaryDirectory(prefix="stoker-tabular-") as folder:
            make(Path(folder))
            return _open(Path(folder))  # mapped files live on, without their names, until the tensors go
    key = key_of(
        files=[(file.url, file.size_bytes, file.updated) for file in found],
        metadata=metadata.to_json(),
        vocabularies=vocabularies,
    )
    return _open(kept(cache or home.cache / "tabular", key, make))


def check_classes(table: Table, metadata: Metadata) -> None:
    """Every label must occur in the training data, or nothing can be learnt of it."""
    if metadata.labels:
        counts = torch.bincount(table.target.long(), minlength=len(metadata.labels))
        absent = [label for label, count in zip(metadata.labels, counts.tolist(), strict=True) if not count]
        if absent:
            raise UsageError(
                f"The label {', '.join(map(repr, absent))} never occurs in the training data"
                f" ({', '.join(table.files[:3])}). Take it off the metadata's labels, or add rows that have it."
            )


def _parse_into(
    folder: Path,
    files: Sequence[DataFile],
    metadata: Metadata,
    vocabularies: dict[str, tuple[str, ...]] | None,
    storage: Storage,
) -> None:
    encoder = Encoder(metadata, vocabularies)
    kinds = {**read_as(metadata), **read_target_as(metadata)}
    rows = 0
    with ExitStack() as closing:
        names = ("numbers", "codes", "target", "weight")
        out = {name: closing.enter_context((folder / f"{name}.bin").open("wb")) for name in names}
        for file in files:
            for block in read_blocks(file, metadata, kinds, storage):
                _write_block(encoder, file, block, out)
                rows += block.frame.height
    learnt = dict(vocabularies or {}) if vocabularies is not None else _settle(folder, encoder, rows)
    shape = {"rows": rows, "numeric": len(encoder.numeric), "codes": len(encoder.codes)}
    about = {**shape, "weight": metadata.weight is not None, "vocabularies": learnt, "files": [f.url for f in files]}
    (folder / "table.json").write_text(json.dumps(about))


def _write_block(encoder: Encoder, file: DataFile, block: Block, out: Mapping[str, BinaryIO]) -> None:
    try:
        numbers, codes = encoder.features(block.frame)
        target, weight = encoder.target(block.frame), encoder.weight(block.frame)
    except BadValue as bad:
        row = block.first_row + bad.row
        raise UsageError(f"{file.url}, row {row}, column {bad.column!r}: {bad.reason}.") from bad
    out["numbers"].write(numbers.data)
    out["codes"].write(codes.data)
    out["target"].write(target.data)
    if weight is not None:
        out["weight"].write(weight.data)


def _settle(folder: Path, encoder: Encoder, rows: int) -> dict[str, tuple[str, ...]]:
    """What was learnt; where it is too much, the codes of the rare values become "unseen"."""
    learnt = {}
    for place, item in enumerate(encoder.metadata.categorical):
        if item.vocabulary or item.identity or item.hash_buckets:
            continue
        vocabulary = encoder.vocabularies[item.name]
        learnt[item.name] = tuple(vocabulary.values)
        if len(learnt[item.name]) > item.max_size:
            codes = np.memmap(folder / "codes.bin", np.int32, "r+", shape=(rows, len(encoder.codes)))
            parts = [codes[start : start + _PART_ROWS, place] for start in range(0, rows, _PART_ROWS)]
            counts = sum(np.bincount(part, minlength=FIRST + len(vocabulary.values)) for part in parts)
            learnt[item.name], renamed = vocabulary.most_frequent(np.asarray(counts), item.max_size)
            for part in parts:
                part[:] = renamed[part]
    return learnt


def _open(folder: Path) -> Table:
    about = json.loads((folder / "table.json").read_text())
    rows = about["rows"]

    def mapped(name: str, dtype: torch.dtype, columns: int | None = None) -> torch.Tensor:
        shape = (rows,) if columns is None else (rows, columns)
        if columns == 0:
            return torch.zeros(shape, dtype=dtype)
        size = rows * (columns or 1)
        return torch.from_file(str(folder / f"{name}.bin"), shared=False, size=size, dtype=dtype).view(shape)

    return Table(
        numbers=mapped("numbers", torch.float32, about["numeric"]),
        codes=mapped("codes", torch.int32, about["codes"]),
        target=mapped("target", torch.float32),
        weight=mapped("weight", torch.float32) if about["weight"] else None,
        vocabularies={name: tuple(values) for name, values in about["vocabularies"].items()},
        files=tuple(about["files"]),
    )
