"""The data of a training: where loaders become streams of batches that can be stopped and gone on with anywhere.

    open_training    endless, in an order from (seed, epoch), each rank its share, from any position on
    open_validation  one pass, each sample once over all ranks

`data_order.py` says which samples make a batch, `data_feed.py` and `data_iterable.py` how a batch is made,
`data_device.py` how it gets to the device, and `data_random.py` where random draws come from.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
import torch.utils.data as torch_data

from stoker.errors import UsageError
from stoker.pytorch.data.device import TorchData, data_length, to_device
from stoker.pytorch.data.feed import Feed, WorkerFeed, feed_for
from stoker.pytorch.data.iterable import IterableFeed
from stoker.pytorch.data.order import KnownOrder, plan_of
from stoker.pytorch.samplers import adapt_batch_sampler

__all__ = [
    "DataLoader",
    "TorchData",
    "TrainingStream",
    "ValidationStream",
    "adapt_batch_sampler",
    "data_length",
    "open_training",
    "open_validation",
    "to_device",
]

T_co = TypeVar("T_co", covariant=True)


class DataLoader(torch_data.DataLoader[T_co]):
    """torch's DataLoader for map datasets, by the same arguments. `batch_size` is that of one rank.

    Gone through by itself, it is torch's. The trainer takes it apart: order, sharding and resuming are the trainer's.
    """

    def __init__(  # noqa: PLR0913 - torch's own arguments, in torch's order
        self,
        dataset: torch_data.Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
    ) -> None:
        if isinstance(dataset, torch_data.IterableDataset):
            raise UsageError(
                f"{type(dataset).__name__} is an IterableDataset, and stoker.pytorch.DataLoader is for datasets with"
                " __getitem__ and __len__. Pass torch.utils.data.DataLoader(dataset) to the trainer instead."
            )
        if batch_size is None and batch_sampler is None:
            raise UsageError(
                "stoker.pytorch.DataLoader needs a batch_size or a batch_sampler. To pass samples on one by one, use"
                " torch.utils.data.DataLoader(dataset, batch_size=None)."
            )
        super().__init__(
            dataset,
            batch_size=batch_size,
            shuffle=shuffle,
            sampler=sampler,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            drop_last=drop_last,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            generator=generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
        )

    def get_data_loader(
        self, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
    ) -> "torch_data.DataLoader[T_co]":
        """A plain loader over a rank's part of the batches: repeated, then sharded, then skipped into."""
        batch_sampler: Any = adapt_batch_sampler(self.batch_sampler, repeat, skip, num_replicas, rank)  # type: ignore[arg-type]
        return torch_data.DataLoader(
            self.dataset,
            batch_sampler=batch_sampler,
            num_workers=self.num_workers,
            collate_fn=self.collate_fn,
            pin_memory=self.pin_memory,
            timeout=self.timeout,
            worker_init_fn=self.worker_init_fn,
            multiprocessing_context=self.multiprocessing_context,
            generator=self.generator,
            prefetch_factor=self.prefetch_factor,
            persistent_workers=self.persistent_workers,
        )


class _Source(NamedTuple):
    """A loader, understood."""

    feed: Feed
    items: str  # what is counted: "samples" or "batches"
    length: int | None  # items in an epoch, if known
    unit: int  # items that a rank takes in a full step
    step: int  # items that all ranks take together
    steps: int | None  # batches per epoch on each rank, if known
    drop_last: bool
    exact: bool  # the lengths are certain; a user's sampler may only claim them


