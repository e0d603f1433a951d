"""Batches from what can only be gone through: IterableDatasets, stateful loaders, any iterable of batches.

Nothing can be skipped without reading it, so every rank reads everything and keeps every size-th batch, unless the
dataset says `sharded = True` because it gives each rank a part of its own. A loader (or, without workers, a dataset)
with `state_dict` and `load_state_dict` goes on from its state; any other is read again up to where it was.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain, islice
from typing import Any

import torch

from stoker.errors import UsageError
from stoker.pytorch.data.device import moved
from stoker.pytorch.data.feed import Batches, Beside
from stoker.pytorch.data.order import tell_epoch
from stoker.pytorch.data.random import PrivateRandom


class IterableFeed:
    """Items are batches here. An incomplete last round is dropped when training, so that all ranks end together."""

    def __init__(self, loader: Any, *, seed: int, shard: tuple[int, int], device: torch.device, even: bool) -> None:
        self._loader = loader
        self._dataset = getattr(loader, "dataset", loader)
        self._workers = getattr(loader, "num_workers", 0) > 0
        self._device = device
        self._even = even
        self._rank, self._size = shard
        self._seeds: tuple[int, ...] = (seed,)
        if getattr(self._dataset, "sharded", False):
            self._seeds = (seed, self._rank)  # the ranks' data differ, so should their draws
            self._rank, self._size = 0, 1
        self._shard = list(shard)
        self._stateful = self._find_stateful()
        self._random = PrivateRandom(*self._seeds, 0)
        self._reading: Iterator[Any] = iter(())
        self._saved: dict[str, Any] | None = None  # the state that `_peeked` was read after
        self._peeked: list[Any] = []
        self._pending: dict[str, Any] | None = None
        self._ended = False

    @property
    def round_size(self) -> int:
        """How many batches all ranks take together."""
        return self._size

    @property
    def length(self) -> int | None:
        """Batches in an epoch, if the data says so."""
        try:
            return len(self._loader)
        except TypeError:
            return None

    def batches(self, epoch: int, start: int) -> Batches:
        # Never ahead: the loader's state must be that of the batch given last.
        return moved(self._batches(epoch, start), self._device)

    def state_dict(self) -> dict[str, Any] | None:
        if self._stateful is None:
            return None
        if self._saved is None:
            state = {"shard": self._shard, "loader": self._stateful.state_dict(), "random": self._random.state_dict()}
            # Some begin anew in their state once they have ended, some do not: find out, to count epochs right.
            self._peeked = self._read_round()
            self._saved = {**state, "ended": len(self._peeked) < self._size}
        return self._saved

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Go on from there at the next epoch that is opened; another rank's state is of no use."""
        if state is not None and self._stateful is not None and state["shard"] == self._shard:
            self._pending = state

    def _batches(self, epoch: int, start: int) -> Batches:
        self._saved = None
        self._reading = self._open(epoch, start)
        while True:
            found = self._read_round() if self._saved is None else self._peeked
            self._saved = None
            if len(found) < self._size:
                break
            yield found[self._rank], Beside(self._size, 1.0)
        if found and not self._even:
            yield found[self._rank] if self._rank < len(found) else None, Beside(len(found), 1.0)
        self._ended = True

    def _read_round(self) -> list[Any]:
        # Without workers the iterable's code runs here, and what it draws must not depend on what the model draws.
        with nullcontext() if self._workers else self._random:
            return list(islice(self._reading, self._size))

    def _open(self, epoch: int, start: int) -> Iterator[Any]:
        if self._ended and isinstance(self._loader, Iterator):
            raise UsageError(
                "The data is an iterator, and it has ended: it cannot be gone through a second time."
                " Pass something that can, like a DataLoader, or train for fewer batches."
            )
        for thing in {id(thing): thing for thing in (self._loader, self._dataset)}.values():
            tell_epoch(thing, epoch)
        pending, self._pending = self._pending, None
        if pending is None:
            return self._begin(epoch, start)
        self._stateful.load_state_dict(pending["loader"])
        reading = self._begin(epoch, 0)
        if pending["ended"]:
            with self._random:
                first = list(islice(reading, 1))
            return chain(first, reading) if first else self._begin(epoch, 0)
        self._random.load_state_dict(pending["random"])  # last: to begin a DataLoader draws a seed
        return reading

    def _begin(self, epoch: int, start: int) -> Iterator[Any]:
        self._random = PrivateRandom(*self._seeds, epoch)
        with self._random:
            reading: Iterator[Any] = iter(self._loader)
            for _ in islice(reading, start):
                pass
        return reading

    def _find_stateful(self) -> Any:
        candidates = [self._loader] if self._workers else [self._loader, self._dataset]
        names = ("state_dict", "load_state_dict")
        return next((one for one in candidates if all(hasattr(one, name) for name in names)), None)
