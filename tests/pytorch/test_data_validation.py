import pytest
import torch
from torch.utils import data as torch_data

from stoker.pytorch.data.loader import DataLoader, open_validation


class Numbers(torch_data.Dataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


class Forward(torch_data.IterableDataset):
    def __iter__(self):
        return iter(range(10))


def seen(loader, *, size: int) -> list[list[list[int]]]:
    """The batches of each rank."""
    streams = [open_validation(loader, rank=rank, size=size, device="cpu") for rank in range(size)]
    return [[batch.tolist() for batch, _ in stream] for stream in streams]


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Numbers(10), batch_size=3),
        torch_data.DataLoader(Numbers(10), batch_size=3),
        DataLoader(Numbers(10), batch_size=3, shuffle=True),
        DataLoader(Numbers(10), batch_sampler=[[0, 1, 2, 3], [4], [5, 6, 7], [8, 9]]),
        torch_data.DataLoader(Forward(), batch_size=3),
        [torch.arange(5), torch.arange(5, 10)],
    ],
)
def test_every_sample_is_seen_once_in_the_batches_of_one_rank(loader, size):
    alone = seen(loader, size=1)[0]
    ranks = seen(loader, size=size)

    assert sorted(sum(alone, [])) == list(range(10))
    assert [alone[rank::size] for rank in range(size)] == ranks


def test_a_shuffled_loader_is_shuffled_the_same_way_on_all_ranks_and_each_time():
    loader = DataLoader(Numbers(10), batch_size=3, shuffle=True)

    assert seen(loader, size=1) == seen(loader, size=1) != [[[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]]


def test_batches_are_numbered_on_each_rank_and_each_pass_starts_again():
    stream = open_validation(DataLoader(Numbers(10), batch_size=3), rank=1, size=2, device="cpu")

    for _ in range(2):
        assert [(batch.tolist(), idx) for batch, idx in stream] == [([3, 4, 5], 0), ([9], 1)]


@pytest.mark.parametrize(
    ("loader", "expected"),
    [
        (DataLoader(Numbers(10), batch_size=3), 10),
        (DataLoader(Numbers(10), batch_size=3, drop_last=True), 9),
        (DataLoader(Numbers(10), batch_sampler=[[0], [1]]), None),
        (torch_data.DataLoader(Forward()), None),
    ],
)
def test_the_number_of_samples_is_known_where_it_can_be(loader, expected):
    assert open_validation(loader, rank=0, size=2, device="cpu").num_samples == expected


@pytest.mark.parametrize("size", [1, 2])
def test_drop_last_drops_what_one_rank_alone_would_drop(size):
    ranks = seen(DataLoader(Numbers(10), batch_size=4, drop_last=True), size=size)

    assert sorted(sum(sum(ranks, []), [])) == list(range(8))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_rounds_are_as_many_on_every_rank_and_can_start_anywhere(size):
    loader = DataLoader(Numbers(10), batch_size=2)  # five batches
    streams = [open_validation(loader, rank=rank, size=size, device="cpu") for rank in range(size)]

    rounds = list(zip(*(stream.rounds(start_batch=1) for stream in streams), strict=True))

    found = [batch.tolist() for one in rounds for batch in one if batch is not None]
    assert found == [[2, 3], [4, 5], [6, 7], [8, 9]]


@pytest.mark.slow
def test_workers_deal_out_the_same_batches():
    assert seen(DataLoader(Numbers(10), 4, num_workers=1), size=2) == [[[0, 1, 2, 3], [8, 9]], [[4, 5, 6, 7]]]


def test_validation_touches_no_global_generator():
    before = torch.get_rng_state()

    seen(DataLoader(Numbers(10), batch_size=3, shuffle=True), size=2)

    assert torch.equal(torch.get_rng_state(), before)
