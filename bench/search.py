"""What a trial costs beyond its own code: no-op trials on a real server, warm and cold, beside Optuna and Ray Tune.

Run it as `python -m bench.search`; `--trials 50 --torch-trials 10 --cold-trials 10 --sklearn-trials 8 --pruned-trials 4
--peer-trials 4 --rounds 1` is a quick look. Ray Tune is measured where .venv-bench has it, with
`pip install 'ray[tune]'`.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import interleaved, medians, write_results
from bench.spine import stop_server
from stoker.client.client import connect
from stoker.schema.record import Job
from stoker.schema.search import SearchSpec
from stoker.search.base import Outcome
from stoker.search.searcher import build_searcher

STOKER = [sys.executable, "-m", "stoker.cli.main"]
RAY_PYTHON = Path(".venv-bench/bin/python").absolute()
CORES = os.cpu_count() or 1
X = {"x": {"type": "double", "min": 0, "max": 1}}

NOOP = """
import stoker
ctx = stoker.init()
ctx.report(1, loss=ctx.hparams["x"])
"""
TORCH = "import torch\n" + NOOP
SKLEARN = """
import time
import numpy
from sklearn.ensemble import RandomForestClassifier
import stoker

ctx = stoker.init()
rows = numpy.random.default_rng(ctx.seed).normal(size=(4000, 20))
forest = RandomForestClassifier(n_estimators=ctx.hparams["trees"], random_state=0).fit(rows, rows[:, 0] > 0)
ctx.report(1, loss=float(-forest.score(rows, rows[:, 0] > 0)), cpu_s=time.process_time())
"""
# Reports until it is told to stop, then ends at once.
PRUNED = """
import time
import stoker

ctx = stoker.init()
step = 0
while not ctx.should_stop() and step < 2000:
    step += 1
    ctx.report(step, loss=ctx.hparams["x"])
    time.sleep(0.002)
"""
OPTUNA = """
import subprocess, sys, time
import optuna

trials, at_once, code = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
optuna.logging.set_verbosity(optuna.logging.ERROR)

def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    done = subprocess.run([sys.executable, "-c", code, str(x)], capture_output=True, text=True, check=True)
    return float(done.stdout)

study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
began = time.perf_counter()
study.optimize(objective, n_trials=trials, n_jobs=at_once)
print((time.perf_counter() - began) / trials)
"""
RAY = """
import sys, time
import ray
from ray import tune

trials, at_once = int(sys.argv[1]), int(sys.argv[2])

def objective(config):
    tune.report({"loss": config["x"]})

