"""Randomness for the data alone: it comes from (seed, epoch, position), so that a resumed run draws the same again."""

import hashlib
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
import torch.utils.data

numpy: Any
try:
    import numpy
except ImportError:  # torch works without it
    numpy = None


def mix(*numbers: int) -> int:
    """One seed out of several numbers: neighbours give unrelated seeds, on every machine the same."""
    packed = struct.pack(f"<{len(numbers)}q", *numbers)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little") >> 1


def generator(*numbers: int) -> torch.Generator:
    return torch.Generator().manual_seed(mix(*numbers))


def seed_all(seed: int) -> None:
    """Seed what user code draws from on the CPU: random, numpy.random and torch."""
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)


class PrivateRandom:
    """A second set of random, numpy.random and torch: in place inside `with`, out of the way outside.

    For code that draws from the global generators in the training process, at moments that a resume does not repeat.
    """

    def __init__(self, *numbers: int) -> None:
        seed = mix(*numbers)
        self._python = random.Random(seed).getstate()
        self._torch = torch.Generator().manual_seed(seed).get_state()
        # numpy's generator is exchanged as an object: reading and writing its state takes 200 us.
        self._numpy = None if numpy is None else numpy.random.MT19937(seed)
        self._outside: list[tuple[Any, ...]] = []

    def __enter__(self) -> None:
        before = numpy.random.get_bit_generator() if self._numpy is not None else None
        self._outside.append((random.getstate(), torch.get_rng_state(), before))
        random.setstate(self._python)
        torch.set_rng_state(self._torch)
        if self._numpy is not None:
            numpy.random.set_bit_generator(self._numpy)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._python = random.getstate()
        self._torch = torch.get_rng_state()
        python, torchs, numpys = self._outside.pop()
        random.setstate(python)
        torch.set_rng_state(torchs)
        if numpys is not None:
            numpy.random.set_bit_generator(numpys)

    def state_dict(self) -> dict[str, Any]:
        """Numbers and tensors alone, to be loaded anywhere."""
        state: dict[str, Any] = {"python": self._python, "torch": self._torch}
        if self._numpy is not None:
            inner = self._numpy.state["state"]
            state["numpy"] = (torch.from_numpy(inner["key"].astype("int64")), int(inner["pos"]))
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        version, numbers, gauss = state["python"]
        self._python = (version, tuple(numbers), gauss)
        self._torch = state["torch"]
        if self._numpy is not None and "numpy" in state:
            key, pos = state["numpy"]
            inner = {"key": key.numpy().astype("uint32"), "pos": pos}
            self._numpy.state = {"bit_generator": "MT19937", "state": inner}


@dataclass(frozen=True, slots=True)
class Fetch:
    """What a worker process is asked for: these samples, of which the first is at `position` of the epoch's order."""

    epoch: int
    position: int
    indices: Sequence[Any]


class SeededDataset(torch.utils.data.Dataset[Any]):
    """A dataset whose draws depend on the sample's place in the order, not on which worker gets it, nor when.

    Each sample is drawn with a seed of its own, so augmentation is the same after a resume at any batch, and for any
    number of workers and ranks. A dataset that reads whole batches (`__getitems__`) is seeded once a batch. What a
    collate function draws follows from the last sample.
    """

    def __init__(self, dataset: Any, *, seed: int) -> None:
        self.dataset = dataset
        self.seed = seed

    def __getitem__(self, fetch: Fetch) -> Any:
        seed_all(mix(self.seed, fetch.epoch, fetch.position))
        return self.dataset[fetch.indices[0]]

    def __getitems__(self, fetch: Fetch) -> Any:
        read_batch = getattr(self.dataset, "__getitems__", None)
        if read_batch is not None:
            seed_all(mix(self.seed, fetch.epoch, fetch.position))
            return read_batch(fetch.indices)
        samples = []
        for position, index in enumerate(fetch.indices, start=fetch.position):
            seed_all(mix(self.seed, fetch.epoch, position))
            samples.append(self.dataset[index])
        return samples
