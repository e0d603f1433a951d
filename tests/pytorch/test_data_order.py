"""The promise of the data: one global order, whoever reads it, and from wherever it is read on."""

import itertools
import random

import numpy
import pytest
import torch
from torch.utils import data as torch_data

from stoker.errors import UsageError
from stoker.pytorch import samplers
from stoker.pytorch.data.loader import DataLoader, open_training


class Numbers(torch_data.Dataset):
    """Sample i is the number i."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


class BucketSampler:
    """A batch sampler of the kind people write: batches of several sizes, shuffled by the global generators."""

    def __len__(self) -> int:
        return 5

    def __iter__(self):
        batches = [[0, 1, 2], [3], [4, 5], [6, 7, 8], [9]]
        random.shuffle(batches)
        return iter(batches)


class EndlessSampler:
    """Without a length and without an end, drawing from numpy."""

    def __iter__(self):
        while True:
            yield int(numpy.random.randint(10))


def open_(loader, *, rank=0, size=1, **where):
    return open_training(loader, seed=5, rank=rank, size=size, device="cpu", **where)


def numbers_of(batch) -> list[int]:
    return (batch[0] if isinstance(batch, list) else batch).tolist()


def take(stream, steps: int) -> list[list[int]]:
    return [numbers_of(next(stream)) for _ in range(steps)]


def global_batches(loader, *, size: int, steps: int, state=None) -> list[list[int]]:
    """What all ranks together see at each step, in the order of the ranks; repeated samples (weight 0) left out."""
    streams = [open_(loader, rank=rank, size=size, state=state) for rank in range(size)]
    return [
        [number for stream in streams for number in numbers_of(next(stream)) if stream.weight] for _ in range(steps)
    ]


def global_order(loader, *, size: int, samples: int, state=None) -> list[int]:
    """The first so many samples that all ranks together see."""
    streams = [open_(loader, rank=rank, size=size, state=state) for rank in range(size)]
    seen: list[int] = []
    while len(seen) < samples:
        seen += [number for stream in streams for number in numbers_of(next(stream)) if stream.weight]
    return seen[:samples]


def test_each_epoch_holds_every_sample_once_in_an_order_of_its_own():
    stream = open_(DataLoader(Numbers(10), batch_size=4, shuffle=True))

    epochs = [sum(take(stream, 3), []) for _ in range(3)]

    assert stream.batches_per_epoch == 3
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_order_comes_from_the_seed():
    loader = DataLoader(Numbers(100), batch_size=100, shuffle=True)
    first = [numbers_of(next(open_training(loader, seed=s, rank=0, size=1, device="cpu"))) for s in (1, 1, 2)]

    assert first[0] == first[1] != first[2]


@pytest.mark.parametrize("length", [96, 100, 97, 11])
@pytest.mark.parametrize("shuffle", [True, False])
def test_the_global_order_is_the_same_at_any_number_of_ranks(length, shuffle):
    def seen(size):
        loader = DataLoader(Numbers(length), batch_size=12 // size, shuffle=shuffle)
        return global_batches(loader, size=size, steps=20)

    assert seen(1) == seen(2) == seen(3) == seen(4) == seen(12)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_ranks_have_as_many_batches_as_one_with_the_same_global_batch(size):
    loader = DataLoader(Numbers(31), batch_size=12 // size)

    assert {open_(loader, rank=rank, size=size).batches_per_epoch for rank in range(size)} == {3}


def test_a_ragged_last_batch_is_split_evenly_with_weights_that_make_the_mean_right():
    loader = DataLoader(Numbers(21), batch_size=4)  # with 2 ranks: 8, 8 and 5 of 21
    streams = [open_(loader, rank=rank, size=2) for rank in range(2)]
    batches = [take(stream, 3)[-1] for stream in streams]

    assert batches == [[16, 17, 18], [19, 20]]
    ddp_average = sum(s.weight * sum(b) / len(b) for s, b in zip(streams, batches, strict=True)) / 2
    assert ddp_average == pytest.approx((16 + 17 + 18 + 19 + 20) / 5)


def test_a_rank_with_nothing_left_repeats_a_sample_with_weight_zero():
    loader = DataLoader(Numbers(7), batch_size=2)  # with 3 ranks: 6 and 1 of 7
    streams = [open_(loader, rank=rank, size=3) for rank in range(3)]

    lasts = [(take(stream, 2)[-1], stream.weight) for stream in streams]

    assert lasts == [([6], 3.0), ([1], 0.0), ([2], 0.0)]


def test_drop_last_drops_the_ragged_global_batch_on_all_ranks():
    loader = DataLoader(Numbers(21), batch_size=4, drop_last=True)
    streams = [open_(loader, rank=rank, size=2) for rank in range(2)]

    assert [stream.batches_per_epoch for stream in streams] == [2, 2]
    assert [take(stream, 3)[-1] for stream in streams] == [[0, 1, 2, 3], [4, 5, 6, 7]]  # the next epoch


LOADERS = {
    "sequential": lambda: DataLoader(Numbers(10), batch_size=3),
    "shuffled": lambda: DataLoader(Numbers(10), batch_size=3, shuffle=True),
    "shuffled, drop last": lambda: DataLoader(Numbers(10), batch_size=3, shuffle=True, drop_last=True),
    "tensors": lambda: DataLoader(torch_data.TensorDataset(torch.arange(10)), batch_size=3, shuffle=True),
    "torch's": lambda: torch_data.DataLoader(Numbers(10), batch_size=3, shuffle=True),
    "one by one": lambda: torch_data.DataLoader(Numbers(10), batch_size=None, collate_fn=lambda i: torch.tensor([i])),
    "random": lambda: DataLoader(
        Numbers(10), 3, sampler=torch_data.RandomSampler(range(10), replacement=True, num_samples=11)
    ),
    "weighted": lambda: DataLoader(Numbers(10), 3, sampler=torch_data.WeightedRandomSampler([1.0] * 10, 8)),
    "subset": lambda: DataLoader(Numbers(10), 3, sampler=torch_data.SubsetRandomSampler([1, 3, 5, 7, 8])),
    "remembering": lambda: DataLoader(Numbers(10), 3, sampler=samplers.ReproducibleShuffleSampler(range(10), seed=1)),
    "endless": lambda: DataLoader(Numbers(10), 3, sampler=EndlessSampler()),
    "buckets": lambda: DataLoader(Numbers(10), batch_sampler=BucketSampler()),
    "torch's batches": lambda: DataLoader(
        Numbers(10), batch_sampler=torch_data.BatchSampler(torch_data.RandomSampler(range(10)), 3, drop_last=False)
    ),
    "repeating": lambda: DataLoader(
        Numbers(10), 3, sampler=samplers.RepeatSampler(torch_data.RandomSampler(range(10)))
    ),
}


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("size", [1, 2])
def test_every_kind_of_loader_goes_on_after_any_batch_as_if_it_had_not_stopped(kind, size):
    expected = take(open_(LOADERS[kind](), rank=size - 1, size=size), 14)

    for stop in range(1, 10):
        stopped = open_(LOADERS[kind](), rank=size - 1, size=size)
        before = take(stopped, stop)
        torch.rand(stop), random.random(), numpy.random.rand()  # what a model may draw meanwhile
        resumed = open_(LOADERS[kind](), rank=size - 1, size=size, state=stopped.state_dict())
        assert before + take(resumed, 14 - stop) == expected


@pytest.mark.parametrize("kind", LOADERS)
def test_a_number_of_batches_is_a_position_too(kind):
    expected = take(open_(LOADERS[kind]()), 14)

    for start in range(10):
        resumed = open_(LOADERS[kind](), start_batch=start)
        assert take(resumed, 14 - start) == expected[start:]


@pytest.mark.parametrize("kind", LOADERS)
def test_the_position_counts_what_all_ranks_took(kind):
    stream = open_(LOADERS[kind]())
    skipped = open_(LOADERS[kind](), start_batch=9)
    for _ in range(9):
        next(stream)

    assert stream.position == skipped.position


@pytest.mark.parametrize("resumed_size", [1, 2, 3])
@pytest.mark.parametrize("stop", [1, 4, 5, 9])
def test_two_ranks_stopped_go_on_as_one_or_three_in_the_same_global_order(resumed_size, stop):
    def loader(size):
        return DataLoader(Numbers(50), batch_size=12 // size, shuffle=True)

    expected = global_order(loader(1), size=1, samples=200)
    stopped = open_(loader(2), rank=1, size=2)
    take(stopped, stop)

    state = stopped.state_dict()
    after = global_order(loader(resumed_size), size=resumed_size, samples=200 - stopped.position, state=state)

    assert after == expected[stopped.position :]


def test_another_global_batch_goes_on_from_the_same_sample():
    stopped = open_(DataLoader(Numbers(50), batch_size=8, shuffle=True))
    take(stopped, 3)
    expected = global_order(DataLoader(Numbers(50), batch_size=8, shuffle=True), size=1, samples=100)

    after = global_order(
        DataLoader(Numbers(50), batch_size=5, shuffle=True), size=3, samples=76, state=stopped.state_dict()
    )

    assert after == expected[24:]


def test_a_resume_keeps_the_order_when_the_seed_has_changed():
    loader = DataLoader(Numbers(50), batch_size=8, shuffle=True)
    stopped = open_(loader)
    take(stopped, 2)

    resumed = open_training(loader, seed=999, rank=0, size=1, device="cpu", state=stopped.state_dict())

    assert take(resumed, 10) == take(stopped, 10)


def test_a_resume_on_other_data_begins_the_epoch_again_and_says_so():
    stopped = open_(DataLoader(Numbers(50), batch_size=8))
    take(stopped, 9)

    with pytest.warns(UserWarning, match=r"50 samples an epoch.*now has 60 samples: epoch 1"):
        resumed = open_(DataLoader(Numbers(60), batch_size=8), state=stopped.state_dict())

    assert take(resumed, 1) == [[0, 1, 2, 3, 4, 5, 6, 7]]


def test_the_order_touches_no_global_generator():
    before = (torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist())

    for kind, make in LOADERS.items():
        take(open_(make(), start_batch=2), 14)
        after = (torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist())
        assert torch.equal(after[0], before[0]), kind
        assert after[1:] == before[1:], kind


def test_torchs_distributed_sampler_is_understood_and_not_sharded_twice():
    def loader(rank):
        sampler = torch_data.DistributedSampler(Numbers(20), num_replicas=2, rank=rank, shuffle=True)
        return torch_data.DataLoader(Numbers(20), batch_size=5, sampler=sampler)

    seen = [sum(take(open_(loader(rank), rank=rank, size=2), 2), []) for rank in range(2)]

    assert sorted(seen[0] + seen[1]) == list(range(20))


@pytest.mark.parametrize("kind", ["subclass", "ours", "batches"])
def test_a_sampler_made_for_one_rank_is_not_sharded_again(kind):
    class Mine(torch_data.DistributedSampler):
        pass

    def loader(rank):
        if kind == "subclass":
            return torch_data.DataLoader(Numbers(20), 5, sampler=Mine(range(20), num_replicas=2, rank=rank))
        if kind == "ours":
            return DataLoader(Numbers(20), 5, sampler=samplers.DistributedSampler(range(20), num_workers=2, rank=rank))
        batches = [list(range(i, i + 5)) for i in range(0, 20, 5)]
        return DataLoader(Numbers(20), batch_sampler=samplers.adapt_batch_sampler(batches, num_replicas=2, rank=rank))

    streams = [open_(loader(rank), rank=rank, size=2) for rank in range(2)]

    assert {stream.batches_per_epoch for stream in streams} == {2}
    assert sorted(sum(sum((take(stream, 2) for stream in streams), []), [])) == list(range(20))


def test_samplers_are_told_the_epoch_when_they_want_to_know():
    class Told:
        epochs: list[int] = []

        def set_epoch(self, epoch):
            self.epochs.append(epoch)

        def __iter__(self):
            return iter([[self.epochs[-1]]])

    stream = open_(DataLoader(Numbers(10), batch_sampler=Told()))

    assert take(stream, 3) == [[0], [1], [2]]


def test_batches_can_be_changed_in_place_without_changing_the_data():
    data = torch.zeros(12)
    for shuffle in (True, False):
        stream = open_(DataLoader(torch_data.TensorDataset(data), batch_size=4, shuffle=shuffle))
        for batch in itertools.islice(stream, 6):
            batch[0].add_(1.0)

    assert data.sum() == 0


def test_changing_one_batch_in_place_leaves_its_neighbours_to_autograd():
    stream = open_(DataLoader(torch_data.TensorDataset(torch.ones(8)), batch_size=4))
    weight = torch.ones(1, requires_grad=True)

    loss = (next(stream)[0] * weight).sum()
    next(stream)[0].zero_()
    loss.backward()

    assert weight.grad.item() == 4


@pytest.mark.parametrize(
    ("loader", "size", "expected"),
    [
        (DataLoader(Numbers(0)), 1, "is empty: its loader has a length of 0"),
        (DataLoader(Numbers(10), 8, drop_last=True), 2, "10 samples, fewer than the 16 .* drop_last drops them"),
        ([torch.zeros(1)], 2, "1 batches, fewer than there are ranks"),
        (Numbers(3), 1, r"is a Numbers, a dataset.*stoker.pytorch.DataLoader"),
        (3, 1, "is a int, which cannot be gone through"),
    ],
)
def test_data_that_cannot_be_trained_on_is_refused_in_a_sentence(loader, size, expected):
    with pytest.raises(UsageError, match=expected):
        open_(loader, size=size)


def test_a_sampler_that_ends_at_once_is_an_error_not_a_hang():
    class Empty:
        def __iter__(self):
            return iter(())

    stream = open_(DataLoader(Numbers(3), batch_sampler=Empty()))

    with pytest.raises(UsageError, match="gave no batch in epoch 0"):
        next(stream)


def test_the_loader_refuses_iterable_datasets_and_no_batch_size():
    class Stream(torch_data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(UsageError, match=r"Stream is an IterableDataset.*torch.utils.data.DataLoader\(dataset\)"):
        DataLoader(Stream())
    with pytest.raises(UsageError, match="needs a batch_size or a batch_sampler"):
        DataLoader(Numbers(3), batch_size=None)


def test_the_loader_by_itself_is_torchs():
    loader = DataLoader(Numbers(5), batch_size=2)

    assert isinstance(loader, torch_data.DataLoader)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4]]
    assert len(loader) == 3
    shards = [[b.tolist() for b in loader.get_data_loader(num_replicas=2, rank=rank)] for rank in range(2)]
    assert shards == [[[0, 1], [4]], [[2, 3]]]
