from itertools import islice

import pytest

from stoker.pytorch import samplers
from stoker.pytorch.data.loader import adapt_batch_sampler


def _batches(length: int, size: int) -> list[list[int]]:
    return [list(range(start, min(start + size, length))) for start in range(0, length, size)]


def test_repeat_goes_on_without_end_and_keeps_the_length_of_one_round():
    sampler = samplers.RepeatSampler(range(3))
    batches = samplers.RepeatBatchSampler([[0, 1], [2]])

    assert list(islice(sampler, 7)) == [0, 1, 2, 0, 1, 2, 0]
    assert list(islice(batches, 3)) == [[0, 1], [2], [0, 1]]
    assert (len(sampler), len(batches)) == (3, 2)


def test_repeat_of_nothing_ends():
    assert list(samplers.RepeatSampler(range(0))) == []


@pytest.mark.parametrize(
    ("rank", "expected"),
    [(0, [0, 4, 8, 12, 16]), (1, [1, 5, 9, 13, 17]), (2, [2, 6, 10, 14, 18]), (3, [3, 7, 11, 15])],
)
def test_distributed_deals_samples_out_in_turn(rank, expected):
    sampler = samplers.DistributedSampler(range(19), num_workers=4, rank=rank)

    assert list(sampler) == expected
    assert len(sampler) == len(expected)


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        (0, [[0, 1], [8, 9], [16, 17]]),
        (1, [[2, 3], [10, 11], [18]]),
        (2, [[4, 5], [12, 13]]),
        (3, [[6, 7], [14, 15]]),
    ],
)
def test_distributed_deals_batches_out_in_turn(rank, expected):
    sampler = samplers.DistributedBatchSampler(_batches(19, 2), num_workers=4, rank=rank)

    assert list(sampler) == expected
    assert len(sampler) == len(expected)


def test_distributed_refuses_a_rank_that_is_not_there():
    with pytest.raises(ValueError, match="rank is 4 of 4: it must be from 0 to 3"):
        samplers.DistributedSampler(range(19), num_workers=4, rank=4)


def test_skip_leaves_out_the_first_each_time_and_keeps_the_length():
    sampler = samplers.SkipSampler(range(5), skip=3)
    batches = samplers.SkipBatchSampler([[0], [1], [2]], skip=2)

    assert list(sampler) == list(sampler) == [3, 4]
    assert list(batches) == [[2]]
    assert (len(sampler), len(batches)) == (5, 3)


def test_reproducible_shuffle_is_the_order_that_determined_gives():
    sampler = samplers.ReproducibleShuffleSampler(range(5), seed=777)

    assert list(sampler) == [0, 4, 1, 2, 3]
    assert list(sampler) == [2, 0, 1, 3, 4]


def test_reproducible_shuffle_of_batches_keeps_each_batch_as_it_is():
    sampler = samplers.ReproducibleShuffleBatchSampler(_batches(9, 2), seed=777)

    assert list(sampler) == [[0, 1], [8], [2, 3], [4, 5], [6, 7]]
    assert len(sampler) == 5


def test_adapt_repeats_then_shards_then_skips():
    adapted = adapt_batch_sampler(_batches(10, 2), repeat=True, skip=1, num_replicas=2, rank=0)

    assert list(islice(adapted, 5)) == [[4, 5], [8, 9], [2, 3], [6, 7], [0, 1]]
