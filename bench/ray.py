"""What the Ray engine costs beside Ray's own tools: first line, steps a second on two nodes, memory, a lost node.

Run it as `python -m bench.ray [ROUNDS]`; it starts a cluster of three nodes here with the Ray of .venv-bench.
Contenders take turns, each of them first in every second round, and a ratio is the median of the rounds' own: so that
a noisy minute hurts both.
"""

import contextlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.measure import medians, write_results
from stoker.client.client import Client, connect
from stoker.host.home import Home
from stoker.schema.record import Job
from tests.e2e.ray_pool import pool_table
from tests.ray_cluster import RayCluster, start

RAY_PYTHON = Path(os.environ.get("STOKER_RAY_PYTHON", ".venv-bench/bin/python")).absolute()
STOKER = [sys.executable, "-m", "stoker.cli.main"]
_DEADLINE_S = 300.0
_SLEEPERS = 5
FIRST = 'import time; print("FIRST", time.time(), flush=True)\n'
SLEEP = "import time; time.sleep(3600)\n"
# The same file for both: torchrun and stoker set the same variables.
STEPS = """
    import os, time, torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(64, 256)
    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    steps(20)
    dist.barrier()
    began = time.perf_counter()
    steps(1000)
    if dist.get_rank() == 0:
        print("STEPS", 1000 / (time.perf_counter() - began), flush=True)
    dist.destroy_process_group()
"""
# Plain torchrun on two raylets: Ray does no more than start it there.
TORCHRUN = """
    import socket, subprocess, sys
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
    ray.init(address=sys.argv[1], log_to_driver=False)
    group = placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
    ray.get(group.ready())

    @ray.remote(num_cpus=1)
    def look():
        listener = socket.create_server(("", 0))
        return ray.util.get_node_ip_address(), listener.getsockname()[1]

    @ray.remote(num_cpus=1)
    def torchrun(rank, host, port, python, script):
        words = [python, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=1"]
        words += [f"--master-addr={host}", f"--master-port={port}", script]
        return subprocess.run(words, capture_output=True, text=True).stdout

    def on(rank):
        return {"scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)}

    host, port = ray.get(look.options(**on(0)).remote())
    ends = [torchrun.options(**on(rank)).remote(rank, host, port, *sys.argv[2:]) for rank in range(2)]
    print(*ray.get(ends), flush=True)
    remove_placement_group(group)
"""


