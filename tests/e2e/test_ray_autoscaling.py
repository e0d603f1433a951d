"""Jobs on a cluster that Ray's own autoscaler makes larger for them, from nothing, and smaller again."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.client.client import Client
from stoker.errors import UsageError
from stoker.host.home import Home
from stoker.schema.job import JobSpec
from stoker.schema.state import JobState
from tests.e2e.command import stoker
from tests.e2e.ray_pool import assert_nothing_is_left, home_of_nodes
from tests.processes import wait_until
from tests.ray_autoscaling import GrowingCluster, grow
from tests.ray_cluster import IS_WHOLE, NOT_WHOLE, python_with_ray

PYTHON = python_with_ray()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(PYTHON is None or not IS_WHOLE, reason=NOT_WHOLE)]

STAY = """
import os, sys, time
print("begins", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[GrowingCluster]:
    assert PYTHON is not None
    with grow(PYTHON, types={"plain": {"CPU": 2}, "gpu": {"CPU": 1, "GPU": 1}}, max_nodes=2) as cluster:
        yield cluster


@pytest.fixture
def nodes(home: Home, cluster: GrowingCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    with home_of_nodes(home, cluster, monkeypatch) as nodes:
        add_pool("cluster", cluster, nodes)
        yield nodes


def add_pool(name: str, cluster: GrowingCluster, nodes: Home, *more: str) -> None:
    words = ["--address", cluster.address, "--python", cluster.python, "--node-python", sys.executable]
    added = stoker("pools", "add", name, *words, "--node-home", str(nodes.root), "--max-nodes", "2", *more)
    assert added.code == 0, added.err


class Jobs:
    """Jobs that end when the file with their name is there."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client, self._folder = client, folder

    def begin(self, name: str, **fields: object) -> None:
        words = ["python", "-c", STAY, str(self._folder / name)]
        values = {"name": name, "kind": "command", "command": words, "pool": "cluster", **fields}
        self.client.submit(JobSpec.model_validate(values))

    def wait_until_it_runs(self, name: str, *, processes: int = 1) -> set[str]:
        """Why it waited until then."""
        reasons: set[str] = set()

        def has_begun() -> bool:
            job = self.client.job(name)
            assert not job.state.is_final, job.reason
            reasons.add(job.reason)
            blocks = self.client.logs(name).blocks
            return sum(line == "begins" for block in blocks for line in block.text.split("\n")) == processes

        wait_until(has_begun, what=f"{name} to run", deadline_s=300)
        return reasons

    def end(self, name: str) -> None:
        (self._folder / name).touch()
        job = self.client.wait(name, timeout_s=180)
        assert job.state is JobState.SUCCEEDED, job.reason
        assert len(job.trials[0].runs) == 1, "no node was taken from under it"

    def cpus(self) -> float:
        return next(pool for pool in self.client.pools() if pool.name == "cluster").capacity.cpus


def test_cluster_grows_from_nothing_for_jobs_and_shrinks_around_those_that_run(
    home: Home, nodes: Home, client: Client, cluster: GrowingCluster, tmp_path: Path
) -> None:
    jobs = Jobs(client, tmp_path)
    jobs.begin("first")
    reasons = jobs.wait_until_it_runs("first")
    assert any("waits for 1 CPU; free on the cluster: 0 CPU of 0" in reason for reason in reasons)
    assert any(reason.endswith("; the cluster is starting a node: 1 plain") for reason in reasons), reasons
    wait_until(lambda: jobs.cpus() == 2, what="the new node to be known")

    jobs.begin("three", resources={"slots": 3})
    jobs.wait_until_it_runs("three", processes=3)
    placed = json.loads(home.run_dir("three", 1, 1).places.read_text())
    assert len({place["id"] for place in placed}) == 2
    wait_until(lambda: jobs.cpus() == 4, what="both nodes to be known")
    jobs.end("three")

    wait_until(lambda: jobs.cpus() == 2, what="the node that has nothing to do to go", deadline_s=400)
    assert client.job("first").state is JobState.RUNNING
    jobs.end("first")
    assert_nothing_is_left(cluster, nodes)


def test_job_for_which_no_node_can_come_is_refused_or_waits_in_the_autoscalers_words_and_gives_up(
    home: Home, nodes: Home, client: Client, cluster: GrowingCluster, tmp_path: Path
) -> None:
    add_pool("told", cluster, nodes, "--largest-node", "cpus=2,gpus=1")
    jobs = Jobs(client, tmp_path)
    with pytest.raises(UsageError, match=r"64 CPUs.* may grow to 4 CPUs.* can never hold it.* largest_node = "):
        jobs.begin("huge", pool="told", resources={"cpus": 64})

    jobs.begin("odd", pool="told", resources={"cpus": 2, "gpus": 1}, limits={"max_waiting_s": 20})
    job = client.wait("odd", timeout_s=180)

    assert job.state is JobState.FAILED
    assert "It waited for pool 'told' for longer than max_waiting_s = 20 allows." in job.reason
    assert "At last it waits for 2 CPU, 1 GPU; free on the cluster: " in job.reason
    assert "its autoscaler can start no node for it" in job.reason
    jobs.begin("gpu", pool="told", resources={"gpus": 1})
    jobs.wait_until_it_runs("gpu")
    jobs.end("gpu")
    assert_nothing_is_left(cluster, nodes)
