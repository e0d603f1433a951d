"""Batch prediction by two ranks through real kills, of a rank and of the supervisor: no row is lost or doubled."""

import json
from collections import Counter
from pathlib import Path

import pytest

from stoker.client.client import Client
from stoker.host.home import Home
from tests.e2e.command import stoker

pytestmark = pytest.mark.slow

# The model kills its own process at one row and the run's supervisor at another, each once, as the kernel does it.
PREDICTOR = """
import json, os, pathlib, signal

def once(name):
    try:
        (pathlib.Path(__file__).parent.parent / name).touch(exist_ok=False)
        return True
    except FileExistsError:
        return False

def predict(instances):
    for n in instances:
        if n == 2_500 and once("rank-killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        if n == 6_500 and once("supervisor-killed"):
            known = json.loads((pathlib.Path(os.environ["STOKER_RUN_DIR"]) / "processes.json").read_text())
            os.kill(known["supervisor"]["pid"], signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        if n % 1000 == 999:
            raise ValueError("unlucky")
    return [n * 2 for n in instances]
"""


def test_kills_lose_and_double_no_row(home: Home, tmp_path: Path) -> None:
    home.config.write_text("[pools.local]\ncpus = 2\n")
    model, data, out = tmp_path / "model", tmp_path / "in", tmp_path / "out"
    model.mkdir()
    data.mkdir()
    (model / "predictor.py").write_text(PREDICTOR)
    for file in range(5):
        lines = "".join(f"{n}\n" for n in range(file * 2000, file * 2000 + 2000))
        (data / f"part-{file}.json").write_text(lines)
    flags = ("--model-dir", str(model), "--trust", "--data-format", "text", "--max-worker-count", "2")
    places = ("--input-paths", f"{data}/*", "--output-path", str(out), "--region", "local")

    done = stoker("jobs", "submit", "prediction", "batch_1", *flags, *places, "--stream-logs")

    assert done.code == 0, done.err + done.out
    assert (tmp_path / "rank-killed").exists()
    assert (tmp_path / "supervisor-killed").exists()
    with Client(home.server()) as client:  # type: ignore[arg-type]
        job = client.job("batch_1")
    assert [run.state.value for run in job.trials[0].runs] == ["FAILED", "LOST", "SUCCEEDED"]
    assert job.trials[0].metrics == {"predictionCount": 9990.0, "errorCount": 10.0}
    assert job.progress == 1.0
    results = [sorted(out.glob("prediction.results-*"))[n] for n in range(5)]
    rows = [json.loads(line) for file in results for line in file.read_text().splitlines()]
    assert rows == [n * 2 for n in range(10_000) if n % 1000 != 999]
    errors = [
        json.loads(line) for file in sorted(out.glob("prediction.err*")) for line in file.read_text().splitlines()
    ]
    assert Counter(int(error["row"]) for error in errors) == Counter(range(999, 10_000, 1000))
    assert {path.name.partition("-")[0] for path in out.iterdir()} == {
        "_stoker",
        "prediction.results",
        "prediction.errors_stats",
    }, "a kill left a draft behind"
