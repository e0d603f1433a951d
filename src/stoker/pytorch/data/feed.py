"""Three ways to make an epoch's batches: from tensors in memory, in this process, or in worker processes."""

import functools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import torch
import torch.utils.data as torch_data

from stoker.pytorch.data.device import moved
from stoker.pytorch.data.order import (
    Items,
    KnownOrder,
    KnownReader,
    LoaderPlan,
    Part,
    SampleOrder,
    Sharding,
    tell_epoch,
)
from stoker.pytorch.data.random import Fetch, SeededDataset, mix

_GATHER_BYTES = 2 << 20  # batches gathered at once from tensors: enough to hide the call, little enough for the cache
_GATHER_STEPS = 64
_DEVICE_SHARE = 0.25  # of the GPU's free memory that the data may take
_BATCH_BITS = 20  # a batch sampler's batches are this far apart in the numbering that seeds are made of


class Beside(NamedTuple):
    """What goes along with a batch: how many items all ranks took together, and the weight of this rank's loss."""

    taken: int
    weight: float


Batches = Iterator[tuple[Any, Beside]]


class Feed(Protocol):
    """Makes the batches of an epoch, from an item on, on the device. A batch is None where this rank has no part."""

    def batches(self, epoch: int, start: int) -> Batches: ...


def feed_for(loader: "torch_data.DataLoader[Any]", plan: LoaderPlan, *, seed: int, device: torch.device) -> Feed:
    """The fastest way that gives what the loader says."""
    if loader.num_workers > 0:
        return WorkerFeed(loader, plan, seed=seed, device=device)
    plain = plan.collated and loader.collate_fn is torch_data.default_collate and isinstance(plan.order, KnownOrder)
    table = Table.of(loader.dataset) if plain else None
    if table is not None:
        return TensorFeed(table, plan.order, plan.sharding, device=device)
    return InlineFeed(loader, plan, device=device)


class Table:
    """Tensors of equal length, whose rows are the samples; `rows` chooses among them, for a Subset."""

    def __init__(self, tensors: tuple[torch.Tensor, ...], rows: torch.Tensor | None = None) -> None:
        self.tensors = tensors
        self.rows = rows

    @classmethod
    def of(cls, dataset: Any) -> "Table | None":
        """The tensors behind a TensorDataset or a Subset of one; None if a sample may be anything else than a row."""
        if type(dataset) is torch_data.Subset:
            inner = cls.of(dataset.dataset)
            if inner is None:
                return None
            rows = torch.as_tensor(dataset.indices, dtype=torch.int64)
            return cls(inner.tensors, rows if inner.rows is None else inner.rows[rows])
        if not isinstance(dataset, torch_data.TensorDataset) or _is_altered(type(dataset)):
            return None
        plain = all(t.layout is torch.strided and not t.requires_grad for t in dataset.tensors)
        return cls(dataset.tensors) if plain and dataset.tensors else None

    @property
    def row_bytes(self) -> int:
        return sum(t[:1].numel() * t.element_size() for t in self.tensors)

    @property
    def total_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors)

    def to(self, device: torch.device) -> "Table":
        return Table(tuple(t.to(device) for t in self.tensors), None if self.rows is None else self.rows.to(device))

    def gather(self, items: Items) -> list[torch.Tensor]:
        """These rows, in memory of their own: user code may change a batch in place."""
        if isinstance(items, range) and self.rows is None:
            return [t[items.start : items.stop].clone() for t in self.tensors]
        index = self._index(items)
        return [t.index_select(0, index) for t in self.tensors]

    def _index(self, items: Items) -> torch.Tensor:
        if isinstance(items, range):
            items = torch.arange(items.start, items.stop)
        index = torch.as_tensor(items, dtype=torch.int64).to(self.tensors[0].device)
        return index if self.rows is None else self.rows[index]


def _is_altered(kind: type[torch_data.TensorDataset]) -> bool:
    """A subclass may change samples on their way (augmentation); then they are read one by one."""
    names = ("__getitem__", "__getitems__")
    return any(getattr(kind, name, None) is not getattr(torch_data.TensorDataset, name, None) for name in names)


