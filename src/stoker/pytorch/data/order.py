"""Which samples make up a batch: one global order for each epoch, and each rank's share of it.

    epoch order     8 3 | 5 0 | 9 1 | 7 2 | 6 4          from (seed, epoch), the same for every number of ranks
    1 rank, 4 each  8 3   5 0 | 9 1   7 2 | 6 4          G = 4
    2 ranks, 2 each
      rank 0        8 3       | 9 1       | 6            G = 4: the ragged last global batch is split evenly
      rank 1            5 0   |     7 2   |   4

G is the batch size of a rank times the number of ranks. Step k of an epoch takes items [k*G, (k+1)*G) of the order, and
rank r the r-th part of those, so a position is one number, whoever reads on from it. All ranks have the same number of
batches. A rank for which nothing is left of the ragged last one repeats an item from the epoch's start, with weight 0.

Items are samples, or whole batches when the user gave a batch sampler of their own (G is then the number of ranks).
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import torch
import torch.utils.data as torch_data

from stoker.pytorch.data.random import PrivateRandom, generator
from stoker.pytorch.samplers import DistributedBatchSampler, DistributedSampler

Items = Sequence[Any] | torch.Tensor  # a range, a list, or a tensor of indices: all can be sliced and measured


class EpochReader(Protocol):
    """One epoch's items from some position on."""

    def take(self, count: int) -> Items:
        """The next `count` items, fewer at the end of the epoch."""
        ...

    def first(self, count: int) -> Items:
        """The first items of the epoch."""
        ...


class SampleOrder(Protocol):
    """The items of every epoch."""

    length: int | None  # items in an epoch, if that is known

    def open(self, epoch: int, start: int) -> EpochReader: ...


class KnownOrder:
    """An order that is there at once: sequential (a range) or drawn (a tensor of indices)."""

    def __init__(self, length: int, draw: Callable[[int], Items] | None = None) -> None:
        self.length: int | None = length
        self._draw = draw or (lambda epoch: range(length))

    def open(self, epoch: int, start: int) -> "KnownReader":
        return KnownReader(self._draw(epoch), start)


class KnownReader:
    def __init__(self, items: Items, start: int) -> None:
        self.items = items
        self._next = start

    def take(self, count: int) -> Items:
        taken = self.items[self._next : self._next + count]
        self._next += len(taken)
        return taken

    def first(self, count: int) -> Items:
        return self.items[:count]


class SamplerOrder:
    """What a user's own sampler says, read as it comes.

    Each epoch of it is read with random, numpy and torch seeded from (seed, epoch), so its draws are the same on all
    ranks and after a resume. A sampler may also remember epochs by itself: those before are then read again, unless it
    has `set_epoch`.
    """

    def __init__(self, sampler: Any, seed: int) -> None:
        self.length: int | None = len(sampler) if hasattr(sampler, "__len__") else None
        self._sampler = sampler
        self._seed = seed
        self._epochs_read = 0

    def open(self, epoch: int, start: int) -> "SamplerReader":
        tell_epoch(self._sampler, epoch)
        if not hasattr(self._sampler, "set_epoch"):
            for earlier in range(self._epochs_read, epoch):
                self._read_over(earlier)
        self._epochs_read = epoch + 1
        return SamplerReader(self._sampler, PrivateRandom(self._seed, epoch), start)

    def _read_over(self, epoch: int) -> None:
        with PrivateRandom(self._seed, epoch):
            for _ in islice(iter(self._sampler), self.length):  # a repeating sampler has a length and no end
                pass


class SamplerReader:
    def __init__(self, sampler: Any, random: PrivateRandom, start: int) -> None:
        self._random = random
        self._first: list[Any] | None = None
        with random:
            self._items = iter(sampler)
        while start and (skipped := len(self.take(min(start, 1024)))):
            start -= skipped

    def take(self, count: int) -> list[Any]:
        with self._random:  # never more than asked for: a sampler may look at how training goes
            taken = list(islice(self._items, count))
        self._first = taken if self._first is None else self._first
        return taken

    def first(self, count: int) -> list[Any]:
        return (self._first or [])[:count]


def tell_epoch(thing: Any, epoch: int) -> None:
    """Samplers and datasets that shuffle by themselves have `set_epoch`, by convention."""
    if callable(tell := getattr(thing, "set_epoch", None)):
        tell(epoch)


