"""Scripts written for Determined, run as they would be: in a process of their own, inside or outside a run."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.command import Result, stoker

Ran = subprocess.CompletedProcess[str]


@pytest.fixture
def run_dir(tmp_path: Path) -> Callable[..., Path]:
    """Make a run directory as a supervisor would; each call is the next attempt at the trial."""
    attempts = 0

    def make(**launch: Any) -> Path:
        nonlocal attempts
        attempts += 1
        path = tmp_path / "runs" / "job" / "1" / str(attempts)
        path.mkdir(parents=True)
        replica = {"role": "chief", "index": 0, "rank": 0, "node": 0}
        known = {"run": f"job.1.{attempts}", "job": "job", "trial": 1, "trial_id": 7, "attempt": attempts, "seed": 11}
        (path / "run.json").write_text(json.dumps({**known, "replicas": [replica], **launch}))
        return path

    return make


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Ran]:
    """Run a script with `import determined` being ours, as a job finds it; outside a run without `run_dir`."""

    def run(text: str, *words: str, run_dir: Path | None = None, **variables: str) -> Ran:
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
        own = {"STOKER_RUN_DIR": str(run_dir)} if run_dir else {}
        command = [sys.executable, "-m", "stoker.compat.determined", str(path), *words]
        return subprocess.run(
            command, cwd=tmp_path, env={**inherited, **own, **variables}, capture_output=True, text=True, timeout=120
        )

    return run


def events(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]


def follow_experiment(code: Path, files: Mapping[str, str]) -> Result:
    """`stoker experiment create const.yaml .` in a new directory of these files, to its end."""
    code.mkdir()
    for name, text in files.items():
        (code / name).write_text(text)
    return stoker("experiment", "create", "const.yaml", ".", "--follow-first-trial", cwd=code)
