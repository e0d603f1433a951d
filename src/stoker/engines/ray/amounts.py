"""What runs ask of a Ray cluster and what its nodes have: in Ray's own names, in ours, and in words."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_ALMOST = 1e-9  # fractions of a GPU add up inexactly


def bundle(replicas: Sequence[Mapping[str, Any]], resources: Mapping[str, float]) -> dict[str, float]:
    """What a node with these replicas takes; `resources` are the pool's own, of each node."""
    amounts = {
        "CPU": sum(replica.get("cpus", 1.0) for replica in replicas),
        "GPU": gpus([replica.get("gpus", 0.0) for replica in replicas]),
        "memory": float(int(sum(replica.get("memory_gb", 0.0) for replica in replicas) * 1e9)),
        **resources,
    }
    for replica in replicas:
        if resource := replica.get("gpu_resource"):
            # Ray marks nodes by one of each kind of GPU, and asks for a trifle of it.
            amounts[resource] = max(amounts.get(resource, 0.0), 0.001)
    # A bundle of nothing is refused by Ray; one that takes next to nothing is placed anywhere.
    return {name: amount for name, amount in amounts.items() if amount > 0} or {"CPU": 0.001}


def gpus(parts: Iterable[float]) -> float:
    """How many GPUs these parts take together: Ray gives a part of one, or whole ones.

    Parts are put together in order as supervisors do it, so that no process has its part on two.
    """
    whole, left = 0.0, 0.0  # GPUs that are begun, and what is left of the last one
    parts = [part for part in parts if part > 0]
    for part in parts:
        if part >= 1 or part > left + _ALMOST:
            whole, left = whole + math.ceil(part - _ALMOST), math.ceil(part - _ALMOST)
        left -= part
    return whole if whole > 1 else round(min(sum(parts), whole), 4)


def share(resources: Mapping[str, float]) -> dict[str, float]:
    return {
        "cpus": resources.get("CPU", 0.0),
        "memory_gb": round(resources.get("memory", 0.0) / 1e9, 1),
        "gpus": resources.get("GPU", 0.0),
    }


def custom(resources: Mapping[str, float]) -> dict[str, float]:
    own = ("CPU", "GPU", "memory", "object_store_memory")
    return {name: amount for name, amount in resources.items() if name not in own and not name.startswith("node:")}


def shortage(bundles: Sequence[Mapping[str, float]], *, free: Mapping[str, float], has: Mapping[str, float]) -> str:
    """What a run waits for, and what the cluster has of it."""
    names = sorted({name for one in bundles for name in one})
    need = {name: sum(one.get(name, 0.0) for one in bundles) for name in names}
    places = f" on {len(bundles)} nodes" if len(bundles) > 1 else ""
    asks = ", ".join(_amount(name, amount) for name, amount in need.items())
    # Their sum may do while no node has enough left: so what is free is said of all that is asked for.
    left = ", ".join(f"{_amount(name, free.get(name, 0.0))} of {_number(name, has.get(name, 0.0))}" for name in need)
    return f"waits for {asks}{places}; free on the cluster: {left}"


def _number(name: str, amount: float) -> str:
    return f"{amount / 1e9:.3g} GB" if name == "memory" else f"{amount:g}"


def _amount(name: str, amount: float) -> str:
    """`2 CPU`, `8 GB of memory`, `1 a100`: in Ray's own words, which are the owner's for custom resources."""
    return f"{_number(name, amount)} {'of memory' if name == 'memory' else name}"