ray.init(address="local", num_cpus=at_once, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
settings = tune.TuneConfig(num_samples=trials, metric="loss", mode="min", max_concurrent_trials=at_once)
tuner = tune.Tuner(
    objective, param_space={"x": tune.uniform(0, 1)}, tune_config=settings, run_config=tune.RunConfig(verbose=0)
)
began = time.perf_counter()
tuner.fit()
print("SECONDS", (time.perf_counter() - began) / trials)
"""


def main() -> None:
    wanted = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server is ended then, too
    folder = Path(tempfile.mkdtemp(prefix="stoker-bench-"))
    os.environ["STOKER_HOME"] = str(folder / "home")
    try:
        search(folder, NOOP, trials=2)  # starts the server and makes the environment
        figures: dict[str, object] = {
            "counts": vars(wanted),
            **trial_ms(folder, wanted),
            "searcher, ms a finished trial": decision_ms(trials=10_000),
            "sklearn": busy(folder, trials=wanted.sklearn_trials),
            "pruned trials, ms from the report to the end": freed_ms(folder, trials=wanted.pruned_trials),
        }
        print(write_results("search", figures).read_text())
    finally:
        stop_server()
        shutil.rmtree(folder, ignore_errors=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, help="of ours, in each round")
    parser.add_argument("--torch-trials", type=int, default=1000, help="of those that import torch")
    parser.add_argument("--cold-trials", type=int, default=100, help="of ours with `warm: false`, of each kind")
    parser.add_argument("--pruned-trials", type=int, default=20)
    parser.add_argument("--sklearn-trials", type=int, default=64)
    parser.add_argument("--peer-trials", type=int, default=20, help="of the peers, which take seconds each")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


# --- a trial that does nothing


def trial_ms(folder: Path, wanted: argparse.Namespace) -> dict[str, object]:
    """Milliseconds a trial: the whole search, from its submission to its end, by the number of its trials."""
    plain, torch = "import sys; print(sys.argv[1])", "import sys, torch; print(sys.argv[1])"
    contenders: dict[str, Callable[[], float]] = {
        "stoker": lambda: search(folder, NOOP, trials=wanted.trials) / wanted.trials,
        "stoker, importing torch": lambda: search(folder, TORCH, trials=wanted.torch_trials) / wanted.torch_trials,
        "stoker cold": lambda: search(folder, NOOP, trials=wanted.cold_trials, warm=False) / wanted.cold_trials,
        "stoker cold, importing torch": (
            lambda: search(folder, TORCH, trials=wanted.peer_trials, warm=False) / wanted.peer_trials
        ),
        "optuna, a process each": lambda: optuna(plain, trials=wanted.peer_trials),
        "optuna, a process each, importing torch": lambda: optuna(torch, trials=wanted.peer_trials),
    }
    missing = why_no_tune()
    if missing is None:
        contenders["ray tune"] = lambda: ray_tune(trials=wanted.peer_trials)
    found = medians(interleaved(contenders, repetitions=wanted.rounds))
    ratios = {
        f"times faster than {name}": round(value / found["stoker, importing torch" if "torch" in name else "stoker"], 1)
        for name, value in found.items()
        if name not in ("stoker", "stoker, importing torch")
    }
    figures: dict[str, object] = {"ms a trial": {name: round(s * 1000, 1) for name, s in found.items()}, **ratios}
    if missing is not None:
        figures["ray tune"] = f"not measured: {missing}"
    return figures


def search(folder: Path, code: str, *, trials: int, warm: bool = True) -> float:
    """Seconds from submission to the end of a random search, as the server's clock has it."""
    return took_s(experiment(folder, code, trials=trials, space=X, warm=warm))


def experiment(folder: Path, code: str, *, trials: int, space: dict[str, Any], **more: object) -> Job:
    project = folder / "project"
    project.mkdir(exist_ok=True)
    (project / "train.py").write_text(code)
    config = folder / "search.json"
    searched = {"metric": "loss", "max_trials": trials, "max_concurrent_trials": CORES, "space": space, **more}
    variables = {"OMP_NUM_THREADS": "1"}  # so that a trial is one core's work
    file = {"name": "bench", "command": ["python", "train.py"], "environment": {"variables": variables}}
    config.write_text(json.dumps({**file, "search": searched}))
    command = [*STOKER, "experiment", "create", str(config), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    job = connect().wait(done.stdout.strip())
    if job.state.value != "SUCCEEDED":
        raise RuntimeError(f"{job.id} is {job.state}: {job.reason}")
    return job


def took_s(job: Job) -> float:
    assert job.ended is not None
    return job.ended - job.created


# --- the peers


def optuna(code: str, *, trials: int) -> float:
    """Seconds a trial of Optuna's own loop, with as many threads as cores, each starting a Python."""
    command = [sys.executable, "-c", textwrap.dedent(OPTUNA), str(trials), str(CORES), code]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def why_no_tune() -> str | None:
    """None if Ray Tune can be measured."""
    if not RAY_PYTHON.exists():
        return "there is no .venv-bench"
    done = subprocess.run([str(RAY_PYTHON), "-c", "import ray.tune"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def ray_tune(*, trials: int) -> float:
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1"}
    command = [str(RAY_PYTHON), "-c", textwrap.dedent(RAY), str(trials), str(CORES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("SECONDS")))


# --- decisions


def decision_ms(*, trials: int) -> dict[str, float]:
    """Milliseconds to hear a trial's reports and its end and to choose the next, among so many: the last thousand."""
    space = {name: {"type": "double", "min": 0, "max": 1} for name in ("a", "b", "c", "d")}
    common = {"metric": "loss", "max_trials": trials, "space": space, "max_concurrent_trials": 2}
    asha = {"name": "asha", "max_time": 64}
    specs = {
        "random": SearchSpec.model_validate(common),
        "random with asha": SearchSpec.model_validate({**common, "stopping": asha}),
        "random with median": SearchSpec.model_validate({**common, "stopping": "median"}),
    }
    return {name: round(_last_thousand_ms(spec, trials), 3) for name, spec in specs.items()}


def _last_thousand_ms(spec: SearchSpec, trials: int) -> float:
    searcher = build_searcher(spec)
    began, first = 0.0, max(trials - 1000, 0)
    while (suggestion := searcher.ask()) is not None:
        if suggestion.trial == first + 1:
            began = time.perf_counter()
        for step in (1, 4, 16, 64):
            loss = sum(suggestion.hparams.values()) + 1 / step
            if searcher.report(suggestion.trial, step=step, values={"loss": loss}) is not None:
                searcher.ended(suggestion.trial, Outcome.STOPPED, reported=("loss",))
                break
        else:
            searcher.ended(suggestion.trial, Outcome.COMPLETED, reported=("loss",))
    return (time.perf_counter() - began) / (trials - first) * 1000


# --- how busy the cores are


def busy(folder: Path, *, trials: int) -> dict[str, float]:
    """The share of all cores' time that was used, and that trials of a second or so spent in their own process."""
    idle, total = idle_and_total()
    job = experiment(folder, SKLEARN, trials=trials, space={"trees": {"type": "int", "min": 80, "max": 120}})
    later_idle, later_total = idle_and_total()
    used_s = 0.0
    with contextlib.closing(connect()) as client:
        for point in client.metrics(job.id):
            used_s += point.values["cpu_s"]
    took = took_s(job)
    return {
        "trials": trials,
        "took_s": round(took, 1),
        "cores busy": round(1 - (later_idle - idle) / (later_total - total), 3),
        "cores busy with the trials' own code": round(used_s / (took * CORES), 3),
    }


def idle_and_total() -> tuple[int, int]:
    """Ticks of all cores since boot."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


# --- how soon a stopped trial makes room


def freed_ms(folder: Path, *, trials: int) -> dict[str, float]:
    """From the report that a trial is stopped for to its end as the server has it: to hear, order, tell and leave."""
    rungs = (125, 500, 2000)
    job = experiment(
        folder, PRUNED, trials=trials, space=X, stopping={"name": "asha", "max_time": 2000, "max_rungs": 3}
    )
    with contextlib.closing(connect()) as client:
        runs = [run for trial in client.job(job.id).trials for run in trial.runs if run.state == "STOPPED"]
        times = {(point.run, point.step): point.time for point in client.metrics(job.id)}
    last = {run: max(step for of, step in times if of == run) for run, _ in times}
    waits = []
    for run in runs:
        rung = max(rung for rung in rungs if rung <= last[run.id])
        waits.append(1000 * ((run.ended or 0.0) - times[run.id, rung]))
    if not waits:
        return {"trials": 0}
    return {"trials": len(waits), "median": round(statistics.median(waits)), "slowest": round(max(waits))}


if __name__ == "__main__":
    main()
