"""Small real jobs for the page to show: a search that is stopped early, a job that fails, strings that are no HTML."""

import json
from pathlib import Path
from typing import Any

from stoker.host.home import Home
from tests.e2e.command import Result, stoker, write_package

SCRIPT = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"

# A made-up loss with the shape of a real one: a best learning rate, overfitting with many layers, noise.
TASK = '''
"""Learn something small, and say how it goes."""
# <script>window.hacked=1</script>
import math, os, random, sys, time
import stoker

with stoker.init() as ctx:
    h = {"lr": 0.01, "layers": 2, "dropout": 0.1, "optimizer": "adam", "steps": 32, "pause_s": 0.0, **ctx.hparams}
    noise = random.Random(str(h))
    floor = 0.08 + 0.05 * (math.log10(h["lr"]) + 2.2) ** 2 + 0.02 * abs(h["layers"] - 4)
    floor += 0.12 * (h["optimizer"] == "sgd") + 0.1 * h["dropout"]
    print("INFO learning rate", h["lr"], "optimizer", h["optimizer"], flush=True)
    for step in range(1, h["steps"] + 1):
        fall = math.exp(-step * (0.06 + 2 * h["lr"]))
        train = floor * 0.8 + 2.2 * fall + noise.gauss(0, 0.015)
        val = floor + 2.3 * fall + noise.gauss(0, 0.02) + 0.0004 * step * h["layers"]
        ctx.report(step, loss=train, accuracy=1 - train / 2.6, epoch=step / 4)
        ctx.report(step, "validation", loss=val, accuracy=1 - val / 2.6, epoch=step / 4)
        ctx.progress(step / h["steps"])
        print(f"step {step} loss {train:.4f} val {val:.4f}", flush=True)
        if step % 8 == 0:
            print(f"WARNING gradient norm {10 * fall:.2f}", file=sys.stderr, flush=True)
        time.sleep(h["pause_s"])
        if ctx.should_stop():
            break
    folder = os.path.join(ctx.checkpoint_dir, "weights")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "weights.txt"), "w") as file:
        file.write("0" * 4096)
    ctx.save_checkpoint(folder, step, loss=val)
'''

FAILS = f"""
import sys, stoker
with stoker.init() as ctx:
    ctx.report(1, **{{"loss {SCRIPT}": 0.5}})
    print("a line with {SCRIPT}", flush=True)
    rows = []
    print("ERROR reading rows", file=sys.stderr, flush=True)
    raise ValueError("no rows in train.csv {SCRIPT}")
"""

SPACE = {
    "lr": {"type": "double", "min": 1e-4, "max": 1e-1, "scale": "log"},
    "layers": {"type": "int", "min": 1, "max": 8},
    "dropout": {"type": "double", "min": 0.0, "max": 0.5},
    "optimizer": {"type": "categorical", "values": ["adam", "adamw", "sgd"]},
}


def write_demo(folder: Path) -> Path:
    return write_package(folder, task=TASK, fails=FAILS)


def submit_search(
    home: Home, project: Path, name: str, *, trials: int, steps: int = 32, pause_s: float = 0.0, **more: Any
) -> str:
    """The job's name, which has a number at its end."""
    search = {
        "sampler": "random",
        "metric": "loss",
        "group": "validation",
        "space": {**SPACE, "steps": steps, "pause_s": pause_s},
        "stopping": {"name": "asha", "max_time": steps, "divisor": 2, "max_rungs": 4},
        "max_trials": trials,
        "seed": 3,
        **more,
    }
    document = {"name": name, "module": "trainer.task", "search": search, "labels": {"team": "digits"}}
    (project / f"{name}.yaml").write_text(json.dumps(document))
    return _done(home, project, "experiment", "create", f"{name}.yaml", ".").out.split()[-1]


def submit_job(home: Home, project: Path, name: str, module: str = "task", *words: str) -> str:
    flags = ("--package-path", "trainer", "--module-name", f"trainer.{module}", "--labels", "team=digits")
    _done(home, project, "jobs", "submit", "training", name, *flags, *words)
    return name


def _done(home: Home, project: Path, *words: str) -> Result:
    done = stoker(*words, cwd=project, variables={"STOKER_HOME": str(home.root)})
    assert done.code == 0, done.err
    return done