class TrainingStream(Iterator[Any]):
    """Batches for this rank, on the device, without end.

    `epoch` and `weight` belong to the batch given last. `weight` is 1 but for the ragged last batch of an epoch on
    several ranks: a rank's loss times its weight, averaged over the ranks, is the mean over the samples.
    """

    def __init__(self, source: _Source, *, seed: int) -> None:
        self.batches_per_epoch = source.steps
        self.epoch = 0
        self.weight = 1.0
        self._source = source
        self._seed = seed
        self._taken = 0  # items of this epoch that all ranks took
        self._position = 0
        self._batches = source.feed.batches(0, 0)

    @property
    def position(self) -> int:
        """How many samples (batches, from a batch sampler or an iterable) all ranks have taken since the start."""
        return self._position

    def __next__(self) -> Any:
        found = next(self._batches, None) or self._next_epoch()
        batch, (taken, self.weight) = found
        self._taken += taken
        self._position += taken
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Where the stream is: after the batch given last, however many were prefetched.

        The same on all ranks, and good for any number of them, but for iterables with a state of their own: those go
        on quickly from this rank's own state, and slowly, by reading, from another's.
        """
        state_of_feed = getattr(self._source.feed, "state_dict", None)
        return {
            "seed": self._seed,
            "epoch": self.epoch,
            "taken": self._taken,
            "position": self._position,
            "items": self._source.items,
            "length": self._source.length,
            "feed": None if state_of_feed is None else state_of_feed(),
        }

    def close(self) -> None:
        """End worker processes; there are no more batches from this stream."""
        self._batches = iter(())
        if isinstance(self._source.feed, WorkerFeed):
            self._source.feed.close()

    def _next_epoch(self) -> Any:
        if self._taken:
            self.epoch += 1
            self._taken = 0
            self._batches = self._source.feed.batches(self.epoch, 0)
            if (found := next(self._batches, None)) is not None:
                return found
        raise UsageError(
            f"The training data gave no batch in epoch {self.epoch} (counted from 0)."
            " It must give at least one for every rank; look at its length, sampler and drop_last."
        )

    def _load(self, state: dict[str, Any]) -> None:
        self.epoch, self._taken, self._position = state["epoch"], state["taken"], state["position"]
        if (was := (state["items"], state["length"])) != (now := (self._source.items, self._source.length)):
            warnings.warn(
                f"The checkpoint was made with {was[1]} {was[0]} an epoch, and the training data now has {now[1]}"
                f" {now[0]}: epoch {self.epoch} (counted from 0) begins again.",
                stacklevel=3,
            )
            self._taken = 0
        elif state["feed"] is not None:
            self._source.feed.load_state_dict(state["feed"])  # type: ignore[attr-defined]
            if state["feed"]["ended"]:
                self.epoch, self._taken = self.epoch + 1, 0
        self._batches = self._source.feed.batches(self.epoch, self._taken)

    def _skip(self, batches: int) -> None:
        steps, length = self.batches_per_epoch, self._source.length
        if steps is None or length is None or not self._source.exact:
            for _ in range(batches):
                next(self)
            return
        self.epoch, done = divmod(batches, steps)
        self._taken = done * self._source.step
        self._position = self.epoch * min(steps * self._source.step, length) + self._taken
        self._batches = self._source.feed.batches(self.epoch, self._taken)


class ValidationStream:
    """One pass over the data each time it is gone through: (batch, batch_idx), the index counted on this rank.

    The batches are those that one rank alone would get, dealt out in turn, so no sample is seen twice and metrics do
    not depend on the number of ranks. Ranks may have one batch more or less than others.
    """

    def __init__(self, source: _Source, *, num_samples: int | None) -> None:
        self.num_samples = num_samples  # over all ranks; None if only going through the data can tell
        self._source = source

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        batches = (batch for batch in self.rounds() if batch is not None)
        return ((batch, batch_idx) for batch_idx, batch in enumerate(batches))

    def rounds(self, start_batch: int = 0) -> Iterator[Any]:
        """One batch for each rank at a time, None where there is none left for this one: as many on every rank.

        `start_batch` counts over all ranks.
        """
        start = start_batch * self._source.unit
        return (batch for batch, _ in self._source.feed.batches(0, start))


def open_training(  # noqa: PLR0913 - all of them are needed, by name
    loader: Any,
    *,
    seed: int,
    rank: int,
    size: int,
    device: torch.device | str,
    start_batch: int = 0,
    state: dict[str, Any] | None = None,
) -> TrainingStream:
    """The loader's batches for this rank, from the start, from a number of batches on, or from a `state_dict`.

    Touches no global generator. With worker processes, samples are drawn with seeds of their own; without, the dataset
    draws from the global generators when its batch is asked for. Torch's samplers are replaced by an order of ours;
    other samplers and iterables are read as they are, and read over to go on from a position.
    """
    seed = seed if state is None else state["seed"]
    source = _source(loader, seed=seed, shard=(rank, size), device=_exact(device), even=True)
    if source.steps == 0:
        raise UsageError(_why_empty(source))
    stream = TrainingStream(source, seed=seed)
    if state is not None:
        stream._load(state)
    elif start_batch:
        stream._skip(start_batch)
    return stream


def open_validation(loader: Any, *, rank: int, size: int, device: torch.device | str) -> ValidationStream:
    """The loader's batches for this rank, each sample once over all ranks, as often as the stream is gone through."""
    source = _source(loader, seed=0, shard=(rank, size), device=_exact(device), even=False)
    num_samples = source.length if source.items == "samples" else None
    if num_samples is not None and source.drop_last:
        num_samples -= num_samples % source.unit
    return ValidationStream(source, num_samples=num_samples)


