"""A pool: a named engine with its capacity."""

import hashlib
from functools import reduce
from operator import or_
from typing import Annotated, Literal

from pydantic import Field

from stoker.schema.job import Amount, RoleSpec, Share
from stoker.schema.launch import Role
from stoker.schema.model import Model

Tier = dict[Role, RoleSpec]

# AI Platform's tiers. A pool's owner replaces any of them in `[pools.NAME.tiers.TIER]` of config.toml.
DEFAULT_TIERS: dict[str, Tier] = {
    "BASIC": {Role.CHIEF: RoleSpec()},
    "STANDARD_1": {Role.CHIEF: RoleSpec(), Role.WORKER: RoleSpec(count=4), Role.PS: RoleSpec(count=3)},
    "PREMIUM_1": {Role.CHIEF: RoleSpec(), Role.WORKER: RoleSpec(count=19), Role.PS: RoleSpec(count=11)},
    "BASIC_GPU": {Role.CHIEF: RoleSpec(gpus=1)},
}


class RayPool(Model):
    """What is to be known of a Ray cluster; the fields of `[pools.NAME]` that are Ray's."""

    address: str
    python: str | None = None  # with the cluster's versions of Ray and Python; the server's own if not given
    node_python: str | None = None  # of supervisors on the nodes, and so the default runtime; else that of Ray there
    home: str | None = None  # where nodes keep packages, environments and run directories
    placement: Literal["pack", "spread"] = "pack"
    resources: dict[str, Amount] = {}  # of Ray's own names, taken by each node of a run
    server_url: str | None = None  # as the nodes see the server
    artifacts: str | None = None  # a storage URL for checkpoints and models, where nodes have disks of their own

    @property
    def key(self) -> str:
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:8]


class Pool(Model):
    """A named engine with its capacity."""

    name: str
    engine: Literal["local", "ray"] = "local"
    capacity: Share
    nodes: tuple[Share, ...] = ()  # of several machines, what each has; none is one machine of this capacity
    autoscale: bool = False  # a job may ask for more than there is now, and waits until the cluster has grown
    max_nodes: Annotated[int, Field(ge=1)] | None = None  # with CPUs or GPUs, to which it may grow
    largest_node: Share | None = None  # that it can have, as its owner said or as was seen; others are as those there
    most: Share = Share(cpus=1e9, memory_gb=1e9, gpus=1e9)  # of its cluster that stoker may take
    gpu_types: dict[str, str] = {}  # as jobs call them, and the cluster's resource that such nodes have; none is any
    ray: RayPool | None = None
    trouble: str = ""  # why nothing can be started there now
    tiers: dict[str, Tier] = DEFAULT_TIERS
    ignore_accelerators: bool = False

    @property
    def engine_name(self) -> str:
        """Which engine: each cluster is one of its own."""
        return self.engine if self.engine == "local" else f"{self.engine}:{self.name}"

    @property
    def limit(self) -> Share:
        """What it has, or could have once it has grown."""
        if not self.autoscale:
            return self.capacity
        if self.max_nodes is None or self.new_node is None:
            return self.most
        # Those that are there may go, and others come in their place.
        return Share.total([self.new_node] * max(self.max_nodes, len(self.nodes))) & self.most

    @property
    def new_node(self) -> Share | None:
        """What a node that comes has, as far as anybody knows: as the largest that was ever there, or was promised.

        None where none can come.
        """
        if not self.autoscale:
            return None
        known = [*self.nodes, *([] if self.largest_node is None else [self.largest_node])]
        return reduce(or_, known) if known else None

    @property
    def is_unsized(self) -> bool:
        """Whether nobody knows yet what its nodes will have: it has none now, and its owner did not say."""
        return self.autoscale and self.new_node is None

    @property
    def slots(self) -> int:
        """How many one-slot runs fit: GPUs where there are any, else cores."""
        return int(self.capacity.gpus or self.capacity.cpus)
