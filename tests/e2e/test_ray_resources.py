"""What jobs ask of a real Ray cluster: GPUs and parts of them, memory, the owner's resources, nodes, room to grow.

Ray believes what it is told of a raylet, so no GPU is needed to see which one a job is given.
"""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.client.client import Client
from stoker.errors import UsageError
from stoker.host.home import Home
from stoker.schema.job import JobSpec
from stoker.schema.state import JobState
from tests.e2e.ray_pool import assert_nothing_is_left, pool_table, ray_pool, wait_ready
from tests.processes import wait_until
from tests.ray_cluster import IS_WHOLE, NO_RAY, NOT_WHOLE, RayCluster, python_with_ray, start

PYTHON = python_with_ray()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(PYTHON is None, reason=NO_RAY)]
whole = pytest.mark.skipif(not IS_WHOLE, reason=NOT_WHOLE)

SHOW = """
import json, os, sys, time
print("SEES", json.dumps(os.environ.get("CUDA_VISIBLE_DEVICES")), flush=True)
while len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """Three nodes of two CPUs, and one that has two GPUs besides."""
    assert PYTHON is not None
    with start(PYTHON) as cluster:
        cluster.add_node(num_gpus=2, memory=2_000_000_000, resources={"accelerator_type:T4": 1, "scratch": 1})
        yield cluster


@pytest.fixture
def nodes(home: Home, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """The cluster as a pool that spreads, and whose owner has names for kinds of GPUs."""
    types = """
        [pools.cluster.gpu_types]
        NVIDIA_TESLA_T4 = "accelerator_type:T4"
    """
    with ray_pool(home, cluster, monkeypatch, more=types) as nodes:
        yield nodes


class Jobs:
    """Jobs that say which GPUs they see, and end when they may."""

    def __init__(self, home: Home, client: Client, folder: Path) -> None:
        self._home, self.client, self._end = home, client, folder / "end"
        wait_ready(client, cpus=8)

    def add_pool(self, name: str, cluster: RayCluster, nodes: Home, *settings: str) -> None:
        """Another one of the same cluster."""
        table = pool_table(cluster, nodes.root).replace("pools.cluster", f"pools.{name}")
        lines = [line for line in table.splitlines() if "placement" not in line]
        self._home.config.write_text("\n".join([self._home.config.read_text(), *lines, *settings, ""]))
        wait_until(
            lambda: any(pool.name == name and not pool.trouble for pool in self.client.pools()),
            what=f"pool {name} to be known",
            deadline_s=120,
        )

    def begin(self, name: str, *, pool: str = "cluster", stays: bool = True, **fields: object) -> None:
        words = ["python", "-c", textwrap.dedent(SHOW), *([str(self._end)] if stays else [])]
        values = {"name": name, "kind": "command", "command": words, "pool": pool, **fields}
        self.client.submit(JobSpec.model_validate(values))

    def seen(self, name: str, processes: int = 1) -> list[str]:
        """The GPUs that each process of a job was given, once they all run."""
        found: list[str] = []

        def all_have_said() -> bool:
            blocks = self.client.logs(name).blocks
            lines = [(block.replica, line) for block in blocks for line in block.text.split("\n")]
            found[:] = [json.loads(line[5:]) for _, line in sorted(lines) if line.startswith("SEES ")]
            return len(found) == processes

        wait_until(all_have_said, what=f"{name} to say what it sees", deadline_s=120)
        return found

    def why(self, name: str, words: str) -> str:
        """Why it waits, once that is said."""
        wait_until(lambda: words in self.client.job(name).reason, what=f"{name} to wait for {words}", deadline_s=120)
        return self.client.job(name).reason

    def end(self, *names: str) -> None:
        self._end.touch()
        for name in names:
            job = self.client.wait(name, timeout_s=180)
            assert job.state is JobState.SUCCEEDED, (name, job.reason)
        self._end.unlink()


@pytest.fixture
def jobs(home: Home, nodes: Home, client: Client, tmp_path: Path) -> Jobs:
    return Jobs(home, client, tmp_path)


def places(home: Home, job: str) -> list[str]:
    """The addresses of a job's nodes."""
    return [place["address"] for place in json.loads(home.run_dir(job, 1, 1).places.read_text())]