@dataclass
class Bench:
    """A warm cluster, with a pool for it; names are given out once."""

    folder: Path
    home: Home
    client: Client
    cluster: RayCluster
    names: Iterator[str] = field(default_factory=lambda: (f"job_{number}" for number in range(10**6)))

    def submit(self, module: str, *words: str) -> str:
        name = next(self.names)
        submission = ["jobs", "submit", "training", name, "--package-path", "trainer", *words]
        done = subprocess.run(
            [*STOKER, *submission, "--module-name", f"trainer.{module}"],
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return name

    def on_two_nodes(self) -> tuple[str, str]:
        size = "scaleTier: CUSTOM, masterType: n1-standard-1, workerType: n1-standard-1, workerCount: 1"
        (self.folder / "two.yaml").write_text(f"trainingInput: {{{size}}}\n")
        return "--config", str(self.folder / "two.yaml")

    def wait_for(self, name: str, condition: Callable[[Job], bool]) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not condition(self.client.job(name)):
            assert time.monotonic() < deadline, self.client.job(name)
            time.sleep(0.02)

    def said(self, name: str, word: str) -> float:
        """The number after this word in what it printed."""
        assert self.client.wait(name, timeout_s=_DEADLINE_S).state == "SUCCEEDED"
        text = "\n".join(block.text for block in self.client.logs(name).blocks)
        return _number(text, word)


def main(rounds: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="stoker-bench-ray-"))
    try:
        with _bench(folder) as bench:
            figures: dict[str, object] = {
                "rounds": rounds,
                "first_line_s": first_line(bench, rounds=rounds),
                "ddp_steps_per_s": ddp(bench, rounds=rounds),
                "head_mb_per_run": memory(bench),
                "killed_node_noticed_s": killed_nodes(bench, rounds=min(rounds, 3)),
            }
        print(write_results("ray", figures).read_text(), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _bench(folder: Path) -> Iterator[Bench]:
    home = Home(folder / "home").make()
    package = folder / "trainer"
    package.mkdir()
    for name, code in {"__init__": "", "first": FIRST, "steps": STEPS, "sleep": SLEEP}.items():
        (package / f"{name}.py").write_text(textwrap.dedent(code))
    with start(str(RAY_PYTHON), with_dashboard=True) as cluster:
        os.environ |= {**cluster.variables, "STOKER_HOME": str(home.root)}
        home.config.write_text(pool_table(cluster, folder / "nodes"))
        with connect(home) as client:
            bench = Bench(folder, home, client, cluster)
            try:
                deadline = time.monotonic() + _DEADLINE_S
                while client.pools()[0].capacity.cpus < 6 and time.monotonic() < deadline:
                    time.sleep(0.1)
                bench.said(bench.submit("first"), "FIRST")  # nodes have the source and the package from now on
                yield bench
            finally:
                client.shutdown()
                _end_bridge(home)


def first_line(bench: Bench, *, rounds: int) -> dict[str, float]:
    """From the command until user code has printed, by user code's own clock."""

    def by_stoker() -> float:
        began = time.time()
        return bench.said(bench.submit("first"), "FIRST") - began

    def by_ray() -> float:
        began = time.time()
        words = [str(RAY_PYTHON.with_name("ray")), "job", "submit", "--address", f"http://{bench.cluster.dashboard}"]
        words += ["--", sys.executable, str(bench.folder / "trainer" / "first.py")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=_DEADLINE_S)
        return _number(done.stdout + done.stderr, "FIRST") - began

    return {**_compare(by_stoker, by_ray, other="ray_job_submit", rounds=rounds), "limit": 0.5}


def ddp(bench: Bench, *, rounds: int) -> dict[str, float]:
    """Steps a second of the same script, by its own clock."""
    driver = bench.folder / "driver.py"
    driver.write_text(textwrap.dedent(TORCHRUN))
    script = str(bench.folder / "trainer" / "steps.py")

    def by_stoker() -> float:
        return bench.said(bench.submit("steps", *bench.on_two_nodes()), "STEPS")

    def by_torchrun() -> float:
        words = [str(RAY_PYTHON), str(driver), bench.cluster.address, sys.executable, script]
        done = subprocess.run(words, capture_output=True, text=True, timeout=_DEADLINE_S)
        return _number(done.stdout + done.stderr, "STEPS")

    return {**_compare(by_stoker, by_torchrun, other="torchrun", rounds=rounds), "limit": 0.97}


def _compare(
    by_stoker: Callable[[], float], by_other: Callable[[], float], *, other: str, rounds: int
) -> dict[str, float]:
    """Their medians, and the median of the rounds' ratios with the least and the largest of them."""
    samples: dict[str, list[float]] = {"stoker": [], other: []}
    turns = [("stoker", by_stoker), (other, by_other)]
    for number in range(rounds):
        for name, measure in turns if number % 2 == 0 else reversed(turns):
            samples[name].append(measure())
    ratios = [mine / its for mine, its in zip(samples["stoker"], samples[other], strict=True)]
    found = {**medians(samples), "ratio": statistics.median(ratios)}
    return {**found, "least_ratio": min(ratios), "largest_ratio": max(ratios)}


def memory(bench: Bench) -> dict[str, float]:
    """What each of a few runs adds to the processes of the control plane: server, bridge, GCS; and to its node."""
    plane = [bench.client.address.pid, *_pids("stoker.engines.ray.bridge", str(bench.home.root)), *_pids("gcs_server")]
    before = sum(map(_mb, plane))
    names = [bench.submit("sleep") for _ in range(_SLEEPERS)]
    for name in names:
        bench.wait_for(name, lambda job: job.state == "RUNNING")
    after = sum(map(_mb, plane))
    nodes = sum(map(_mb, [*_pids("ray::Agent"), *_pids("stoker.supervisor", str(bench.folder))]))
    for name in names:
        bench.client.kill(name)
    for name in names:
        bench.client.wait(name, timeout_s=_DEADLINE_S)
    return {"control_plane": (after - before) / _SLEEPERS, "limit": 50.0, "on_its_node": nodes / _SLEEPERS}


def killed_nodes(bench: Bench, *, rounds: int) -> dict[str, float]:
    found = []
    for number in range(rounds):
        if number:
            bench.cluster.add_node()
        found.append(killed_node(bench))
    return {"median": statistics.median(found), "longest": max(found), "limit": 10.0}


def killed_node(bench: Bench) -> float:
    """From kill -9 of a raylet until the server has given its run up and queued another."""
    name = bench.submit("sleep", *bench.on_two_nodes())
    bench.wait_for(name, lambda job: job.state == "RUNNING")
    text = bench.home.run_dir(name, 1, 1).places.read_text()
    head = bench.cluster.address.partition(":")[0]  # where the bridge is: it would have to start anew
    address = next(found for found in re.findall(r'"address": "([^"]+)"', text) if found != head)
    killed = time.time()
    os.kill(bench.cluster.raylet_at(address), signal.SIGKILL)
    bench.wait_for(name, lambda job: len(job.trials[0].runs) > 1)
    noticed = time.time() - killed
    bench.client.kill(name)
    bench.client.wait(name, timeout_s=_DEADLINE_S)
    return noticed


def _number(text: str, word: str) -> float:
    found = re.search(rf"{word} ([0-9.]+)", text)
    assert found, text
    return float(found[1])


def _mb(pid: int) -> float:
    """Its own part of memory: shared pages are divided between those who share them."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _pids(*words: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if all(word in line for word in words):
                    found.append(int(folder.name))
    return found


def _end_bridge(home: Home) -> None:
    for pid in _pids("stoker.engines.ray.bridge", str(home.root)):
        os.kill(pid, signal.SIGTERM)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
