"""Calling the command line in this process, the way a shell would."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from stoker.cli.main import main


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str


Stoker = Callable[..., Result]


@pytest.fixture
def stoker(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stoker:
    """`stoker("jobs", "list")`, with a home of its own and no server."""
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("STOKER_SERVER", raising=False)

    def call(*words: str) -> Result:
        capsys.readouterr()
        code = main(words)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call
