"""A search over the slots of a real Ray cluster: all of them busy, and its trials forked."""

import json
import textwrap
from pathlib import Path

import pytest

from stoker.client.client import Client
from stoker.host.home import Home
from stoker.schema.record import Run
from stoker.schema.state import JobState
from tests.e2e.command import stoker, write_package
from tests.e2e.ray_pool import assert_nothing_is_left, wait_ready
from tests.ray_cluster import IS_WHOLE, NOT_WHOLE, RayCluster, python_with_ray

PYTHON = python_with_ray()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None or not IS_WHOLE, reason=NOT_WHOLE),
]

SLOTS = 6  # three nodes of two CPUs
TRIAL = """
    import time
    import stoker
    ctx = stoker.init()
    time.sleep(2)
    ctx.report(1, loss=ctx.hparams["x"])
"""


def test_search_keeps_every_slot_of_the_cluster_busy_with_forked_trials(
    home: Home, nodes: Home, client: Client, cluster: RayCluster, tmp_path: Path
) -> None:
    wait_ready(client, cpus=SLOTS)
    project = write_package(tmp_path / "project", trial=textwrap.dedent(TRIAL))
    search = {
        "sampler": "random",
        "metric": "loss",
        "max_trials": 4 * SLOTS,
        "space": {"x": {"type": "double", "min": 0, "max": 1}},
    }
    (project / "search.yaml").write_text(json.dumps({"name": "hunt", "module": "trainer.trial", "search": search}))

    created = stoker("experiment", "create", "search.yaml", ".", cwd=project)

    assert created.code == 0, created.err
    name = created.out.split()[-1]
    job = client.wait(name, timeout_s=600)
    assert job.state is JobState.SUCCEEDED, job
    trials = client.trials(name, limit=100).trials
    assert [trial.outcome for trial in trials] == ["completed"] * 4 * SLOTS
    runs = [run for trial in trials for run in trial.runs]
    assert most_at_once(runs) == SLOTS, "every slot, and none twice"
    placed = [json.loads(home.run_dir(name, trial.number, 1).places.read_text()) for trial in trials]
    assert len({place[0]["address"] for place in placed}) == 3
    logs = [log.read_text() for log in (nodes.root / "runs" / name).glob("*/*/supervisor.log")]
    assert len(logs) == len(trials)
    assert not any("is started cold" in log for log in logs), "one zygote forks them all"
    assert_nothing_is_left(cluster, nodes)


def most_at_once(runs: list[Run]) -> int:
    """Runs whose user code ran at the same time."""
    begins = [(run.started, 1) for run in runs if run.started is not None]
    ends = [(run.ended, -1) for run in runs if run.ended is not None]
    at_once = most = 0
    for _, change in sorted([*begins, *ends], key=lambda moment: (moment[0], moment[1])):
        at_once += change
        most = max(most, at_once)
    return most
