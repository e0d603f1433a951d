"""Ranks, alone and together. Those together are real processes that speak over gloo."""

import os
import socket
import subprocess
import sys
import textwrap

import pytest
import torch

from stoker.errors import UsageError
from stoker.pytorch.distributed import DistributedContext

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


@pytest.fixture(autouse=True)
def no_ranks(monkeypatch):
    for name in (*VARIABLES, "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


def run_ranks(code: str, *, size: int, machines: int = 1) -> list[str]:
    """Run the code as so many ranks, with torchrun's variables; what each printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    local_size = size // machines
    processes = []
    for rank in range(size):
        ranks = (rank, size, rank % local_size, local_size, rank // local_size, machines)
        variables = dict(zip(VARIABLES, map(str, ranks), strict=True))
        environ = {**os.environ, **variables, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
        processes.append(
            subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    try:
        outputs = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * size, outputs
    return [out for out, _ in outputs]


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


@pytest.mark.slow
def test_ranks_exchange_objects_and_agree():
    code = """
        import torch.distributed as dist
        from stoker.pytorch.distributed import DistributedContext
        c = DistributedContext.from_env()
        mine = {"rank": c.get_rank()}
        print(c.gather(mine), c.gather_local(c.rank), c.allgather(mine), c.allgather_local(c.rank))
        print(c.broadcast(f"from {c.rank}"), c.broadcast_local(f"from {c.rank}"), c.get_num_agents(), c.local_rank)
        print(c.all_reduce_any(c.rank == 2), c.all_reduce_any(False), c.shard_batch_size(8))
        c.barrier(); c.close(); c.close()
        print(dist.is_initialized())
    """

    outputs = run_ranks(code, size=4, machines=2)

    everyone = "[{'rank': 0}, {'rank': 1}, {'rank': 2}, {'rank': 3}]"
    for rank, output in enumerate(outputs):
        first = 2 * (rank // 2)
        machine = [first, first + 1]
        gathered = everyone if rank == 0 else None
        gathered_here = machine if rank == first else None
        assert output.splitlines() == [
            f"{gathered} {gathered_here} {everyone} {machine}",
            f"from 0 from {first} 2 {rank % 2}",
            "True False 2",
            "False",
        ]


@pytest.mark.slow
def test_a_process_group_of_the_users_own_is_used_and_left():
    code = """
        import torch, torch.distributed as dist
        from stoker.pytorch.distributed import DistributedContext
        dist.init_process_group("gloo")
        c = DistributedContext.from_env()
        print(c.allgather(c.rank))
        c.close()
        one = torch.ones(1)
        dist.all_reduce(one)
        print(one.item())
        dist.destroy_process_group()
    """

    assert run_ranks(code, size=2) == ["[0, 1]\n2.0\n"] * 2
