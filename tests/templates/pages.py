"""Run the tutorials: the commands of a page's ```console template blocks, in order, `cd` and all.

Not ```console run blocks, which tests/test_docs.py runs: what a tutorial leaves behind is looked at afterwards, and
training twice for that would be slow.
"""

import re
from pathlib import Path

from tests.e2e.command import run
from tests.test_docs import _pattern, commands

ROOT = Path(__file__).parents[2]
TUTORIAL = re.compile(r"^```console template\n(.*?)^```", re.DOTALL | re.MULTILINE)
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
        done = run(["bash", "-c", f"exec 2>&1\n{command}"], cwd=folder, variables={"LC_ALL": "C.UTF-8"})
        assert re.fullmatch("".join(map(_pattern, expected)), done.out), f"$ {command}\n{done.out}"
        assert done.code == 0, f"$ {command}\n{done.out}"
    return folder
