"""What a model needs to know of its columns, taken from the training data once and saved with it; and the layer
that makes the model's inputs by it, batch by batch, the same in training and serving."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from stoker.recipes.tabular.columns import FIRST, MISSING, code_columns, numeric_columns
from stoker.recipes.tabular.data import Table
from stoker.recipes.tabular.metadata import Metadata
from stoker.schema.model import config_error

_PART_ROWS = 1 << 17
_QUANTILE_ROWS = 200_000  # enough to place ten boundaries
_MIX = 0x9E3779B1  # spreads crossed codes over the buckets


@dataclass(frozen=True, slots=True)
class NumericStats:
    """A numeric column as the training data had it; mean and std are those after the logarithm, where one is taken."""

    name: str
    mean: float
    std: float
    log: bool
    has_missing: bool
    boundaries: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Features:
    """All that was learnt of the columns."""

    metadata: Metadata
    numeric: tuple[NumericStats, ...]
    vocabularies: dict[str, tuple[str, ...]]
    target_mean: float = 0.0
    target_std: float = 1.0

    @property
    def code_sizes(self) -> dict[str, int]:
        """For each column of codes, how many codes there are."""
        learnt = self.vocabularies
        return {
            column.name: FIRST + (len(learnt[column.name]) if column.size is None else column.size)
            for column in code_columns(self.metadata)
        }

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any, *, source: str) -> "Features":
        try:
            return TypeAdapter(cls).validate_python(values)
        except ValidationError as error:
            raise config_error(error, source=source) from error


def fit(table: Table, metadata: Metadata) -> Features:
    """Learn means, deviations, quantiles and which columns have gaps, a part of the table at a time."""
    columns = numeric_columns(metadata)
    logs = torch.tensor([column.source.log for column in columns])
    mean, std, gaps = _moments(table.numbers, logs)
    step = max(1, -(-len(table) // _QUANTILE_ROWS))
    sample = signed_log(table.numbers[::step], logs) if columns else table.numbers[:0]
    numeric = []
    for place, column in enumerate(columns):
        source = column.source
        given = signed_log(torch.tensor(source.boundaries), torch.tensor(source.log)).tolist()
        numeric.append(
            NumericStats(
                column.name,
                mean=mean[place] if source.mean is None else source.mean,
                std=std[place] if source.std is None else source.std,
                log=source.log,
                has_missing=gaps[place],
                boundaries=tuple(given) or _quantiles(sample[:, place], source.buckets),
            )
        )
    if metadata.labels:
        return Features(metadata, tuple(numeric), table.vocabularies)
    target_mean, target_std, _ = _moments(table.target[:, None], torch.tensor([False]))
    return Features(metadata, tuple(numeric), table.vocabularies, target_mean[0], target_std[0])


def signed_log(numbers: torch.Tensor, logs: torch.Tensor) -> torch.Tensor:
    """sign(x) log(1 + |x|) in the columns that ask for it."""
    if not bool(logs.any()):
        return numbers
    return torch.where(logs, numbers.sign() * numbers.abs().log1p(), numbers)


class Inputs(NamedTuple):
    """A batch as models take it."""

    dense: torch.Tensor  # normalised numbers, 0 where missing; then 1 for each gap, in columns that had some
    codes: torch.Tensor  # int64 [rows, code columns]
    wide: torch.Tensor  # int64 [rows, wide columns]: places in one table of weights


class FeatureLayer(nn.Module):
    """Numbers and codes to `Inputs`. Its buffers are the training data's stats, so they are saved with the weights."""

    mean: torch.Tensor
    scale: torch.Tensor
    logs: torch.Tensor
    logged: torch.Tensor
    boundaries: torch.Tensor
    bucketed: torch.Tensor
    gaps: torch.Tensor
    wide_offsets: torch.Tensor

    def __init__(self, features: Features) -> None:
        super().__init__()
        self.features = features
        numeric = features.numeric
        self.register_buffer("mean", torch.tensor([item.mean for item in numeric], dtype=torch.float32))
        self.register_buffer("scale", torch.tensor([1 / item.std for item in numeric], dtype=torch.float32))
        self.register_buffer("logs", torch.tensor([item.log for item in numeric], dtype=torch.bool))
        self.register_buffer("logged", _places(item.log for item in numeric), persistent=False)
        self.register_buffer("gaps", _places(item.has_missing for item in numeric))
        self.register_buffer("bucketed", _places(bool(item.boundaries) for item in numeric))
        cut = [item.boundaries for item in numeric if item.boundaries]
        longest = max(map(len, cut), default=0)
        padded = [[*item, *[float("inf")] * (longest - len(item))] for item in cut]
        self.register_buffer("boundaries", torch.tensor(padded, dtype=torch.float32).view(len(cut), longest))
        self._counted_in = torch.uint8 if longest < 256 else torch.int64
        self.code_sizes = list(features.code_sizes.values())
        self._plan_wide(features)

    @property
    def num_dense(self) -> int:
        return len(self.mean) + len(self.gaps)

    def forward(self, numbers: torch.Tensor, codes: torch.Tensor) -> Inputs:
        # Column by column from here on, which is twice as quick: each has its own mean, boundaries, table.
        columns, codes = numbers.t().contiguous(), codes.t().contiguous().long()
        if len(self.logged):
            chosen = columns.index_select(0, self.logged)
            columns = columns.index_copy(0, self.logged, chosen.sign() * chosen.abs().log1p())
        missing = columns.isnan()
        dense = ((columns - self.mean[:, None]) * self.scale[:, None]).masked_fill(missing, 0.0)
        if len(self.gaps):
            dense = torch.cat([dense, missing.index_select(0, self.gaps).to(dense.dtype)])
        return Inputs(dense.t(), codes.t(), self._wide(columns, missing, codes).t())

    def _plan_wide(self, features: Features) -> None:
        """The wide side's columns: bucketed numbers, codes, crosses; each with its stretch of the table of weights."""
        names = [item.name for item in features.numeric if item.boundaries] + list(features.code_sizes)
        sizes = [len(item.boundaries) + 2 for item in features.numeric if item.boundaries] + self.code_sizes
        self._crosses: list[tuple[list[int], list[int], int]] = []
        for cross in _crosses(features.metadata, names):
            places = [names.index(name) for name in cross]
            combinations = 1
            for place in places:
                combinations *= sizes[place]
            buckets = min(combinations, features.metadata.cross_buckets)
            self._crosses.append((places, [sizes[place] for place in places], buckets))
        all_sizes = [*sizes, *(buckets for _, _, buckets in self._crosses)]
        self.num_wide = sum(all_sizes)
        starts = [0, *accumulate(all_sizes)][: len(all_sizes)]
        self.register_buffer("wide_offsets", torch.tensor(starts, dtype=torch.int64))

    def _wide(self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        columns = [codes]
        if len(self.bucketed):
            if len(self.bucketed) < len(numbers):
                numbers, missing = numbers.index_select(0, self.bucketed), missing.index_select(0, self.bucketed)
            # How many boundaries are not above: for a few of them many times as quick as searchsorted.
            above = numbers >= self.boundaries.t()[:, :, None]
            buckets = above.view(torch.uint8).sum(0, dtype=self._counted_in).long() + 1
            columns.insert(0, buckets.masked_fill(missing, MISSING))
        plain = torch.cat(columns) if len(columns) > 1 else codes
        crossed = [self._cross(plain, *cross) for cross in self._crosses]
        return (torch.cat([plain, *crossed]) if crossed else plain) + self.wide_offsets[:, None]

    @staticmethod
    def _cross(codes: torch.Tensor, places: list[int], sizes: list[int], buckets: int) -> torch.Tensor:
        mixed = codes[places[0]]
        total = sizes[0]
        for place, size in zip(places[1:], sizes[1:], strict=True):
            mixed = mixed * size + codes[place]
            total *= size
        if total > buckets:
            mixed = (mixed * _MIX % (1 << 31)) % buckets
        return mixed[None]


def _crosses(metadata: Metadata, names: list[str]) -> Iterator[tuple[str, ...]]:
    """Those asked for, and a grid for each point on the globe."""
    yield from (cross for cross in metadata.crosses if all(name in names for name in cross))
    for point in metadata.points:
        grid = (f"{point.name}.latitude", f"{point.name}.longitude")
        if all(name in names for name in grid):
            yield grid


def _places(flags: Any) -> torch.Tensor:
    return torch.tensor([place for place, flag in enumerate(flags) if flag], dtype=torch.int64)


def _moments(numbers: torch.Tensor, logs: torch.Tensor) -> tuple[list[float], list[float], list[bool]]:
    """Mean and deviation of each column without its gaps, and whether it has some."""
    width = numbers.shape[1]
    count, total, squares = (torch.zeros(width, dtype=torch.float64) for _ in range(3))
    shift = torch.zeros(width, dtype=torch.float64)
    for start in range(0, len(numbers), _PART_ROWS):
        part = signed_log(numbers[start : start + _PART_ROWS].double(), logs)
        known = ~part.isnan()
        if start == 0:  # about the first part's mean, so that large numbers lose no digits in the squares
            shift = part.nan_to_num().sum(0) / known.sum(0).clamp(min=1)
        part = torch.where(known, part - shift, 0.0)
        count += known.sum(0)
        total += part.sum(0)
        squares += part.square().sum(0)
    mean = total / count.clamp(min=1)
    std = (squares / count.clamp(min=1) - mean.square()).clamp(min=0).sqrt()
    std = torch.where(std > 1e-12 * (1 + shift.abs()), std, 1.0)  # a constant column stays what it is
    return (mean + shift).tolist(), std.tolist(), (count < len(numbers)).tolist()


def _quantiles(values: torch.Tensor, buckets: int) -> tuple[float, ...]:
    known = values[~values.isnan()]
    if buckets < 2 or not len(known):
        return ()
    ordered = known.double().sort().values
    places = torch.arange(1, buckets) * len(ordered) // buckets
    return tuple(dict.fromkeys(ordered[places].tolist()))
