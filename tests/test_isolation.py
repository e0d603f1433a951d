"""Every Python that stoker starts ignores the current directory, where anybody's files may lie."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parent.parent / "src" / "stoker").rglob("*.py"))
# Jobs of the user's own, whose directory is the point: their code is importable there, as it was on the platforms.
RUN_IN_JOBS = ("stoker.compat.determined", "stoker.compat.shells", "stoker.predict.batch")


def command_lines(path: Path) -> list[list[str]]:
    """Every list or tuple of words with `-m`, `stoker.…` in it."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.List | ast.Tuple):
            words = [item.value if isinstance(item, ast.Constant) else "" for item in node.elts]
            if "-m" in words and any(str(word).startswith("stoker.") for word in words):
                found.append([str(word) for word in words])
    return found


def test_modules_of_ours_are_started_with_a_safe_path() -> None:
    lines = [line for path in SOURCES for line in command_lines(path)]

    unsafe = [line for line in lines if "-P" not in line and not set(line) & set(RUN_IN_JOBS)]

    assert unsafe == []
    assert len(lines) >= 5


@pytest.mark.slow
def test_command_that_starts_a_server_imports_nothing_from_the_current_folder(tmp_path: Path) -> None:
    evil = tmp_path / "checkout"
    evil.mkdir()
    for name in ("getpass", "uvicorn", "platform"):
        (evil / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    environment = {**os.environ, "STOKER_HOME": str(tmp_path / "home")}
    stoker = [sys.executable, "-P", "-m", "stoker.cli.main"]

    done = subprocess.run([*stoker, "jobs", "list"], cwd=evil, env=environment, capture_output=True, text=True)
    subprocess.run([*stoker, "server", "stop"], env=environment, capture_output=True, check=True)

    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()
