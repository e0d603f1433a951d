"""Random draws of datasets: the same again after a resume at any batch, with workers and without."""

import multiprocessing
import random

import numpy
import pytest
import torch
from torch.utils import data as torch_data

from stoker.pytorch.data.loader import DataLoader, open_training
from stoker.pytorch.data.random import PrivateRandom, mix


class Noisy(torch_data.Dataset):
    """Sample i with a draw from each generator that augmentations use."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> list[float]:
        return [float(index), random.random(), float(numpy.random.rand()), float(torch.rand(()))]


class NoisyBatches(Noisy):
    """The same, for a whole batch at once."""

    def __getitems__(self, indices: list[int]) -> list[list[float]]:
        noise = torch.rand(len(indices))
        return [[float(index), float(one)] for index, one in zip(indices, noise, strict=True)]


def masking(samples: list[list[float]]) -> torch.Tensor:
    """A collate function that draws, as one for masked language models does."""
    batch = torch.tensor(samples)
    return torch.cat([batch, torch.rand(len(batch), 1)], dim=1)


def tensors(samples: list[list[float]]) -> torch.Tensor:
    return torch.tensor(samples, dtype=torch.float64)


def open_(loader, *, rank=0, size=1, **where):
    return open_training(loader, seed=5, rank=rank, size=size, device="cpu", **where)


def rng_state():
    return torch.get_rng_state(), random.getstate(), numpy.random.get_state()


def set_rng_state(state):
    torch.set_rng_state(state[0])
    random.setstate(state[1])
    numpy.random.set_state(state[2])


def train(stream, steps: int) -> list[torch.Tensor]:
    """Batches, with a model that draws in between."""
    seen = []
    for _ in range(steps):
        seen.append(next(stream))
        seen.append(torch.rand(3))  # dropout
    return seen


@pytest.mark.parametrize("dataset", [Noisy(), NoisyBatches()])
@pytest.mark.parametrize("collate", [tensors, masking])
def test_draws_without_workers_come_from_the_checkpointed_generators(dataset, collate):
    def loader():
        return DataLoader(dataset, batch_size=3, shuffle=True, collate_fn=collate)

    start = rng_state()
    straight = train(open_(loader()), 9)

    for stop in range(1, 8):
        set_rng_state(start)
        stopped = open_(loader())
        before = train(stopped, stop)
        checkpoint = (stopped.state_dict(), rng_state())
        torch.rand(100), random.random(), numpy.random.rand()  # the process goes on, or is another
        resumed = open_(loader(), state=checkpoint[0])
        set_rng_state(checkpoint[1])
        after = train(resumed, 9 - stop)
        assert all(torch.equal(a, b) for a, b in zip(before + after, straight, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "collate", "persistent"),
    [(Noisy(), tensors, True), (Noisy(), masking, False), (NoisyBatches(), tensors, False)],
)
def test_draws_in_workers_depend_on_the_samples_place_alone(dataset, collate, persistent):
    def loader(workers=2):
        return DataLoader(
            dataset, 3, shuffle=True, collate_fn=collate, num_workers=workers, persistent_workers=persistent
        )

    stream = open_(loader())
    straight = [next(stream) for _ in range(9)]
    stopped = open_(loader(workers=1))
    before = [next(stopped) for _ in range(5)]
    resumed = open_(loader(), state=stopped.state_dict())
    after = [next(resumed) for _ in range(4)]

    assert all(torch.equal(a, b) for a, b in zip(before + after, straight, strict=True))
    draws = [batch[:, -1] for batch in straight]
    assert len(torch.cat(draws).unique()) == 10 + 10 + 3  # no two samples share a draw, nor do two epochs


@pytest.mark.slow
def test_draws_in_workers_are_the_same_at_any_number_of_ranks():
    def seen(size):
        loader = DataLoader(Noisy(), 4 // size, shuffle=True, collate_fn=tensors, num_workers=1)
        streams = [open_(loader, rank=rank, size=size) for rank in range(size)]
        return [torch.cat([next(stream) for stream in streams]) for _ in range(4)]

    assert all(torch.equal(a, b) for a, b in zip(seen(1), seen(2), strict=True))


@pytest.mark.slow
def test_workers_leave_the_global_generators_alone_and_a_prefetched_batch_is_given_again():
    before = rng_state()

    loader = DataLoader(Noisy(), 2, shuffle=True, collate_fn=tensors, num_workers=2, prefetch_factor=4)
    stream = open_(loader)
    first = next(stream)  # by now more have been asked for
    second = next(open_(loader, state=stream.state_dict()))

    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert stream.position == 2
    assert torch.equal(second, next(stream))
    assert not torch.equal(first, second)


@pytest.mark.slow
def test_closing_a_stream_ends_its_workers():
    before = set(multiprocessing.active_children())
    stream = open_(DataLoader(Noisy(), 2, collate_fn=tensors, num_workers=2, persistent_workers=True))
    next(stream)
    workers = set(multiprocessing.active_children()) - before

    stream.close()

    assert len(workers) == 2
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()


class Opened(torch_data.Dataset):
    """Needs worker_init_fn to find it."""

    handle = 0

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index + self.handle


def open_dataset(worker: int) -> None:
    torch_data.get_worker_info().dataset.handle = 100


@pytest.mark.slow
def test_worker_init_fn_finds_the_users_own_dataset():
    stream = open_(DataLoader(Opened(), 4, num_workers=1, worker_init_fn=open_dataset))

    assert next(stream).tolist() == [100, 101, 102, 103]


@pytest.mark.slow
def test_a_dataset_changed_between_epochs_reaches_new_workers():
    class Epochs(Opened):
        def set_epoch(self, epoch: int) -> None:
            self.handle = epoch * 10

    stream = open_(DataLoader(Epochs(), 4, num_workers=1))

    assert [next(stream).tolist() for _ in range(2)] == [[0, 1, 2, 3], [10, 11, 12, 13]]


def test_private_random_is_in_place_inside_and_gone_outside():
    def draw():
        return random.random(), float(numpy.random.rand()), float(torch.rand(()))

    random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
    plain = [draw(), draw()]

    private = PrivateRandom(7)
    random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
    outside = [draw()]
    with private:
        inside = [draw()]
    saved = private.state_dict()
    with private:
        inside.append(draw())
    outside.append(draw())
    other = PrivateRandom(8)
    other.load_state_dict(saved)
    with other:
        again = draw()

    assert outside == plain
    assert again == inside[1] != inside[0]


def test_mix_tells_neighbours_apart():
    assert len({mix(seed, epoch, i) for seed in range(4) for epoch in range(4) for i in range(100)}) == 1600
    assert mix(1, 2) == 5934340693050249675  # a checkpoint is resumed by later versions too