class TensorFeed:
    """Samples that are rows of tensors: many batches are gathered at once, on the device if the data fits there."""

    def __init__(self, table: Table, order: SampleOrder, sharding: Sharding, *, device: torch.device) -> None:
        self._order = order
        self._sharding = sharding
        self._device = device
        self._table = table.to(device) if _fits(table, device) else table
        self._resident = self._table.tensors[0].device == device
        batch_bytes = max(1, table.row_bytes * sharding.unit)
        self._steps_at_once = max(1, min(_GATHER_STEPS, _GATHER_BYTES // batch_bytes)) if self._resident else 1

    def batches(self, epoch: int, start: int) -> Batches:
        made = self._batches(epoch, start)
        return made if self._resident else moved(made, self._device, ahead=True, pin=True)

    def _batches(self, epoch: int, start: int) -> Batches:
        sharding = self._sharding
        reader = self._order.open(epoch, start)
        if self._resident and isinstance(reader, KnownReader) and isinstance(reader.items, torch.Tensor):
            reader.items = _quickly(reader.items, self._device)
        full = Beside(sharding.global_size, 1.0)
        while True:
            items = reader.take(sharding.global_size * self._steps_at_once)
            steps = len(items) // sharding.global_size
            if steps:
                rows = self._table.gather(self._mine(items, steps))
                # Not plain `split`: in autograd's eyes, changing one batch in place would change its neighbours too.
                for batch in zip(*(torch.unsafe_split(tensor, sharding.unit) for tensor in rows), strict=True):
                    yield list(batch), full
            start += steps * sharding.global_size
            if steps < self._steps_at_once:
                if part := sharding.ragged(items[steps * sharding.global_size :], reader, start):
                    yield self._table.gather(part.items) if len(part.items) else None, Beside(part.taken, part.weight)
                return

    def _mine(self, items: Items, steps: int) -> Items:
        sharding = self._sharding
        whole = items[: steps * sharding.global_size]
        if sharding.size == 1:
            return whole
        index = torch.arange(whole.start, whole.stop) if isinstance(whole, range) else torch.as_tensor(whole)
        return index.view(steps, sharding.size, sharding.unit)[:, sharding.rank].reshape(-1)


def _fits(table: Table, device: torch.device) -> bool:
    if device.type != "cuda":
        return True  # already there, or not worth more than asking torch for it
    if all(t.device == device for t in table.tensors):
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return table.total_bytes < free * _DEVICE_SHARE


def _quickly(index: torch.Tensor, device: torch.device) -> torch.Tensor:
    """To the device without waiting for it."""
    return index.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else index


class InlineFeed:
    """Batches made in this process when they are asked for, and not before: the dataset may draw from the global
    generators, which are checkpointed as they stand between two batches."""

    def __init__(self, loader: "torch_data.DataLoader[Any]", plan: LoaderPlan, *, device: torch.device) -> None:
        self._dataset: Any = loader.dataset
        self._plan = plan
        self._device = device
        self._pin = loader.pin_memory and device.type == "cuda"
        self._make = self._maker(loader.collate_fn)

    def batches(self, epoch: int, start: int) -> Batches:
        tell_epoch(self._dataset, epoch)
        return moved(self._batches(epoch, start), self._device, pin=self._pin)

    def _batches(self, epoch: int, start: int) -> Batches:
        make = self._make
        for part in self._plan.sharding.parts(self._plan.order.open(epoch, start), start):
            yield make(_indices(part, self._plan)) if len(part.items) else None, Beside(part.taken, part.weight)

    def _maker(self, collate: Callable[[Any], Any]) -> Callable[[list[Any]], Any]:
        dataset = self._dataset
        if not self._plan.collated:
            return lambda indices: collate(dataset[indices[0]])
        if (read_batch := getattr(dataset, "__getitems__", None)) is not None:
            return lambda indices: collate(read_batch(indices))
        return lambda indices: collate([dataset[index] for index in indices])


class WorkerFeed:
    """Batches made in worker processes by a torch DataLoader, which is given our order and our seeds."""

    def __init__(
        self, loader: "torch_data.DataLoader[Any]", plan: LoaderPlan, *, seed: int, device: torch.device
    ) -> None:
        self._plan = plan
        self._seed = seed
        self._device = device
        self._dataset = loader.dataset
        self._requests = _Requests(plan)
        # A generator of its own, or each start of the workers would draw from the global one.
        self._generator = torch.Generator()
        how: dict[str, Any] = {"batch_sampler": self._requests}
        if not plan.collated:
            how = {"sampler": self._requests, "batch_size": None}
        self._loader: torch_data.DataLoader[Any] | None = torch_data.DataLoader(
            SeededDataset(loader.dataset, seed=seed),
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory and device.type == "cuda",
            timeout=loader.timeout,
            worker_init_fn=functools.partial(_start_worker, user_init=loader.worker_init_fn),
            multiprocessing_context=loader.multiprocessing_context,
            generator=self._generator,
            prefetch_factor=loader.prefetch_factor,
            persistent_workers=loader.persistent_workers,
            **how,
        )

    def batches(self, epoch: int, start: int) -> Batches:
        tell_epoch(self._dataset, epoch)
        return moved(self._batches(epoch, start), self._device, ahead=True)

    def _batches(self, epoch: int, start: int) -> Batches:
        self._generator.manual_seed(mix(self._seed, epoch))
        asked = self._requests.begin(epoch, start)
        for batch in () if self._loader is None else self._loader:
            yield batch, asked.popleft()
        if asked:
            yield None, asked.popleft()

    def close(self) -> None:
        self._loader = None  # workers end with it, also those that persist


class _Requests:
    """The sampler of the inner loader. Keeps what goes beside each batch until the workers have made it."""

    def __init__(self, plan: LoaderPlan) -> None:
        self._plan = plan
        self._epoch = 0
        self._start = 0
        self._asked: deque[Beside] = deque()

    def begin(self, epoch: int, start: int) -> deque[Beside]:
        self._epoch, self._start, self._asked = epoch, start, deque()
        return self._asked

    def __iter__(self) -> Iterator[Fetch]:
        plan, epoch, asked = self._plan, self._epoch, self._asked
        for part in plan.sharding.parts(plan.order.open(epoch, self._start), self._start):
            asked.append(Beside(part.taken, part.weight))
            if len(part.items):
                position = part.position << _BATCH_BITS if plan.batches else part.position
                yield Fetch(epoch, position, _indices(part, plan))


def _start_worker(worker: int, *, user_init: Callable[[int], None] | None) -> None:
    """In the worker: show user code its own dataset, not the one around it."""
    info = torch_data.get_worker_info()
    if info is not None and isinstance(info.dataset, SeededDataset):
        object.__setattr__(info, "dataset", info.dataset.dataset)  # it is frozen
    if user_init is not None:
        user_init(worker)


def _indices(part: Part, plan: LoaderPlan) -> list[Any]:
    items = part.items[0] if plan.batches else part.items
    return items.tolist() if isinstance(items, torch.Tensor) else list(items)
