"""Arithmetic of shares."""

import math

import pytest

from stoker.schema.job import NOTHING, Share
from stoker.schema.launch import Replica, Role

ONE = Share(cpus=1, memory_gb=8, gpus=0.5)
OTHER = Share(cpus=2, memory_gb=4, gpus=0)


def test_shares_and_replicas_are_added() -> None:
    replica = Replica(role=Role.CHIEF, index=0, rank=0, cpus=1, memory_gb=1)

    assert Share.total([ONE, OTHER, replica]) == Share(cpus=4, memory_gb=13, gpus=0.5)
    assert Share.total([]) == NOTHING


def test_what_is_left_is_never_less_than_nothing() -> None:
    assert ONE - OTHER == Share(cpus=0, memory_gb=4, gpus=0.5)


def test_smaller_and_larger_of_each_amount() -> None:
    assert ONE & OTHER == Share(cpus=1, memory_gb=4, gpus=0)
    assert ONE | OTHER == Share(cpus=2, memory_gb=8, gpus=0.5)


def test_share_fits_where_all_amounts_do_and_parts_of_a_gpu_add_up() -> None:
    assert not ONE.fits(OTHER)
    assert ONE.fits(ONE | OTHER)
    assert Share(gpus=0.1 + 0.2).fits(Share(gpus=0.3))


@pytest.mark.parametrize(
    ("need", "times"),
    [(Share(cpus=1), 4), (Share(cpus=1, gpus=0.1), 3), (Share(cpus=5), 0), (NOTHING, math.inf)],
)
def test_share_fits_so_many_times(need: Share, times: float) -> None:
    assert need.times_in(Share(cpus=4, gpus=0.1 + 0.2)) == times


@pytest.mark.parametrize(("share", "words"), [(ONE, "1 CPU, 8 GB, 0.5 GPUs"), (NOTHING, "0 CPUs, 0 GPUs")])
def test_share_in_words(share: Share, words: str) -> None:
    assert share.in_words == words
