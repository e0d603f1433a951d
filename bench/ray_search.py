"""A search of short trials over the slots of real raylets: are they all busy until the queue is empty?

python -m bench.ray_search [--trials 500] [--seconds 2]: four raylets of two CPUs, with the Ray of .venv-bench.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.measure import write_results
from stoker.client.client import Client, connect
from stoker.host.home import Home
from stoker.schema.record import Run
from tests.e2e.ray_pool import pool_table
from tests.ray_cluster import start

RAY_PYTHON = Path(os.environ.get("STOKER_RAY_PYTHON", ".venv-bench/bin/python")).absolute()
_KNOWN_S = 180.0
TRIAL = """
import time
import stoker

ctx = stoker.init()
time.sleep(ctx.hparams["seconds"])
ctx.report(1, loss=ctx.hparams["x"])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=2.0, help="that each trial sleeps")
    parser.add_argument("--results", default="", help="write bench/results/NAME.json")
    asked = parser.parse_args()
    figures = measure(asked.trials, asked.seconds)
    for name, value in figures.items():
        print(f"{name}: {value}")
    if asked.results:
        print(write_results(asked.results, figures))


def measure(trials: int, seconds: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as text, start(str(RAY_PYTHON)) as cluster:
        folder = Path(text)
        cluster.add_node()
        os.environ.update({**cluster.variables, "STOKER_HOME": str(folder / "home")})
        home = Home(folder / "home").make()
        home.config.write_text(pool_table(cluster, folder / "nodes"))
        client = connect(home)
        try:
            slots = _wait_for_slots(client, 2 * 4)
            began = time.monotonic()
            runs = _search(client, folder / "package", trials, seconds)
            took_s = time.monotonic() - began
            logs = [log.read_text() for log in (folder / "nodes" / "runs").glob("*/*/*/supervisor.log")]
        finally:
            client.close()
            subprocess.run([sys.executable, "-m", "stoker.cli.main", "server", "stop"], check=False)
    return {
        "trials": trials,
        "seconds each": seconds,
        "slots": slots,
        "took, s": round(took_s, 1),
        "trials a second": round(trials / took_s, 2),
        "most runs at once": most_at_once(runs),
        "slots that held a run until the queue was empty": busy(runs, slots, begins=lambda run: run.created),
        "slots that ran user code until then": busy(runs, slots, begins=lambda run: run.started or run.created),
        "started cold": sum("is started cold" in log for log in logs),
        "started": len(logs),
    }


def _wait_for_slots(client: Client, wanted: int) -> int:
    give_up = time.monotonic() + _KNOWN_S
    while (found := client.pools()[0].slots) < wanted:
        if time.monotonic() > give_up:
            raise SystemExit(f"the cluster has {found} slots after {_KNOWN_S:g} s; {wanted} were started")
        time.sleep(0.5)
    return found


def _search(client: Client, package: Path, trials: int, seconds: float) -> list[Run]:
    (package / "trainer").mkdir(parents=True)
    (package / "trainer" / "__init__.py").touch()
    (package / "trainer" / "task.py").write_text(TRIAL)
    space = {"x": {"type": "double", "min": 0, "max": 1}, "seconds": seconds}
    search = {"sampler": "random", "metric": "loss", "max_trials": trials, "space": space}
    (package / "search.yaml").write_text(json.dumps({"name": "hunt", "module": "trainer.task", "search": search}))
    words = [sys.executable, "-m", "stoker.cli.main", "experiment", "create", "search.yaml", "."]
    name = subprocess.run(words, cwd=package, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]
    job = client.wait(name, timeout_s=3600)
    print(f"{name}: {job.state}", flush=True)
    return [run for trial in client.trials(name, limit=trials).trials for run in trial.runs]


def most_at_once(runs: Sequence[Run]) -> int:
    changes = sorted([(run.created, 1) for run in runs] + [(run.ended or run.created, -1) for run in runs])
    at_once = most = 0
    for _, change in changes:
        at_once += change
        most = max(most, at_once)
    return most


def busy(runs: Sequence[Run], slots: int, *, begins: Callable[[Run], float]) -> float | None:
    """Of the slots' time from the first run's user code to when the last run was made, how much had a run on it.

    A search makes a run when there is a slot for it, and one more that waits: counted from then, up to one slot too
    much is held.
    """
    first = min(run.started for run in runs if run.started is not None)
    last = max(run.created for run in runs)
    held = sum(max(min(run.ended or last, last) - max(begins(run), first), 0.0) for run in runs)
    return round(held / (slots * (last - first)), 3) if last > first else None


if __name__ == "__main__":
    main()
