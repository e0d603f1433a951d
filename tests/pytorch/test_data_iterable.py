"""Data that can only be gone through: dealt out in turn, and gone on with by its state or by reading."""

import random

import pytest
import torch
from torch.utils import data as torch_data

from stoker.errors import UsageError
from stoker.pytorch.data.loader import open_training


class Stream(torch_data.IterableDataset):
    """Eleven numbers, each with a draw; draws of the epoch before show if it is not begun anew."""

    def __iter__(self):
        for number in range(11):
            yield float(number), random.random(), float(torch.rand(()))


class StatefulStream(Stream):
    """Knows where it is, so that nothing must be read again."""

    def __init__(self) -> None:
        self.next = 0
        self.read = 0

    def __iter__(self):
        while self.next < 11:
            self.next += 1
            self.read += 1
            yield float(self.next - 1), random.random(), float(torch.rand(()))
        self.next = 0

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


class StatefulLoader:
    """A loader in torchdata's manner."""

    def __init__(self) -> None:
        self.done = 0

    def __iter__(self):
        while self.done < 6:
            self.done += 1
            yield torch.tensor([float(self.done), random.random()])
        self.done = 0

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, state):
        self.done = state["done"]


LOADERS = {
    "dataset": lambda: torch_data.DataLoader(Stream(), batch_size=2),
    "dataset with a state": lambda: torch_data.DataLoader(StatefulStream(), batch_size=2),
    "loader with a state": StatefulLoader,
    "list of batches": lambda: [torch.tensor([float(i)]) for i in range(7)],
}


def open_(loader, *, rank=0, size=1, **where):
    return open_training(loader, seed=5, rank=rank, size=size, device="cpu", **where)


def take(stream, steps: int) -> list[torch.Tensor]:
    taken = []
    for _ in range(steps):
        batch = next(stream)
        taken.append(torch.stack([torch.as_tensor(part) for part in batch]))
        torch.rand(3), random.random()  # a model draws too
    return taken


def equal(a, b) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("size", [1, 2])
def test_an_iterable_goes_on_after_any_batch_as_if_it_had_not_stopped(kind, size):
    straight = take(open_(LOADERS[kind](), rank=size - 1, size=size), 13)

    for stop in range(1, 10):
        stopped = open_(LOADERS[kind](), rank=size - 1, size=size)
        before = take(stopped, stop)
        resumed = open_(LOADERS[kind](), rank=size - 1, size=size, state=stopped.state_dict())
        assert equal(before + take(resumed, 13 - stop), straight)


@pytest.mark.parametrize("kind", LOADERS)
def test_an_iterable_goes_on_from_a_number_of_batches(kind):
    straight = take(open_(LOADERS[kind]()), 13)

    assert equal(take(open_(LOADERS[kind](), start_batch=8), 5), straight[8:])


def test_a_state_saves_the_reading():
    stopped = open_(torch_data.DataLoader(StatefulStream(), batch_size=2))
    take(stopped, 4)
    dataset = StatefulStream()

    resumed = open_(torch_data.DataLoader(dataset, batch_size=2), state=stopped.state_dict())
    take(resumed, 1)

    assert dataset.read == 2


def test_asking_for_the_state_changes_nothing():
    stream = open_(torch_data.DataLoader(StatefulStream(), batch_size=2))
    straight = take(open_(torch_data.DataLoader(StatefulStream(), batch_size=2)), 9)

    seen, states = [], []
    for _ in range(9):
        states.append([stream.state_dict()["feed"]["loader"] for _ in range(2)])
        seen += take(stream, 1)

    assert equal(seen, straight)
    assert all(first == second for first, second in states)


def test_another_ranks_state_is_read_over_instead():
    def loader():
        return torch_data.DataLoader(StatefulStream(), batch_size=1)

    straight = take(open_(loader(), rank=1, size=2), 9)
    chief = open_(loader(), rank=0, size=2)
    take(chief, 3)

    resumed = open_(loader(), rank=1, size=2, state=chief.state_dict())

    assert equal(take(resumed, 6), straight[3:])


def test_batches_are_dealt_out_in_turn_and_an_incomplete_round_is_dropped():
    batches = [torch.tensor([i]) for i in range(7)]
    streams = [open_(batches, rank=rank, size=3) for rank in range(3)]

    assert [stream.batches_per_epoch for stream in streams] == [2, 2, 2]
    assert [[int(b) for b in take(stream, 3)] for stream in streams] == [[0, 3, 0], [1, 4, 1], [2, 5, 2]]


def test_a_dataset_that_shards_itself_is_left_alone():
    class Sharded(Stream):
        sharded = True

    streams = [open_(torch_data.DataLoader(Sharded(), batch_size=11), rank=rank, size=2) for rank in range(2)]
    numbers, draws, _ = zip(*(next(stream) for stream in streams), strict=True)

    assert torch.equal(numbers[0], numbers[1])
    assert not torch.equal(draws[0], draws[1])


def test_the_length_is_known_only_if_the_data_says_it():
    class Long(Stream):
        def __len__(self):
            return 11

    assert open_(torch_data.DataLoader(Long(), batch_size=2)).batches_per_epoch == 6
    assert open_(torch_data.DataLoader(Stream(), batch_size=2)).batches_per_epoch is None


def test_an_iterator_cannot_be_trained_on_twice_and_says_so():
    stream = open_(iter([torch.zeros(1), torch.zeros(1)]))
    take(stream, 2)

    with pytest.raises(UsageError, match="is an iterator, and it has ended"):
        next(stream)


def test_datasets_are_told_the_epoch():
    class Told(torch_data.IterableDataset):
        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            yield self.epoch

    assert [int(batch) for batch in take(open_(torch_data.DataLoader(Told())), 3)] == [0, 1, 2]


def test_a_loader_with_an_iter_of_its_own_is_gone_through_as_it_is():
    class Doubling(torch_data.DataLoader):
        def __iter__(self):
            return (batch * 2 for batch in super().__iter__())

    stream = open_(Doubling([1, 2, 3], batch_size=3))

    assert next(stream).tolist() == [2, 4, 6]


@pytest.mark.slow
def test_draws_in_the_workers_of_an_iterable_are_the_same_after_a_resume():
    def loader():
        return torch_data.DataLoader(Stream(), batch_size=2, num_workers=1)

    straight = take(open_(loader()), 9)
    stopped = open_(loader())
    before = take(stopped, 4)
    resumed = open_(loader(), state=stopped.state_dict())

    assert equal(before + take(resumed, 5), straight)


def test_an_iterables_draws_do_not_touch_the_global_generators():
    before = (torch.get_rng_state(), random.getstate())
    stream = open_(torch_data.DataLoader(Stream(), batch_size=2), start_batch=3)
    for _ in range(9):
        next(stream)

    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
