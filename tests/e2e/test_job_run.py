"""Seed 004: train its script as an experiment, then run its batch inference file as a job, through a kill."""

import json
import shutil
from pathlib import Path

import pytest

from stoker.client.client import Client
from stoker.host.home import Home
from tests.e2e.command import stoker

torch = pytest.importorskip("torch")
from stoker.pytorch.checkpoint import read_description  # noqa: E402 -- needs torch

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[1] / "pytorch" / "seed_scripts"

CONST = """
name: ones
entrypoint_script: python3 train.py
hyperparameters:
    global_batch_size: 32
    learning_rate: 0.1
searcher:
    name: single
    metric: loss
    max_length:
        epochs: 2
"""

BATCH_INFERENCE = """
entrypoint_script: python3 batch_inference.py
data:
    trial_id: 777
    batch_size: 4
resources:
    slots: 8
"""

# The first attempt's second rank is killed in the midst of its share, the way the kernel does it.
KILLED = """
import os, pathlib, signal
_get = OnesDataset.__getitem__
def _get_or_die(self, index):
    mark = pathlib.Path(os.environ["STOKER_RUN_DIR"]).parent / "killed"
    if os.environ.get("RANK") == "1" and index == 44 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return _get(self, index)
OnesDataset.__getitem__ = _get_or_die
"""


def test_batch_inference_of_a_trained_trial_survives_a_killed_rank(home: Home, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(SCRIPTS, project)
    for script in project.glob("*.py"):  # as the seed writes it; the copies there are for stoker's own names
        script.write_text(script.read_text().replace("import stoker as det", "import determined as det"))
        script.write_text(script.read_text().replace("stoker.pytorch", "determined.pytorch"))
    (project / "const.yaml").write_text(CONST)
    (project / "batch_inference.yaml").write_text(BATCH_INFERENCE)
    home.config.write_text("[pools.local]\ncpus = 2\n")

    trained = stoker("experiment", "create", "const.yaml", ".", "-f", cwd=project)
    assert trained.code == 0, trained.err + trained.out
    with Client(home.server()) as client:  # type: ignore[arg-type]
        trial = client.trials("ones_1").trials[0]
        with (project / "train.py").open("a") as script:
            script.write(f"\nif __name__ != '__main__':{_in(KILLED)}")
        run = ("job", "run", "batch_inference.yaml", ".", "--config", f"data.trial_id={trial.id}")

        refused = stoker(*run, cwd=project)
        done = stoker(*run, "--config", "resources.slots=2", "--config", "max_restarts=1", "--follow", cwd=project)

        assert refused.code == 2
        assert "8 CPUs" in refused.err
        assert "pool 'local' has 2 CPUs" in refused.err
        assert "--config resources.slots=N" in refused.err
        assert done.code == 0, done.err + done.out
        job = client.job("project_1")
        killed, last = job.trials[0].runs
        assert killed.exit is not None
        assert (killed.exit.replica, killed.exit.code) == ("worker-0", 137)  # as the shell of the script has it
        folder = Path(last.directory)
        predictions = torch.load(folder / "package" / "predictions.pt")
        assert predictions.shape == (64, 1)
        losses = [p.values["loss"] for p in client.metrics("ones_1") if p.group == "validation"]
    assert (1 - predictions).pow(2).mean().item() == pytest.approx(losses[-1], rel=1e-4)

    version = json.loads(stoker("models", "register", "ones_1", "--json").out)
    assert (version["card"]["framework"], version["card"]["origin"]["trial"]) == ("checkpoint", 1)
    assert read_description(version["url"])["hparams"]["global_batch_size"] == 32  # whole, and what a trial is built of


def _in(code: str) -> str:
    return "".join(f"\n    {line}" for line in code.strip().splitlines()) + "\n"
