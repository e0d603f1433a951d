"""What a job's words about size (slots, tier, machine types) come to on a pool: replicas, each with its node."""

import re
from dataclasses import replace

from stoker.errors import DoesNotFitError, StokerError, UsageError
from stoker.schema.job import Resources, RoleSpec, Share
from stoker.schema.launch import Replica, Role
from stoker.schema.pool import Pool, Tier


def replicas_for(resources: Resources, pool: Pool) -> tuple[Replica, ...]:
    """The processes this comes to on this pool; UsageError when it could never hold them."""
    roles = _roles(resources, pool)
    replicas: list[Replica] = []
    for role in Role:
        spec = _sized(roles[role], pool) if role in roles else RoleSpec(count=0)
        kind = _gpu_resource(spec, pool)
        for index in range(spec.count):
            ranked = role in (Role.CHIEF, Role.WORKER)
            rank = sum(r.rank is not None for r in replicas) if ranked else None
            replicas.append(
                Replica(
                    role=role,
                    index=index,
                    rank=rank,
                    cpus=spec.cpus,
                    memory_gb=spec.memory_gb,
                    gpus=spec.gpus,
                    gpu_resource=kind,
                )
            )
    are_sizes = resources.tier is not None or all(role.machine or not role.count for role in roles.values())
    if pool.engine == "local" and are_sizes:
        replicas = _sharing(replicas, pool.capacity.cpus)
    _check_fits(resources, replicas, pool)
    if pool.engine == "local":
        return tuple(replicas)
    return _on_one_node(replicas, pool) if resources.single_node else _on_nodes(replicas, pool)


_LEAST_CPUS = 0.25  # of a process that shares them


def _sharing(replicas: list[Replica], cpus: float) -> list[Replica]:
    """On one machine the processes of a tier, or of several machines, share its CPUs: those are sizes, not needs."""
    need = Share.total(replicas).cpus
    if need <= cpus or len(replicas) * _LEAST_CPUS > cpus:
        return replicas
    return [replace(replica, cpus=replica.cpus * cpus / need) for replica in replicas]


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
    has_gpus = pool.capacity.gpus or (pool.new_node is not None and pool.new_node.gpus)
    gpus = resources.cpus if resources.slot_is_gpu and has_gpus else resources.gpus
    each = RoleSpec(cpus=resources.cpus, memory_gb=resources.memory_gb, gpus=gpus)
    return {Role.CHIEF: each, Role.WORKER: each.with_(count=resources.slots - 1)}


def _on_nodes(replicas: list[Replica], pool: Pool) -> tuple[Replica, ...]:
    """Each replica on a node of the run: few large ones, or as many as there are where the pool spreads.

    Which machine becomes which node is the cluster's to say; here it is only made sure that there are such machines.
    """
    if pool.is_unsized:  # each is a node of its own: the cluster puts together what goes together
        return tuple(replace(replica, node=number) for number, replica in enumerate(replicas))
    there = sorted(pool.nodes, key=lambda node: (node.gpus, node.cpus, node.memory_gb), reverse=True)
    choices: list[list[Share]] = [there]
    if pool.new_node is not None:
        most = max(pool.max_nodes or len(replicas) + len(there), len(there))
        # With more of them; or, because those that are there may go, with others in their place.
        choices = [there + [pool.new_node] * (most - len(there)), [pool.new_node] * most]
    spread = pool.ray is not None and pool.ray.placement == "spread"
    lacking = replicas[0]
    for sizes in choices:
        held, left = _fill(replicas, sizes, spread=spread)
        if left is None:
            filled = sorted((mine for mine in held if mine), key=lambda mine: replicas.index(mine[0]))
            node_of = {replica.name: node for node, mine in enumerate(filled) for replica in mine}  # the chief's is 0
            return tuple(replace(replica, node=node_of[replica.name]) for replica in replicas)
        lacking = left
    raise UsageError(
        f"{lacking.name} needs {Share.total([lacking]).in_words}, which no node of pool {pool.name!r} has left beside"
        f" the others of this job: {_sizes(pool)}. Ask for smaller processes{_or_say_so(pool)}."
    )