@whole
def test_jobs_have_the_parts_of_gpus_and_the_nodes_they_ask_for(
    home: Home, nodes: Home, cluster: RayCluster, jobs: Jobs
) -> None:
    for name, gpus in {"half": 0.5, "other_half": 0.5, "whole": 1.0, "none": 0.0}.items():
        jobs.begin(name, resources={"gpus": gpus, "cpus": 0.1})
    half, other, one, none = (jobs.seen(name)[0] for name in ("half", "other_half", "whole", "none"))
    assert half == other, "two halves are one GPU"
    assert {half, one} == {"0", "1"}
    assert none == ""
    jobs.begin("late", resources={"gpus": 0.5, "cpus": 0.1})
    assert "waits for 0.5 GPUs of pool 'cluster': none is free" in jobs.why("late", "GPU")
    jobs.end("half", "other_half", "whole", "none", "late")

    jobs.add_pool("packed", cluster, nodes, 'placement = "pack"')
    jobs.begin("apart", resources={"slots": 2})
    jobs.begin("together", resources={"slots": 2}, pool="packed")
    jobs.begin("single", resources={"slots": 2, "single_node": True})
    for name in ("apart", "together", "single"):
        jobs.seen(name, processes=2)
    assert [len(set(places(home, name))) for name in ("apart", "together", "single")] == [2, 1, 1]
    jobs.end("apart", "together", "single")
    assert_nothing_is_left(cluster, nodes)


@whole
def test_processes_of_one_node_share_its_gpus_and_kinds_of_gpus_are_the_owners(
    home: Home, nodes: Home, cluster: RayCluster, jobs: Jobs
) -> None:
    jobs.begin("thirds", resources={"slots": 3, "cpus": 0.5, "gpus": 0.5})
    first, second, third = jobs.seen("thirds", processes=3)
    assert first == second != third
    jobs.end("thirds")

    roles = {"chief": {"cpus": 1, "gpus": 1, "gpu_type": "NVIDIA_TESLA_T4"}}
    jobs.begin("typed", resources={"roles": roles})
    assert jobs.seen("typed")[0] in ("0", "1")
    with pytest.raises(UsageError, match=r"no GPUs called NVIDIA_TESLA_K80\. It has: NVIDIA_TESLA_T4\."):
        jobs.begin("other", resources={"roles": {"chief": {"gpus": 1, "gpu_type": "NVIDIA_TESLA_K80"}}})
    jobs.end("typed")
    assert_nothing_is_left(cluster, nodes)


@whole
def test_jobs_wait_for_memory_for_the_owners_resources_and_for_what_the_pool_may_take(
    home: Home, nodes: Home, cluster: RayCluster, jobs: Jobs
) -> None:
    jobs.add_pool("scratch", cluster, nodes, "resources = { scratch = 1 }")
    jobs.begin("large", pool="scratch", resources={"cpus": 0.1, "memory_gb": 1.5})
    jobs.seen("large")
    jobs.begin("larger", pool="scratch", resources={"cpus": 0.1, "memory_gb": 1.0})
    assert "waits for 1 GB of memory of pool 'scratch'" in jobs.why("larger", "memory")
    jobs.begin("small", pool="scratch", resources={"cpus": 0.1})  # there is room, but the one scratch is taken
    assert "1 scratch; free on the cluster" in jobs.why("small", "scratch; free")
    assert "0 scratch of 1" in jobs.why("small", "scratch; free")
    with pytest.raises(UsageError, match="can never hold it"):
        jobs.begin("never", pool="scratch", resources={"memory_gb": 100})
    jobs.end("large", "larger", "small")

    jobs.add_pool("small", cluster, nodes, "cpus = 2")
    jobs.begin("first", pool="small", resources={"cpus": 2})
    jobs.seen("first")
    jobs.begin("second", pool="small", resources={"cpus": 1})
    assert "waits for 1 CPU of pool 'small': none is free" in jobs.why("second", "CPU")
    jobs.end("first", "second")
    assert_nothing_is_left(cluster, nodes)


@whole
def test_job_asks_for_more_than_there_is_waits_with_a_reason_and_runs_when_it_has_come_or_gives_up(
    home: Home, nodes: Home, cluster: RayCluster, jobs: Jobs
) -> None:
    jobs.add_pool("later", cluster, nodes, "resources = { late = 1 }", "autoscale = true", "max_nodes = 6")
    jobs.begin("hasty", pool="later", limits={"max_waiting_s": 3})
    assert "waits for 1 CPU, 1 late; free on the cluster:" in jobs.why("hasty", "late")
    assert any(name.endswith("/hasty.1.1") for name in cluster.leftovers()), "the cluster is asked: it may grow by that"
    job = jobs.client.wait("hasty", timeout_s=120)
    assert job.state is JobState.FAILED
    assert "It waited for pool 'later' for longer than max_waiting_s = 3 allows" in job.reason
    assert_nothing_is_left(cluster, nodes)

    jobs.begin("patient", pool="later", stays=False)
    assert "0 late of 0" in jobs.why("patient", "late")
    cluster.add_node(resources={"late": 1})
    assert jobs.client.wait("patient", timeout_s=120).state is JobState.SUCCEEDED
    assert_nothing_is_left(cluster, nodes)