def _source(loader: Any, *, seed: int, shard: tuple[int, int], device: torch.device, even: bool) -> _Source:
    if not _is_map_loader(loader):
        _check_iterable(loader)
        iterable = IterableFeed(loader, seed=seed, shard=shard, device=device, even=even)
        length, step = iterable.length, iterable.round_size
        steps = None if length is None else length // step
        return _Source(iterable, "batches", length, unit=1, step=step, steps=steps, drop_last=even, exact=False)
    plan = plan_of(loader, seed=seed, rank=shard[0], size=shard[1], even=even)
    feed = feed_for(loader, plan, seed=seed, device=device)
    length, sharding = plan.order.length, plan.sharding
    return _Source(
        feed,
        items="batches" if plan.batches else "samples",
        length=length,
        unit=sharding.unit,
        step=sharding.global_size,
        steps=None if length is None else sharding.steps(length),
        drop_last=sharding.drop_last,
        exact=isinstance(plan.order, KnownOrder),
    )


def _is_map_loader(loader: Any) -> bool:
    """A torch DataLoader whose samplers say all. One with an `__iter__` of its own is gone through as it is."""
    if not isinstance(loader, torch_data.DataLoader) or isinstance(loader.dataset, torch_data.IterableDataset):
        return False
    kind = type(loader)
    return kind.__iter__ is torch_data.DataLoader.__iter__ or kind.__module__.startswith("torchdata.")


def _check_iterable(loader: Any) -> None:
    if isinstance(loader, torch_data.Dataset) and not isinstance(loader, torch_data.IterableDataset):
        raise UsageError(
            f"The data is a {type(loader).__name__}, a dataset, which gives single samples. Put a loader around it:"
            " stoker.pytorch.DataLoader(dataset, batch_size=32, shuffle=True)."
        )
    if not hasattr(loader, "__iter__"):
        raise UsageError(
            f"The data is a {type(loader).__name__}, which cannot be gone through. Expected a"
            " stoker.pytorch.DataLoader, a torch DataLoader, or another iterable of batches."
        )


def _why_empty(source: _Source) -> str:
    if not source.length:
        return "The training data is empty: its loader has a length of 0."
    if source.items == "batches":
        return f"The training data has {source.length} batches, fewer than there are ranks ({source.step})."
    return (
        f"The training data has {source.length} samples, fewer than the {source.step} that all ranks take in one step,"
        " and drop_last drops them. Use a smaller batch size, or drop_last=False."
    )


def _exact(device: torch.device | str) -> torch.device:
    """With its number: tensors on `cuda` say they are on `cuda:0`."""
    return torch.device("cuda", torch.cuda.current_device()) if str(device) == "cuda" else torch.device(device)