def _fill(replicas: list[Replica], sizes: list[Share], *, spread: bool) -> tuple[list[list[Replica]], Replica | None]:
    """What each of these nodes is to hold, and the first replica that has no place then."""
    held: list[list[Replica]] = [[] for _ in sizes]
    for replica in replicas:
        # The emptiest first, or in order; and no further than the first that will do: there may be thousands.
        order = sorted(range(len(sizes)), key=lambda place: len(held[place])) if spread else range(len(sizes))
        place = next((place for place in order if Share.total([*held[place], replica]).fits(sizes[place])), None)
        if place is None:
            return held, replica
        held[place].append(replica)
    return held, None


def _on_one_node(replicas: list[Replica], pool: Pool) -> tuple[Replica, ...]:
    need = Share.total(replicas)
    to_come = [pool.new_node] if pool.new_node is not None else []
    if not pool.is_unsized and not any(need.fits(node) for node in (*pool.nodes, *to_come)):
        raise UsageError(
            f"This job needs {need.in_words} on one node (single_node), which no node of pool {pool.name!r} has:"
            f" {_sizes(pool)}. Ask for less, or leave single_node out{_or_say_so(pool)}."
        )
    return tuple(replace(replica, node=0) for replica in replicas)


def _sizes(pool: Pool) -> str:
    if pool.new_node is not None:
        return f"the largest that it has or can start have {pool.new_node.in_words}"
    sizes = "; ".join(node.in_words for node in pool.nodes[:5]) + ("; …" if len(pool.nodes) > 5 else "")
    return f"its {len(pool.nodes)} nodes have {sizes}"


def _or_say_so(pool: Pool) -> str:
    """What the owner of a cluster can do whose next nodes are larger than those that were ever there."""
    hint = (
        f", or, if it can start larger nodes, say so: largest_node = {{ cpus = 8, gpus = 1 }} under [pools.{pool.name}]"
    )
    return f"{hint} in config.toml" if pool.autoscale else ""


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
    return role.with_(cpus=min(cpus, _most_cpus(pool)), gpus=gpus)


def _most_cpus(pool: Pool) -> float:
    """Of one node."""
    if pool.autoscale:
        return pool.most.cpus if pool.new_node is None else pool.new_node.cpus
    return max(node.cpus for node in pool.nodes) if pool.nodes else pool.capacity.cpus


def _gpu_resource(role: RoleSpec, pool: Pool) -> str | None:
    """A pool whose owner has not said which kinds it has takes any name for the GPUs that there are."""
    if role.gpus <= 0 or role.count == 0 or role.gpu_type is None or not pool.gpu_types:
        return None
    if role.gpu_type not in pool.gpu_types:
        raise UsageError(
            f"Pool {pool.name!r} has no GPUs called {role.gpu_type}. It has: {', '.join(sorted(pool.gpu_types))}."
            f" Its owner can add a name under [pools.{pool.name}.gpu_types] in config.toml."
        )
    return pool.gpu_types[role.gpu_type]


def _check_fits(resources: Resources, replicas: list[Replica], pool: Pool) -> None:
    need = Share.total(replicas)
    if pool.trouble:
        raise StokerError(pool.trouble)
    if need.fits(pool.limit):
        return
    what = f"Scale tier {resources.tier}" if resources.tier else "This job"
    has = f"has {pool.capacity.in_words}"
    if pool.autoscale:
        has = f"has {pool.capacity.in_words} now, may grow to {pool.limit.in_words}"
    hint = "Ask for less, choose another pool with --region, or change the pool's table in config.toml."
    if need.gpus > pool.limit.gpus == 0:
        hint = f"To run on CPUs all the same, set ignore_accelerators = true under [pools.{pool.name}] in config.toml."
    if pool.autoscale and pool.limit != pool.most:
        hint = f"Ask for less, choose another pool with --region{_or_say_so(pool)}."
    raise DoesNotFitError(
        f"{what} needs {need.in_words} in {len(replicas)} process{'es' if len(replicas) > 1 else ''};"
        f" pool {pool.name!r} {has} and can never hold it. {hint}"
    )