@dataclass(frozen=True, slots=True)
class Part:
    """A rank's items of one global batch of `taken`; `weight` is for the rank's loss, 1 but in a ragged batch."""

    items: Items
    position: int  # of the first item in the epoch's order
    taken: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Sharding:
    """How a global batch is divided: `unit` items for each rank.

    `even`: a ragged last batch is split evenly, for training. Otherwise ranks keep whole units as long as there are
    any, so that batches are what they would be with one rank, and the last ranks may get nothing: for validation.
    """

    unit: int
    rank: int
    size: int
    drop_last: bool
    even: bool

    @property
    def global_size(self) -> int:
        return self.unit * self.size

    def steps(self, length: int) -> int:
        """Batches per epoch, the same on all ranks."""
        if not self.drop_last:
            return -(-length // self.global_size)
        return length // self.global_size if self.even else -(-(length // self.unit) // self.size)

    def parts(self, reader: EpochReader, start: int) -> Iterator[Part]:
        """This rank's part of every global batch left in the epoch. Only the last can be empty, and not if `even`."""
        first, last = self.rank * self.unit, (self.rank + 1) * self.unit
        while len(items := reader.take(self.global_size)) == self.global_size:
            yield Part(items[first:last], start + first, self.global_size)
            start += self.global_size
        if part := self.ragged(items, reader, start):
            yield part

    def ragged(self, items: Items, reader: EpochReader, start: int) -> Part | None:
        """This rank's part of what is left when no global batch is full; None if that is nothing."""
        if self.drop_last:
            items = items[: 0 if self.even else len(items) // self.unit * self.unit]
        count = len(items)
        if not count:
            return None
        if not self.even:
            first = self.rank * self.unit
            return Part(items[first : first + self.unit], start + first, count)
        each, more = divmod(count, self.size)
        first = self.rank * each + min(self.rank, more)
        last = first + each + (self.rank < more)
        if first == last:
            repeated = reader.first(self.size)
            chosen = self.rank % len(repeated)
            return Part(repeated[chosen : chosen + 1], chosen, count, weight=0.0)
        # The ranks' gradients are averaged as equals; with this weight, the average is that over all samples.
        return Part(items[first:last], start + first, count, weight=(last - first) * self.size / count)


@dataclass(frozen=True, slots=True)
class LoaderPlan:
    """What a loader's samplers come to."""

    order: SampleOrder
    sharding: Sharding
    collated: bool  # items are put together to a batch; otherwise each goes to the dataset as it is (batch_size=None)
    batches: bool = False  # the items are whole batches, from a user's batch sampler


def plan_of(loader: "torch_data.DataLoader[Any]", *, seed: int, rank: int, size: int, even: bool) -> LoaderPlan:
    """Read a torch DataLoader's samplers; those of torch are replaced by an order of our own."""
    batch_sampler: Any = loader.batch_sampler
    if batch_sampler is not None and _kind(batch_sampler) is not torch_data.BatchSampler:
        if _is_sharded(batch_sampler):
            rank, size = 0, 1
        sharding = Sharding(unit=1, rank=rank, size=size, drop_last=False, even=even)
        return LoaderPlan(SamplerOrder(batch_sampler, seed), sharding, collated=True, batches=True)
    if batch_sampler is None:
        sampler, unit, drop_last = loader.sampler, 1, False
    else:
        sampler, unit, drop_last = batch_sampler.sampler, batch_sampler.batch_size, batch_sampler.drop_last
    if _is_sharded(sampler):
        rank, size = 0, 1
    sharding = Sharding(unit=unit, rank=rank, size=size, drop_last=drop_last, even=even)
    return LoaderPlan(_order_of(sampler, seed), sharding, collated=batch_sampler is not None)


def _order_of(sampler: Any, seed: int) -> SampleOrder:
    kind = _kind(sampler)
    if kind is torch_data.SequentialSampler:
        return KnownOrder(len(sampler))
    if kind is torch_data.RandomSampler and not sampler.replacement and len(sampler) == len(sampler.data_source):
        return _shuffled(len(sampler), seed)
    if kind is torch_data.DistributedSampler:  # the ranks are ours to divide among
        length = len(sampler.dataset)
        return _shuffled(length, seed) if sampler.shuffle else KnownOrder(length)
    if kind in (torch_data.RandomSampler, torch_data.WeightedRandomSampler, torch_data.SubsetRandomSampler):
        return KnownOrder(len(sampler), lambda epoch: _drawn(sampler, seed, epoch))
    return SamplerOrder(sampler, seed)


def _kind(sampler: Any) -> type:
    """The sampler's class; for torchdata's, which are torch's with a state, the one of the same name in torch."""
    kind = type(sampler)
    return getattr(torch_data, kind.__name__, kind) if kind.__module__.startswith("torchdata.") else kind


def _shuffled(length: int, seed: int) -> KnownOrder:
    return KnownOrder(length, lambda epoch: torch.randperm(length, generator=generator(seed, epoch)))


def _drawn(sampler: Any, seed: int, epoch: int) -> Items:
    """One round of a torch sampler, drawn from a generator of our own instead of the global one."""
    own = copy.copy(sampler)
    own.generator = generator(seed, epoch)
    items = list(own)
    return torch.tensor(items) if items and isinstance(items[0], int) else items


def _is_sharded(sampler: Any) -> bool:
    """Made by the user for this rank alone. torch's own DistributedSampler, given as it is, is understood instead."""
    return type(sampler) is not torch_data.DistributedSampler and any(
        isinstance(layer, torch_data.DistributedSampler | DistributedSampler | DistributedBatchSampler)
        for layer in _layers(sampler)
    )


def _layers(sampler: Any) -> Iterator[Any]:
    while sampler is not None:
        yield sampler
        names = ("sampler", "batch_sampler", "_sampler")
        sampler = next((inner for name in names if (inner := getattr(sampler, name, None)) is not None), None)
