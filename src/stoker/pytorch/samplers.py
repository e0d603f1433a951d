"""Samplers to put around samplers: repeat, shard, skip and shuffle, each for single samples and for whole batches.

`stoker.pytorch` needs none of them: it repeats, shards, skips and shuffles by itself. They are for code that builds its
own chain. The order that works is shuffle, then repeat, then shard, then skip: shuffle before sharding, or the ranks
disagree about the order, and skip last, because what is skipped is what this rank has already seen.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol, TypeVar

import torch.utils.data

try:
    import numpy
except ImportError:  # torch works without it
    numpy = None  # type: ignore[assignment]

__all__ = [
    "DistributedBatchSampler",
    "DistributedSampler",
    "RepeatBatchSampler",
    "RepeatSampler",
    "ReproducibleShuffleBatchSampler",
    "ReproducibleShuffleSampler",
    "SkipBatchSampler",
    "SkipSampler",
    "adapt_batch_sampler",
]

T_co = TypeVar("T_co", covariant=True)


class SizedIterable(Protocol[T_co]):
    """What every sampler is: it can be gone through, and knows its length."""

    def __iter__(self) -> Iterator[T_co]: ...

    def __len__(self) -> int: ...


class RepeatSampler(torch.utils.data.Sampler[int]):
    """The sampler again and again, without end. Its length is that of one round."""

    def __init__(self, sampler: SizedIterable[int]) -> None:
        self._sampler = sampler

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[int]:
        return _endlessly(self._sampler)


class RepeatBatchSampler(torch.utils.data.Sampler[list[int]]):
    """The batch sampler again and again, without end. Its length is that of one round."""

    def __init__(self, batch_sampler: SizedIterable[list[int]]) -> None:
        self.batch_sampler = batch_sampler

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[list[int]]:
        return _endlessly(self.batch_sampler)


class DistributedSampler(torch.utils.data.Sampler[int]):
    """Every `num_workers`-th sample, from the `rank`-th on. Low ranks get one more when it does not divide."""

    def __init__(self, sampler: SizedIterable[int], num_workers: int, rank: int) -> None:
        _check_rank(num_workers, rank)
        self._sampler = sampler
        self._num_workers = num_workers
        self._rank = rank

    def __len__(self) -> int:
        return _share_length(len(self._sampler), self._num_workers, self._rank)

    def __iter__(self) -> Iterator[int]:
        return islice(iter(self._sampler), self._rank, None, self._num_workers)


class DistributedBatchSampler(torch.utils.data.Sampler[list[int]]):
    """Every `num_workers`-th batch, from the `rank`-th on. Low ranks get one more when it does not divide."""

    def __init__(self, batch_sampler: SizedIterable[list[int]], num_workers: int, rank: int) -> None:
        _check_rank(num_workers, rank)
        self.batch_sampler = batch_sampler
        self._num_workers = num_workers
        self._rank = rank

    def __len__(self) -> int:
        return _share_length(len(self.batch_sampler), self._num_workers, self._rank)

    def __iter__(self) -> Iterator[list[int]]:
        return islice(iter(self.batch_sampler), self._rank, None, self._num_workers)


class SkipSampler(torch.utils.data.Sampler[int]):
    """The sampler without its first `skip` samples, each time. Its length is the sampler's."""

    def __init__(self, sampler: SizedIterable[int], skip: int) -> None:
        self._sampler = sampler
        self._skip = skip

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[int]:
        return islice(iter(self._sampler), self._skip, None)


class SkipBatchSampler(torch.utils.data.Sampler[list[int]]):
    """The batch sampler without its first `skip` batches, each time. Its length is the batch sampler's."""

    def __init__(self, batch_sampler: SizedIterable[list[int]], skip: int) -> None:
        self.batch_sampler = batch_sampler
        self._skip = skip

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[list[int]]:
        return islice(iter(self.batch_sampler), self._skip, None)


class ReproducibleShuffleSampler(torch.utils.data.Sampler[int]):
    """The sampler, shuffled anew each time, in an order that the seed alone decides."""

    def __init__(self, sampler: SizedIterable[int], seed: int) -> None:
        self._sampler = sampler
        self._random = _random_state(seed)

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[int]:
        return iter(_shuffled(self._sampler, self._random))


class ReproducibleShuffleBatchSampler(torch.utils.data.Sampler[list[int]]):
    """The batches, shuffled anew each time, in an order that the seed alone decides; each batch stays as it is."""

    def __init__(self, batch_sampler: SizedIterable[list[int]], seed: int) -> None:
        self.batch_sampler = batch_sampler
        self._random = _random_state(seed)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(_shuffled(self.batch_sampler, self._random))


def adapt_batch_sampler(
    batch_sampler: SizedIterable[list[int]],
    repeat: bool = False,
    skip: int = 0,
    num_replicas: int = 1,
    rank: int = 0,
) -> SizedIterable[list[int]]:
    """Repeat, then shard, then skip: a rank's part of the batches, without end if asked for, from the `skip`-th on."""
    if repeat:
        batch_sampler = RepeatBatchSampler(batch_sampler)
    if num_replicas > 1:
        batch_sampler = DistributedBatchSampler(batch_sampler, num_replicas, rank)
    if skip > 0:
        batch_sampler = SkipBatchSampler(batch_sampler, skip)
    return batch_sampler


def _endlessly(sampler: Iterable[T_co]) -> Iterator[T_co]:
    while True:
        empty = True
        for item in sampler:
            empty = False
            yield item
        if empty:
            return  # repeating nothing would spin for ever


def _check_rank(num_workers: int, rank: int) -> None:
    if not 0 <= rank < num_workers:
        raise ValueError(f"rank is {rank} of {num_workers}: it must be from 0 to {num_workers - 1}.")


def _share_length(length: int, num_workers: int, rank: int) -> int:
    return length // num_workers + (rank < length % num_workers)


def _random_state(seed: int) -> "numpy.random.RandomState":
    if numpy is None:
        raise ImportError("The reproducible shuffle samplers need numpy: `pip install numpy`.")
    return numpy.random.RandomState(seed)


def _shuffled(items: Iterable[T_co], random: "numpy.random.RandomState") -> Sequence[T_co]:
    listed = list(items)
    return [listed[i] for i in random.permutation(len(listed))]
