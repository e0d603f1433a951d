"""In-memory tensors take a short way; what comes out must be what the long way gives."""

import pytest
import torch
from torch.utils import data as torch_data

from stoker.pytorch.data.feed import InlineFeed, Table, TensorFeed
from stoker.pytorch.data.loader import DataLoader, open_training, open_validation

TENSORS = torch_data.TensorDataset(torch.randn(1000, 3), torch.arange(1000), torch.randn(1000, 2, 2).half())


def the_long_way(samples):
    """Any collate function of the user's makes us read samples one by one."""
    return torch_data.default_collate(samples)


def equal(a, b) -> bool:
    return type(a) is type(b) and len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


DATASETS = {
    "all": TENSORS,
    "subset": torch_data.Subset(TENSORS, range(100, 900, 3)),
    "subset of a subset": torch_data.Subset(torch_data.Subset(TENSORS, list(range(500, 0, -1))), range(7, 400)),
    "split": torch_data.random_split(TENSORS, [0.5, 0.5], generator=torch.Generator().manual_seed(1))[0],
}


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize(
    "options", [{}, {"shuffle": True}, {"shuffle": True, "drop_last": True}, {"batch_size": 999}, {"batch_size": 1}]
)
@pytest.mark.parametrize("size", [1, 3])
def test_the_short_way_gives_what_the_long_way_gives(name, options, size):
    options = {"batch_size": 32, **options}
    where = {"seed": 3, "rank": size - 1, "size": size, "device": "cpu", "start_batch": 2}
    short = open_training(DataLoader(DATASETS[name], **options), **where)
    long = open_training(DataLoader(DATASETS[name], **options, collate_fn=the_long_way), **where)

    assert isinstance(short._source.feed, TensorFeed)
    assert isinstance(long._source.feed, InlineFeed)
    assert short.batches_per_epoch == long.batches_per_epoch
    for _ in range(70):
        assert equal(next(short), next(long))
        assert (short.weight, short.state_dict()) == (long.weight, long.state_dict())


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("drop_last", [True, False])
def test_validation_takes_the_short_way_too(size, rank, drop_last):
    def batches(**options):
        loader = DataLoader(DATASETS["subset"], batch_size=40, drop_last=drop_last, **options)
        return [batch for batch, _ in open_validation(loader, rank=rank % size, size=size, device="cpu")]

    pairs = list(zip(batches(), batches(collate_fn=the_long_way), strict=True))

    assert pairs
    assert all(equal(short, long) for short, long in pairs)


def test_tensors_that_change_on_their_way_are_read_one_by_one():
    class Augmented(torch_data.TensorDataset):
        def __getitem__(self, index):
            return (super().__getitem__(index)[0] + 1,)

    stream = open_training(DataLoader(Augmented(torch.zeros(4)), 4), seed=0, rank=0, size=1, device="cpu")

    assert next(stream)[0].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "dataset",
    [
        torch_data.TensorDataset(torch.zeros(3, requires_grad=True)),
        torch_data.TensorDataset(torch.zeros(3, 2).to_sparse()),
        torch_data.ConcatDataset([TENSORS, TENSORS]),
        torch_data.Subset([1, 2, 3], [0]),
    ],
)
def test_anything_but_plain_rows_has_no_table(dataset):
    assert Table.of(dataset) is None
