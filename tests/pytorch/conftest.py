"""Every test runs in a folder of its own and as a run of its own; global state is put back afterwards."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

# Two threads on two busy cores wait for each other: a tiny batch norm then takes 40 ms instead of 40 us.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name in ("STOKER_RUN_DIR", "WORLD_SIZE", "RANK", "STOKER_HOME"):
        monkeypatch.delenv(name, raising=False)
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make run directories as a supervisor would: `run_dir(latest_checkpoint=…)` is the next attempt."""
    attempts = 0

    def make(**launch: Any) -> Path:
        nonlocal attempts
        attempts += 1
        path = tmp_path / "runs" / "job" / "1" / str(attempts)
        path.mkdir(parents=True)
        launch = {"run": f"job.1.{attempts}", "job": "job", "trial": 1, "trial_id": 7, "attempt": attempts, **launch}
        (path / "run.json").write_text(json.dumps(launch))
        monkeypatch.setenv("STOKER_RUN_DIR", str(path))
        return path

    return make
