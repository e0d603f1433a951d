"""The random number generators of this process: seed them, keep them, put them back."""

import random
from typing import Any, cast

import torch

try:
    import numpy
except ImportError:  # torch works without it
    numpy = None  # type: ignore[assignment]

_SEEDS = 2**32  # numpy takes no larger one


def seed_all(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators, on every device."""
    random.seed(seed)
    torch.manual_seed(seed)
    if numpy is not None:
        numpy.random.seed(seed % _SEEDS)


def seed_of_rank(seed: int, rank: int, step: int = 0) -> int:
    """A seed for one rank's own draws (dropout, augmentation), far from the other ranks' and seeds'."""
    generator = random.Random(f"{seed}/{rank}/{step}")
    return generator.randrange(2**63)


def get_state(device: torch.device) -> dict[str, Any]:
    """All generators' states as tensors and plain values."""
    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {
        "python": {"version": version, "internal": torch.tensor(internal, dtype=torch.int64), "gauss": gauss},
        "torch": torch.get_rng_state(),
    }
    if numpy is not None:
        name, keys, position, has_gauss, cached = cast(tuple[Any, ...], numpy.random.get_state(legacy=True))
        state["numpy"] = {
            "name": name,
            "keys": torch.tensor(keys.tolist(), dtype=torch.int64),
            "rest": [int(position), int(has_gauss), float(cached)],
        }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_state(state: dict[str, Any], device: torch.device) -> None:
    """Put back what `get_state` took. A generator that is not here now, or was not then, is left alone."""
    python = state["python"]
    random.setstate((python["version"], tuple(python["internal"].tolist()), python["gauss"]))
    torch.set_rng_state(state["torch"])
    if numpy is not None and "numpy" in state:
        kept = state["numpy"]
        keys = numpy.array(kept["keys"].tolist(), dtype=numpy.uint32)
        numpy.random.set_state((kept["name"], keys, *kept["rest"]))
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
