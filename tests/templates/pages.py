"""Run the tutorials: the commands of a page's ```console template blocks, in order, `cd` and all.

Not ```console run blocks, which tests/test_docs.py runs: what a tutorial leaves behind is looked at afterwards, and
training twice for that would be slow.
"""

import re
import runpy
import sys
from pathlib import Path

import pytest

from tests.e2e.command import run
from tests.test_docs import _pattern, commands

ROOT = Path(__file__).parents[2]
TUTORIAL = re.compile(r"^```console template\n(.*?)^```", re.DOTALL | re.MULTILINE)
# Whole trainings; the first may fetch TensorFlow, on a machine that runs the rest of the suite meanwhile.
DEADLINE_S = 600.0
SHOWN = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


def tutorial(template: str) -> Path:
    return ROOT / "docs" / f"tutorial-{template}.md"


def run_tutorial(template: str, folder: Path) -> Path:
    """The directory it ends in. What is printed must be what the page says."""
    for command, expected in commands(tutorial(template), TUTORIAL):
        if command.startswith("cd "):
            folder /= command.removeprefix("cd ")
            continue
        # One order of `ls`, whatever the machine's language.
        words = ["bash", "-c", f"exec 2>&1\n{command}"]
        done = run(words, cwd=folder, variables={"LC_ALL": "C.UTF-8"}, deadline_s=DEADLINE_S)
        assert re.fullmatch("".join(map(_pattern, expected)), done.out), f"$ {command}\n{done.out}"
        assert done.code == 0, f"$ {command}\n{done.out}"
    return folder


def refusal(project: Path, *words: str) -> str:
    """What `python -m trainer.task` ends with, in this process: another would import torch once more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        patch.syspath_prepend(project)
        patch.setattr(sys, "argv", ["task.py", *words])
        _forget_trainers()
        try:
            with pytest.raises(SystemExit) as ended:
                runpy.run_module("trainer.task", run_name="__main__")
        finally:
            _forget_trainers()
    return str(ended.value.code)


def _forget_trainers() -> None:
    """Several templates call their package so."""
    for name in [name for name in sys.modules if name.split(".")[0] == "trainer"]:
        del sys.modules[name]
