"""Ranks, alone and together. Those together are real processes that speak over gloo."""

import os

import pytest
import torch

from stoker.errors import UsageError
from stoker.pytorch.distributed import DistributedContext
from tests.pytorch.ranks import run_ranks

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


@pytest.fixture(autouse=True)
def no_ranks(monkeypatch):
    for name in (*VARIABLES, "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


def test_one_rank_needs_nobody():
    context = DistributedContext.from_env()

    assert (context.rank, context.size, context.local_rank, context.local_size) == (0, 1, 0, 1)
    assert (context.cross_rank, context.cross_size, context.get_num_agents()) == (0, 1, 1)
    assert context.gather("x") == context.allgather("x") == context.gather_local("x") == ["x"]
    assert context.allgather_local("x") == ["x"]
    assert context.broadcast("x") == context.broadcast_local("x") == "x"
    assert context.all_reduce_any(True) is True
    assert context.all_reduce_any(False) is False
    context.barrier()
    context.close()
    assert not torch.distributed.is_initialized()


def test_shard_batch_size_divides_among_the_ranks():
    context = DistributedContext(rank=0, size=4)

    assert context.shard_batch_size(64) == 16


def test_shard_batch_size_rounds_down_with_a_warning_when_it_does_not_divide():
    context = DistributedContext(rank=0, size=4)

    with pytest.warns(UserWarning, match="10 does not divide by 4 ranks: each takes 2, 8 in all"):
        assert context.shard_batch_size(10) == 2


def test_shard_batch_size_refuses_fewer_samples_than_ranks():
    with pytest.raises(UsageError, match="leaves some of the 4 ranks without a sample"):
        DistributedContext(rank=0, size=4).shard_batch_size(3)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2 but RANK, MASTER_ADDR, MASTER_PORT are not set"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two': torchrun sets a whole number there"),
        ({"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "x", "MASTER_PORT": "1"}, "a rank is from 0 to 1"),
    ],
)
def test_variables_that_make_no_sense_are_named(monkeypatch, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(UsageError, match=expected):
        DistributedContext.from_env()


def exchange(machines: int) -> list[object]:
    """On a rank: everything, once. Ranks are divided among so many machines, as torchrun would say it."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = size // machines
    values = (rank % local, local, rank // local, machines)
    os.environ.update(zip(VARIABLES[2:], map(str, values), strict=True))
    c = DistributedContext.from_env()
    found = [
        c.gather({"rank": c.get_rank()}),
        c.gather_local(c.rank),
        c.allgather({"rank": c.rank}),
        c.allgather_local(c.rank),
        c.broadcast(f"from {c.rank}"),
        c.broadcast_local(f"from {c.rank}"),
        (c.get_num_agents(), c.get_local_rank(), c.get_size(), c.shard_batch_size(8)),
        (c.all_reduce_any(c.rank == 2), c.all_reduce_any(False)),
    ]
    c.barrier()
    c.close()
    c.close()
    return [*found, torch.distributed.is_initialized()]


@pytest.mark.slow
def test_ranks_exchange_objects_and_agree(tmp_path):
    by_rank = run_ranks(exchange, 4, tmp_path, 2)

    everyone = [{"rank": rank} for rank in range(4)]
    for rank, found in enumerate(by_rank):
        first = 2 * (rank // 2)
        machine = [first, first + 1]
        assert found == [
            everyone if rank == 0 else None,
            machine if rank == first else None,
            everyone,
            machine,
            "from 0",
            f"from {first}",
            (2, rank % 2, 4, 2),
            (True, False),
            False,
        ]


def use_own_group() -> tuple[list[int], float]:
    torch.distributed.init_process_group("gloo")
    context = DistributedContext.from_env()
    ranks = context.allgather(context.rank)
    context.close()
    one = torch.ones(1)
    torch.distributed.all_reduce(one)
    torch.distributed.destroy_process_group()
    return ranks, one.item()


@pytest.mark.slow
def test_a_process_group_of_the_users_own_is_used_and_left(tmp_path):
    assert run_ranks(use_own_group, 2, tmp_path) == [([0, 1], 2.0)] * 2
