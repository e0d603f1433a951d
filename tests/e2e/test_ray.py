"""A package on two nodes of a real Ray cluster, with nodes, supervisors and servers killed in its midst."""

import json
import os
import signal
import textwrap
from pathlib import Path

import pytest

from stoker.client.client import Client, connect
from stoker.host.home import Home
from stoker.schema.state import JobState
from tests.e2e.command import submit, write_package
from tests.e2e.conftest import kill_server
from tests.e2e.ray_pool import TWO_NODES, assert_nothing_is_left, wait_ready
from tests.processes import wait_until
from tests.ray_cluster import NO_RAY, RayCluster, python_with_ray

PYTHON = python_with_ray()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None, reason=NO_RAY),
]

# Every step is an all-reduce over the nodes; it goes on from its checkpoint.
TRAIN = """
    import itertools, os, time
    import torch, torch.distributed as dist
    import stoker
    ctx = stoker.init()
    dist.init_process_group("gloo")
    first = int(open(ctx.latest_checkpoint).read()) if ctx.latest_checkpoint else 0
    print(f"rank {ctx.rank} of {ctx.world_size} by {os.environ['MASTER_ADDR']} from {first}", flush=True)
    for step in itertools.count(first):
        if ctx.attempt > 1 and step == first + 20:
            break  # the first run goes on until it is killed
        total = torch.ones(1) * step
        dist.all_reduce(total)
        assert total.item() == step * ctx.world_size
        if ctx.rank == 0:
            ctx.report(step, total=total.item())
            with open("state.txt", "w") as file:
                file.write(str(step + 1))
            ctx.save_checkpoint("state.txt", step=step + 1)
        dist.barrier()
        time.sleep(0.05)
    dist.destroy_process_group()
"""


@pytest.fixture
def ready(nodes: Home, client: Client) -> Client:
    """A server that knows its cluster."""
    wait_ready(client)
    return client


def test_run_on_two_nodes_goes_on_from_its_checkpoint_when_a_node_and_the_server_are_killed(
    home: Home, nodes: Home, ready: Client, cluster: RayCluster, tmp_path: Path
) -> None:
    project = write_package(tmp_path / "project", task=textwrap.dedent(TRAIN))
    job_file = tmp_path / "job.yaml"
    job_file.write_text(TWO_NODES)
    done = submit(project, "ddp", "task", "--config", str(job_file))
    assert done.code == 0, done.err
    wait_until(lambda: steps(ready) > 5, what="some steps")

    placed = json.loads(home.run_dir("ddp", 1, 1).places.read_text())
    assert len({place["address"] for place in placed}) == 2
    assert_page_has_what_it_shows(ready, {place["address"] for place in placed})
    kill_server(home)
    later = connect(home)
    seen = steps(later)
    wait_until(lambda: steps(later) > seen, what="steps that the new server hears of")

    victim = next(place["address"] for place in placed if place["address"] != "127.0.0.2")  # not the head
    os.kill(cluster.raylet_at(victim), signal.SIGKILL)

    job = later.wait("ddp", timeout_s=150)
    assert job.state is JobState.SUCCEEDED, job
    assert len(job.trials[0].runs) == 2
    lines = [line for block in later.logs("ddp").blocks for line in block.text.split("\n") if line.startswith("rank 1")]
    assert len(lines) == 2
    first = int(lines[1].rpartition(" ")[2])
    assert first > seen, "it went on from its checkpoint"
    assert [point.step for point in later.metrics("ddp") if point.run == "ddp.1.2"] == [*range(first, first + 20)]
    assert_nothing_is_left(cluster, nodes)
    later.close()


def steps(client: Client) -> int:
    return len(list(client.metrics("ddp")))


def assert_page_has_what_it_shows(client: Client, addresses: set[str]) -> None:
    """The nodes by name, what each has, which two the run holds a CPU of, and how much was in use over time."""
    (pool,) = client.pools()
    held = {node.address: of.share.cpus for of in pool.holders[0].nodes for node in pool.nodes if node.id == of.node}
    assert [(one.job, one.share.cpus) for one in pool.holders] == [("ddp", 2)]
    assert held == dict.fromkeys(addresses, 1)
    assert [node.cpus for node in pool.nodes] == [2, 2, 2]
    assert len({node.address for node in pool.nodes}) == 3
    # Ray is asked every few seconds; what it has given away is then no longer free there.
    wait_until(lambda: _free_cpus(client, addresses) == {1}, what="Ray's own word of what is free")
    assert pool.trouble == ""


def _free_cpus(client: Client, addresses: set[str]) -> set[float]:
    nodes = client.pools()[0].nodes
    return {node.free.cpus for node in nodes if node.address in addresses and node.free is not None}
