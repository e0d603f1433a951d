"""kill -9 of each part of a run on two nodes of a real Ray cluster; every line compared with what was written."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.client.client import connect
from stoker.host.home import Home
from stoker.schema.state import JobState, RunState, StopReason
from tests.e2e.command import stoker, submit
from tests.e2e.conftest import kill_server
from tests.e2e.ray_pool import assert_nothing_is_left, wait_ready
from tests.e2e.ray_training import Training
from tests.processes import processes_with_environment, wait_until
from tests.ray_cluster import IS_WHOLE, NOT_WHOLE, RayCluster, python_with_ray

PYTHON = python_with_ray()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(PYTHON is None or not IS_WHOLE, reason=NOT_WHOLE)]


@pytest.fixture
def training(home: Home, nodes: Home, cluster: RayCluster, tmp_path: Path) -> Iterator[Training]:
    training = Training(home, nodes, cluster, tmp_path)
    yield training
    training.client.close()


@pytest.mark.parametrize("victim", ["worker-0", "supervisor", "agent"])
def test_run_starts_again_from_its_checkpoint_when_a_part_of_a_node_is_killed(training: Training, victim: str) -> None:
    pids = training.pids(1)

    os.kill(agent_of(pids["supervisor"]) if victim == "agent" else pids[victim], signal.SIGKILL)

    training.finish(runs=2)
    assert training.told("train.1.2", "chief-0")[0] != "step 0", "it went on from its checkpoint"


def test_run_starts_again_on_what_is_left_when_a_raylet_is_killed(training: Training, cluster: RayCluster) -> None:
    placed = json.loads(training.home.run_dir("train", 1, 1).places.read_text())
    away = next(place["address"] for place in placed if place["address"] != cluster.address.partition(":")[0])

    os.kill(cluster.raylet_at(away), signal.SIGKILL)

    training.finish(runs=2)
    cluster.add_node()  # for the next


def test_run_goes_on_when_the_bridge_is_killed(training: Training) -> None:
    bridge = bridge_of(training.home)
    os.kill(bridge, signal.SIGKILL)
    wait_until(lambda: bridge_of(training.home) not in (0, bridge), what="another bridge")

    training.finish(runs=1)


def test_run_goes_on_and_all_is_told_when_the_server_is_gone_for_a_while(training: Training) -> None:
    kill_server(training.home)
    output = training.run_dir(1).output("worker-0", "stdout")
    seen = len(output.read_text().splitlines())
    wait_until(lambda: len(output.read_text().splitlines()) > seen + 50, what="steps that no server hears of")
    training.client.close()
    training.client = connect(training.home)

    training.finish(runs=1)


def test_cancelled_run_ends_on_all_nodes(training: Training) -> None:
    done = stoker("jobs", "cancel", "train")
    assert done.code == 0, done.err

    assert training.client.wait("train", timeout_s=120).state is JobState.CANCELLED
    assert_nothing_is_left(training.cluster, training.nodes)


def test_job_of_higher_priority_takes_the_place_of_another_which_checkpoints_waits_and_goes_on(
    training: Training, tmp_path: Path
) -> None:
    wait_ready(training.client)
    whole = tmp_path / "whole.yaml"  # all that the cluster has
    whole.write_text(
        "trainingInput: {scaleTier: CUSTOM, masterType: n1-standard-2, workerType: n1-standard-2, workerCount: 2}\n"
    )

    done = submit(training.project, "urgent", "urgent", "--config", str(whole), "--priority", "9", "--stream-logs")

    assert done.code == 0, done.err
    assert done.out.count("at once") == 3
    job = training.finish(runs=2)
    first, second = job.trials[0].runs
    assert (first.state, first.stop) == (RunState.STOPPED, StopReason.PREEMPT)
    urgent = training.client.job("urgent").trials[0].runs[0]
    assert first.ended <= urgent.ended <= second.started
    done_before = len(training.told("train.1.1", "chief-0"))
    assert training.told("train.1.2", "chief-0")[0] == f"step {done_before}", "no step is lost, none is done twice"


def test_job_goes_on_from_its_checkpoint_on_the_next_cluster_when_the_head_is_killed(
    training: Training, cluster: RayCluster
) -> None:
    cluster.kill_head()
    wait_until(
        lambda: not processes_with_environment("STOKER_RUN_DIR", str(training.nodes.root), prefix=True),
        what="Ray to have ended everything",
        deadline_s=180,
    )
    cluster.renew()

    training.finish(runs=2)
    assert training.told("train.1.2", "chief-0")[0] != "step 0", "it went on from its checkpoint"


def agent_of(supervisor: int) -> int:
    """The process that holds the other end of this supervisor's lifeline."""
    words = Path(f"/proc/{supervisor}/cmdline").read_bytes().split(b"\0")
    lifeline = os.readlink(f"/proc/{supervisor}/fd/{int(words[words.index(b'--lifeline') + 1])}")
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != supervisor:
            try:
                if lifeline in {os.readlink(link) for link in (folder / "fd").iterdir()}:
                    return int(folder.name)
            except OSError:
                continue
    raise AssertionError(f"nobody holds {lifeline}")


def bridge_of(home: Home) -> int:
    """0 if there is none."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"stoker.engines.ray.bridge" in words and os.fsencode(home.root) in words:
                return int(folder.name)
    return 0
