"""`stoker run` and `stoker submit`: a script of one's own, with nothing said about packages and modules."""

from pathlib import Path

import pytest

from stoker.host.home import Home
from tests.e2e.command import stoker

pytestmark = pytest.mark.slow

SCRIPT = """
import os, sys
from helper import word
print(word, sys.argv[1:], os.environ.get("TOKEN_OF_TEST"), open("data.txt").read())
sys.exit(int(os.environ.get("CODE", "0")))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A script with a module and data next to it, in a folder of the script's own name."""
    folder = tmp_path / "sim"
    folder.mkdir()
    (folder / "sim.py").write_text(SCRIPT)
    (folder / "helper.py").write_text("word = 'hello'")
    (folder / "data.txt").write_text("rows")
    return folder


def test_script_runs_here_and_as_a_job(home: Home, project: Path) -> None:
    here = stoker("run", "sim/sim.py", "--env", "TOKEN_OF_TEST=t", "--", "--lr", "0.2", cwd=project.parent)
    assert (here.code, here.out) == (0, "hello ['--lr', '0.2'] t rows\n")

    job = stoker("submit", "sim.py", "--follow", "--env", "TOKEN_OF_TEST=u", "--", "--lr", "0.3", cwd=project)
    assert job.code == 0, job.err
    assert "hello ['--lr', '0.3'] u rows" in job.out

    assert stoker("submit", "sim.py", "--name", "own", cwd=project).out == "own\n"
    listed = stoker("ps", cwd=project).out
    assert "sim_1" in listed
    assert "own" in listed
    assert "hello" in stoker("logs", "sim_1", cwd=project).out
    assert "python -m sim --lr 0.3" in stoker("show", "sim_1", cwd=project).out


def test_exit_code_is_the_scripts_own(home: Home, project: Path) -> None:
    assert stoker("run", "sim.py", "--env", "CODE=3", cwd=project).code == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "nosuch.py"], "No such file or directory: nosuch.py. Expected a script"),
        (["run", "."], "has no stoker.yaml that says what to run"),
        (["submit", "sim.py", "--env", "NOT_SET_HERE"], "--env NOT_SET_HERE: it is not set in this shell"),
        (["submit", "sim.py", "--env", "=x"], "expected NAME=VALUE"),
        (["run", "sim.py", "--module", "sim"], "names another"),
    ],
)
def test_mistake_is_one_line_and_leaves_nothing(home: Home, project: Path, words: list[str], message: str) -> None:
    done = stoker(*words, cwd=project)

    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
