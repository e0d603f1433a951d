"""What a shell may offer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.cli.completion import candidates
from tests.cli.conftest import Stoker


@pytest.fixture(autouse=True)
def no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["jo"], ["jobs", "job"]),
        (["jobs", "str"], ["stream-logs"]),
        (["jobs", "submit", ""], ["training", "prediction"]),
        (["jobs", "submit", "training", "--worker-m"], ["--worker-machine-type"]),
        (["jobs", "list", "--state", "FA"], ["FAILED"]),
        (["completion", "z"], ["zsh"]),
        (["nonsense", ""], []),
        (["local", "train", "--", ""], []),
    ],
)
def test_candidates(words: list[str], offered: list[str]) -> None:
    assert candidates(words) == offered


def test_job_names_are_asked_for_without_starting_a_server(tmp_path: Path) -> None:
    assert candidates(["jobs", "describe", ""]) == []
    assert not (tmp_path / "server.json").exists()


def test_values_that_only_the_shell_knows_are_left_to_it() -> None:
    assert candidates(["jobs", "submit", "training", "x", "--package-path", "tr"]) == []


@pytest.mark.slow
def test_bash_completes_with_the_printed_script(stoker: Stoker, tmp_path: Path) -> None:
    script = stoker("completion", "bash").out
    asked = f'{script}\nCOMP_WORDS=(stoker jobs desc); COMP_CWORD=2; _stoker; echo "${{COMPREPLY[*]}}"'
    bin_folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}

    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, env=environment, check=True)

    assert done.stdout == "describe\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(stoker: Stoker, shell: str) -> None:
    result = stoker("completion", shell)

    assert result.code == 0
    assert "stoker __complete" in result.out
