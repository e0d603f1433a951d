"""Nodes with disks of their own on a real Ray cluster: what one has saved another goes on from, by a storage URL."""

import json
import os
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.client.client import connect
from stoker.host.home import Home
from stoker.schema.state import JobState, RunState
from tests.e2e.command import stoker, submit, write_package
from tests.e2e.ray_pool import pool_table, wait_ready
from tests.processes import kill_all_with_environment, wait_until
from tests.ray_cluster import IS_WHOLE, NOT_WHOLE, RayCluster, python_with_ray

PYTHON = python_with_ray()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(PYTHON is None or not IS_WHOLE, reason=NOT_WHOLE)]

# Steps from the latest checkpoint on, until it is the second run's tenth; then a model, and a file in the job's folder.
TRAIN = """
    import itertools, os, sys, time
    import stoker
    ctx = stoker.init()
    first = int(open(os.path.join(ctx.latest_checkpoint, "state.txt")).read()) if ctx.latest_checkpoint else 0
    for step in itertools.count(first):
        print(f"step {step}", flush=True)
        os.makedirs("state", exist_ok=True)
        with open("state/state.txt", "w") as file:
            file.write(str(step + 1))
        ctx.save_checkpoint("state", step=step + 1)
        ctx.report(step, loss=1.0)
        if ctx.attempt > 1 and step >= first + 5:
            break
        time.sleep(0.2)
    from sklearn.linear_model import LinearRegression
    ctx.save_model(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]))
    from google.cloud import storage
    name, _, key = sys.argv[-1].removeprefix("gs://").partition("/")
    storage.Client().bucket(name).blob(key + "/done.txt").upload_from_string("done")
"""


@pytest.fixture
def disks(cluster: RayCluster, tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Two nodes more, each with a home of its own that no other sees; by raylet."""
    found = {}
    for number in range(2):
        disk = tmp_path / f"disk-{number}"
        disk.mkdir()
        raylet = cluster.add_node(resources={"own_disk": 1}, env_vars={"HOME": str(disk)})
        found[str(raylet)] = disk
    yield found
    for raylet in found:
        if Path(f"/proc/{raylet}").exists():
            os.kill(int(raylet), signal.SIGKILL)
    for disk in found.values():
        kill_all_with_environment("STOKER_HOME", str(disk), prefix=True)
        kill_all_with_environment("STOKER_RUN_DIR", str(disk), prefix=True)


@pytest.mark.parametrize("is_kept", [True, False])
def test_run_goes_on_from_a_checkpoint_that_a_lost_disk_had_if_it_was_kept_at_a_url(
    home: Home,
    cluster: RayCluster,
    disks: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_kept: bool,
) -> None:
    for name, value in cluster.variables.items():
        monkeypatch.setenv(name, value)
    shared = tmp_path / "shared"
    shared.mkdir()
    table = pool_table(cluster, Path("HOME")).replace('home = "HOME"', 'home = "~/stoker"')
    artifacts = 'artifacts = "gs://kept/runs"' if is_kept else ""
    buckets = f'[storage.buckets]\n"gs://*" = "{shared}"'
    home.config.write_text("\n".join([table, "resources = { own_disk = 1 }", artifacts, buckets, ""]))
    with connect(home) as client:
        wait_ready(client, cpus=4)
        project = write_package(tmp_path / "project", task=textwrap.dedent(TRAIN))
        done = submit(project, "train", "task", "--job-dir", "gs://out/train")
        assert done.code == 0, done.err
        wait_until(lambda: len(client.checkpoints("train")) > 3, what="checkpoints", deadline_s=120)

        place = json.loads(home.run_dir("train", 1, 1).places.read_text())[0]
        disk = disks[str(cluster.raylet_at(place["address"]))]
        kill_all_with_environment("HOME", str(disk))  # the whole node at once, and its disk with it
        disk.rename(tmp_path / "lost")
        job = client.wait("train", timeout_s=240)

        first, second = job.trials[0].runs
        assert first.state is RunState.LOST
        if not is_kept:
            assert job.state is JobState.FAILED
            assert "is not on this machine. Nodes with disks of their own need a place for checkpoints" in job.reason
            return
        assert job.state is JobState.SUCCEEDED, job.reason
        lines = [
            line for block in client.logs("train").blocks if block.run == second.id for line in block.text.split("\n")
        ]
        steps = [int(line.split()[1]) for line in lines if line.startswith("step ")]
        assert steps[0] >= 3, "it went on from its checkpoint"
        newest = client.checkpoints("train")[-1].path
        assert newest.startswith("gs://kept/runs/train/1/2/checkpoints/step-")
        assert (shared / newest.removeprefix("gs://") / "state.txt").read_text() == str(steps[-1] + 1)
        assert (shared / "kept/runs/train/1/2/models/model/model.joblib").exists()
        assert (shared / "out/train/done.txt").read_text() == "done"
    registered = stoker("models", "register", "train", "--name", "kept_model")
    assert registered.code == 0, registered.err
