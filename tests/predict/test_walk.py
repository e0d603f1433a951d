"""From training to predictions with nothing between: save_model in a package, local predict on what it left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TASK = """
import stoker
from sklearn.linear_model import LinearRegression

ctx = stoker.init()
print(ctx.save_model(LinearRegression().fit([[0.0], [1.0]], [1.0, 3.0]), "line", metrics={"r2": 1.0}))
"""


@pytest.mark.slow
def test_model_that_a_package_saves_predicts_without_a_yes(tmp_path: Path, own_home: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "__init__.py").write_text("")
    (tmp_path / "trainer" / "task.py").write_text(TASK)
    (tmp_path / "in.json").write_text("[1000]\n")

    def stoker(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "stoker.cli.main", *words]
        return subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False)

    trained = stoker("local", "train", "--package-path", "trainer", "--module-name", "trainer.task")
    assert trained.returncode == 0, trained.stderr
    folder = trained.stdout.splitlines()[-1]
    predicted = stoker("local", "predict", "--model-dir", folder, "--json-instances", "in.json", "--json")

    assert json.loads(predicted.stdout) == {"predictions": [pytest.approx(2001.0)]}, predicted.stderr
    assert predicted.stderr == ""
    spool = next((own_home / "runs" / "local").glob("*/spool.jsonl"))
    assert '"type":"model"' in spool.read_text()
