"""A job in the midst of its run on two nodes of a cluster, and what must be true of it in the end."""

import json
import textwrap
from pathlib import Path

from stoker.client.client import connect
from stoker.host.home import Home
from stoker.run_dir import RunDir
from stoker.schema.record import Job
from stoker.schema.state import JobState
from tests.e2e.command import submit, write_package
from tests.e2e.ray_pool import TWO_NODES, Remains, assert_nothing_is_left, wait_ready
from tests.processes import wait_until

# Numbered steps on both nodes, from the latest checkpoint on, until there is the file that is named.
TRAIN = """
    import itertools, os, sys, time
    import stoker
    ctx = stoker.init()
    first = int(open(ctx.latest_checkpoint).read()) if ctx.latest_checkpoint else 0
    for step in itertools.count(first):
        print(f"step {step}", flush=True)
        if ctx.rank == 0:
            ctx.report(step, loss=1 / (step + 1))
            with open("state.txt", "w") as file:
                file.write(str(step + 1))
            ctx.save_checkpoint("state.txt", step=step + 1)
        if ctx.should_stop() or os.path.exists(sys.argv[1]):
            break
        time.sleep(0.1)
"""


class Training:
    """A job in the midst of its run on two nodes."""

    def __init__(self, home: Home, nodes: Home, cluster: Remains, folder: Path) -> None:
        self.home, self.nodes, self.cluster = home, nodes, cluster
        self.client = connect(home)
        wait_ready(self.client, cpus=4)
        self._end = folder / "end"
        self.project = write_package(folder / "project", task=textwrap.dedent(TRAIN), urgent="print('at once')")
        (folder / "job.yaml").write_text(TWO_NODES)
        words = ("--config", str(folder / "job.yaml"), "--max-restarts", "1", "--", str(self._end))
        done = submit(self.project, "train", "task", *words)
        assert done.code == 0, done.err
        self.wait_for_steps(attempt=1)

    def run_dir(self, node: int, attempt: int = 1) -> RunDir:
        return self.nodes.run_dir("train", 1, attempt).node(node)

    def pids(self, node: int) -> dict[str, int]:
        """Of the first run's supervisor on that node, and of the processes there."""
        found = json.loads(self.run_dir(node).processes.read_text())
        return {"supervisor": found["supervisor"]["pid"]} | {
            name: one["pid"] for name, one in found["replicas"].items()
        }

    def wait_for_steps(self, *, attempt: int) -> None:
        """Until the server has heard of a few steps of both nodes in that run."""
        run = f"train.1.{attempt}"
        wait_until(
            lambda: all(len(self.told(run, replica)) > 3 for replica in ("chief-0", "worker-0")),
            what=f"steps of {run}",
            deadline_s=240,
        )

    def told(self, run: str, replica: str) -> list[str]:
        blocks = self.client.logs("train", limit=100_000).blocks
        return [
            line
            for block in blocks
            if (block.run, block.replica, block.stream) == (run, replica, "stdout")
            for line in block.text.split("\n")
        ]

    def finish(self, *, runs: int | None) -> Job:
        """Let it end; it did so well, after so many runs if that is known, all was told once, and nothing is left."""
        if runs is not None:
            self.wait_for_steps(attempt=runs)
        self._end.touch()
        job = self.client.wait("train", timeout_s=240)
        assert job.state is JobState.SUCCEEDED, job.reason
        assert runs in (None, len(job.trials[0].runs))
        for run in job.trials[0].runs:
            self._assert_all_was_told_once(run.attempt)
        assert_nothing_is_left(self.cluster, self.nodes)
        return job

    def _assert_all_was_told_once(self, attempt: int) -> None:
        run = f"train.1.{attempt}"
        for replica in ("chief-0", "worker-0"):
            # A second run may have both on one node: it is placed by what the cluster has then.
            output = next(self.run_dir(0, attempt).path.rglob(f"logs/{replica}.stdout"))
            written = output.read_text().splitlines()
            assert self.told(run, replica) == written
        steps = [int(line.split()[1]) for line in self.told(run, "chief-0")]
        assert steps == [*range(steps[0], steps[0] + len(steps))]
        assert steps[0] == 0 or attempt > 1
        points = [point.step for point in self.client.metrics("train") if point.run == run]
        # Between a line and its report there is time to be killed.
        assert points in (steps, steps[:-1])
