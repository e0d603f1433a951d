"""A pool's capacity, and what a job's words about size (slots, tier, machine types) come to on it."""

import re
from typing import Literal

from stoker.errors import UsageError
from stoker.schema.job import Resources, Role, RoleSpec, Share
from stoker.schema.launch import Replica
from stoker.schema.model import Model

Tier = dict[Role, RoleSpec]

# AI Platform's tiers. A pool's owner replaces any of them in `[pools.NAME.tiers.TIER]` of config.toml.
DEFAULT_TIERS: dict[str, Tier] = {
    "BASIC": {Role.CHIEF: RoleSpec()},
    "STANDARD_1": {Role.CHIEF: RoleSpec(), Role.WORKER: RoleSpec(count=4), Role.PS: RoleSpec(count=3)},
    "PREMIUM_1": {Role.CHIEF: RoleSpec(), Role.WORKER: RoleSpec(count=19), Role.PS: RoleSpec(count=11)},
    "BASIC_GPU": {Role.CHIEF: RoleSpec(gpus=1)},
}


class Pool(Model):
    """A named engine with its capacity."""

    name: str
    engine: Literal["local"] = "local"
    capacity: Share
    tiers: dict[str, Tier] = DEFAULT_TIERS
    ignore_accelerators: bool = False

    @property
    def slots(self) -> int:
        """How many one-slot runs fit: GPUs where there are any, else cores."""
        return int(self.capacity.gpus or self.capacity.cpus)


def replicas_for(resources: Resources, pool: Pool) -> tuple[Replica, ...]:
    """The processes this comes to on this pool; UsageError when it could never hold them."""
    roles = _roles(resources, pool)
    replicas: list[Replica] = []
    for role in Role:
        spec = _sized(roles[role], pool) if role in roles else RoleSpec(count=0)
        for index in range(spec.count):
            ranked = role in (Role.CHIEF, Role.WORKER)
            rank = sum(r.rank is not None for r in replicas) if ranked else None
            replicas.append(
                Replica(role=role, index=index, rank=rank, cpus=spec.cpus, memory_gb=spec.memory_gb, gpus=spec.gpus)
            )
    _check_fits(resources, replicas, pool)
    return tuple(replicas)


def total(replicas: tuple[Replica, ...] | list[Replica]) -> Share:
    return Share(
        cpus=sum(r.cpus for r in replicas),
        memory_gb=sum(r.memory_gb for r in replicas),
        gpus=sum(r.gpus for r in replicas),
    )


def fits(need: Share, free: Share) -> bool:
    tiny = 1e-9  # fractions of a GPU add up inexactly
    return need.cpus <= free.cpus + tiny and need.memory_gb <= free.memory_gb + tiny and need.gpus <= free.gpus + tiny


def in_words(share: Share) -> str:
    parts = [f"{share.cpus:g} CPU{'' if share.cpus == 1 else 's'}"]
    if share.memory_gb:
        parts.append(f"{share.memory_gb:g} GB")
    parts.append(f"{share.gpus:g} GPU{'' if share.gpus == 1 else 's'}")
    return ", ".join(parts)


def _roles(resources: Resources, pool: Pool) -> Tier:
    if resources.roles is not None:
        return resources.roles
    if resources.tier is not None:
        tier = resources.tier.upper().replace("-", "_")
        if tier not in pool.tiers:
            raise UsageError(
                f"Pool {pool.name!r} has no scale tier {tier}. It has: {', '.join(sorted(pool.tiers))}."
                f" Its owner can add one under [pools.{pool.name}.tiers.{tier}] in config.toml."
            )
        return pool.tiers[tier]
    gpus = resources.cpus if resources.slot_is_gpu and pool.capacity.gpus else resources.gpus
    each = RoleSpec(cpus=resources.cpus, memory_gb=resources.memory_gb, gpus=gpus)
    return {Role.CHIEF: each, Role.WORKER: each.with_(count=resources.slots - 1)}


_MACHINE = re.compile(r"[a-z]+\d+[a-z]?-(?:standard|highmem|highcpu|megamem|ultramem|megagpu|highgpu)-(\d+)g?")
_LEGACY_MACHINES = {"standard": 4, "large_model": 8, "complex_model_s": 8, "complex_model_m": 16, "complex_model_l": 32}
_LEGACY_GPUS = {"standard_gpu": 1, "complex_model_m_gpu": 4, "complex_model_l_gpu": 8, "standard_p100": 1}


def _sized(role: RoleSpec, pool: Pool) -> RoleSpec:
    """A machine type is a size, not a need: it becomes as many CPUs as it has, or the pool's if that has fewer."""
    gpus = 0.0 if pool.ignore_accelerators else role.gpus
    if role.machine is None:
        return role.with_(gpus=gpus)
    known = _MACHINE.fullmatch(role.machine)
    cpus = int(known[1]) if known else _LEGACY_MACHINES.get(role.machine, 1)
    if not pool.ignore_accelerators:
        gpus = gpus or _LEGACY_GPUS.get(role.machine, 0)
    return role.with_(cpus=min(cpus, pool.capacity.cpus), gpus=gpus)


def _check_fits(resources: Resources, replicas: list[Replica], pool: Pool) -> None:
    need = total(replicas)
    if fits(need, pool.capacity):
        return
    what = f"Scale tier {resources.tier}" if resources.tier else "This job"
    hint = "Ask for less, choose another pool with --region, or change the pool's table in config.toml."
    if need.gpus > pool.capacity.gpus == 0:
        hint = f"To run on CPUs all the same, set ignore_accelerators = true under [pools.{pool.name}] in config.toml."
    raise UsageError(
        f"{what} needs {in_words(need)} in {len(replicas)} process{'es' if len(replicas) > 1 else ''};"
        f" pool {pool.name!r} has {in_words(pool.capacity)} and can never hold it. {hint}"
    )
