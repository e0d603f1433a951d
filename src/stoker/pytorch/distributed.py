"""The other ranks: who they are, and exchanging small things with them.

With one rank everything here is trivial and no process group is made.
"""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch
import torch.distributed as dist

from stoker.errors import UsageError

__all__ = ["DistributedContext"]

T = TypeVar("T")


@dataclass(eq=False)
class DistributedContext:
    """This process among the ranks of a run.

    `local_*` count the ranks of this machine, `cross_*` the machines. All methods but the accessors and
    `shard_batch_size` are collective: every rank calls them, in the same order. Objects travel pickled over gloo, also
    on GPUs, so nothing here makes a GPU wait.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    _all: dist.ProcessGroup | None = None  # gloo, all ranks; None with one rank
    _local: dist.ProcessGroup | None = None  # gloo, the ranks of this machine; None with one
    _owns_default: bool = False

    @classmethod
    def from_env(cls, device: torch.device | str | None = None) -> "DistributedContext":
        """What torchrun's variables say; joins the process group when there are several ranks.

        The device is this rank's GPU where there is one, else the CPU. A process group that the user made is used as
        it is, and left alone by `close`.
        """
        context = _read(os.environ)
        context.device = _device(context) if device is None else torch.device(device)
        if context.device.type == "cuda":
            torch.cuda.set_device(context.device)
        if context.size > 1:
            context._join()
        return context

    def get_rank(self) -> int:
        return self.rank

    def get_size(self) -> int:
        return self.size

    def get_local_rank(self) -> int:
        return self.local_rank

    def get_num_agents(self) -> int:
        """How many machines there are."""
        return self.cross_size

    def shard_batch_size(self, global_batch_size: int) -> int:
        """This rank's part of a batch size for all ranks together.

        When it does not divide, every rank takes the part rounded down, with a warning: the ranks' gradients are
        averaged as equals, so their batches must be equal too.
        """
        if global_batch_size < self.size:
            raise UsageError(
                f"A global batch size of {global_batch_size} leaves some of the {self.size} ranks without a sample."
                f" Use {self.size} or more, or fewer ranks."
            )
        share, left_over = divmod(global_batch_size, self.size)
        if left_over:
            warnings.warn(
                f"A global batch size of {global_batch_size} does not divide by {self.size} ranks: each takes {share},"
                f" {share * self.size} in all. Use a multiple of {self.size} to get what you ask for.",
                stacklevel=2,
            )
        return share

    def gather(self, obj: T) -> list[T] | None:
        """Every rank's object, by rank, on the chief; None elsewhere."""
        return [obj] if self._all is None else _gather(obj, self._all)

    def gather_local(self, obj: T) -> list[T] | None:
        """Every object of this machine's ranks, on its first; None elsewhere."""
        return [obj] if self._local is None else _gather(obj, self._local)

    def allgather(self, obj: T) -> list[T]:
        """Every rank's object, by rank, on every rank."""
        return [obj] if self._all is None else _allgather(obj, self._all)

    def allgather_local(self, obj: T) -> list[T]:
        return [obj] if self._local is None else _allgather(obj, self._local)

    def broadcast(self, obj: T) -> T:
        """The chief's object, on every rank."""
        return obj if self._all is None else _broadcast(obj, self._all)

    def broadcast_local(self, obj: T) -> T:
        """The object of this machine's first rank."""
        return obj if self._local is None else _broadcast(obj, self._local)

    def all_reduce_any(self, flag: bool) -> bool:
        """Whether any rank says so: how ranks agree to stop."""
        if self._all is None:
            return flag
        said = torch.tensor([int(flag)])  # on the CPU: a GPU would have to finish its work first
        dist.all_reduce(said, op=dist.ReduceOp.MAX, group=self._all)
        return bool(said.item())

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self._all is not None:
            dist.barrier(group=self._all)

    def close(self) -> None:
        """Leave the process group, if it was made here. Safe to call twice."""
        groups = {group for group in (self._local, self._all) if group is not None}
        self._all = self._local = None
        if not dist.is_initialized():
            return  # the user left it before us, and our groups with it
        if self._owns_default:
            dist.destroy_process_group()
        else:
            for group in groups:
                dist.destroy_process_group(group)
        self._owns_default = False

    def _join(self) -> None:
        if not dist.is_initialized():
            if self.device.type == "cuda":
                dist.init_process_group("nccl", device_id=self.device)
            else:
                dist.init_process_group("gloo")
            self._owns_default = True
        gloo = dist.get_backend() == "gloo"
        self._all = dist.group.WORLD if gloo and self._owns_default else dist.new_group(backend="gloo")
        self._local = self._local_group()

    def _local_group(self) -> dist.ProcessGroup | None:
        if self.cross_size == 1:
            return self._all
        machines = self.allgather(self.cross_rank)
        mine = None
        for machine in sorted(set(machines)):  # every rank makes every group: that is torch's rule
            ranks = [rank for rank, where in enumerate(machines) if where == machine]
            group = dist.new_group(ranks, backend="gloo")
            if machine == self.cross_rank and len(ranks) > 1:
                mine = group
        return mine


def _read(environ: Mapping[str, str]) -> DistributedContext:
    size = _number(environ, "WORLD_SIZE", 1)
    if size == 1:
        return DistributedContext()
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not environ.get(name)]
    if missing:
        raise UsageError(
            f"WORLD_SIZE is {size} but {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set."
            " Start the ranks with `stoker local train --distributed`, as a job, or with torchrun."
        )
    rank = _number(environ, "RANK", 0)
    if not 0 <= rank < size:
        raise UsageError(f"RANK is {rank} and WORLD_SIZE {size}: a rank is from 0 to {size - 1}.")
    local_size = _number(environ, "LOCAL_WORLD_SIZE", size)
    return DistributedContext(
        rank=rank,
        size=size,
        local_rank=_number(environ, "LOCAL_RANK", rank % local_size),
        local_size=local_size,
        cross_rank=_number(environ, "GROUP_RANK", rank // local_size),
        cross_size=_number(environ, "GROUP_WORLD_SIZE", -(-size // local_size)),
    )


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(environ.get(name) or default)
    except ValueError:
        raise UsageError(f"{name} is {environ[name]!r}: torchrun sets a whole number there.") from None


def _device(context: DistributedContext) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    gpus = torch.cuda.device_count()
    if context.local_rank >= gpus:
        raise UsageError(
            f"Rank {context.rank} has no GPU: {context.local_size} ranks were started here and {gpus} GPU(s) are"
            f" visible. Start at most {gpus}, or set CUDA_VISIBLE_DEVICES to nothing to train on the CPU."
        )
    return torch.device("cuda", context.local_rank)


def _gather(obj: T, group: dist.ProcessGroup) -> list[T] | None:
    chief = dist.get_global_rank(group, 0)
    found: list[T | None] | None = [None] * group.size() if dist.get_rank() == chief else None
    dist.gather_object(obj, found, dst=chief, group=group)
    return found  # type: ignore[return-value]


def _allgather(obj: T, group: dist.ProcessGroup) -> list[T]:
    found: list[T | None] = [None] * group.size()
    dist.all_gather_object(found, obj, group=group)
    return found  # type: ignore[return-value]


def _broadcast(obj: T, group: dist.ProcessGroup) -> T:
    box = [obj]
    dist.broadcast_object_list(box, src=dist.get_global_rank(group, 0), group=group)
    return box[0]
