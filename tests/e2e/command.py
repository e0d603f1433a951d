"""The command line as a user has it: another process, with its own streams and exit code."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

STOKER = (sys.executable, "-m", "stoker.cli.main")
DEADLINE_S = 240.0
# `make test` runs us, and a package's own make is not its child; tests of Keras in this process have set its backend.
_OURS = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "KERAS_BACKEND")


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The log lines without their times."""
        return [line.partition("  ")[2] for line in self.out.splitlines()]


def stoker(*words: str, cwd: Path | None = None, variables: Mapping[str, str] | None = None) -> Result:
    return run([*STOKER, *words], cwd=cwd, variables=variables)


def run(
    command: list[str],
    *,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    deadline_s: float = DEADLINE_S,
) -> Result:
    """Any command, with `stoker` on its PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    outer = {name: value for name, value in os.environ.items() if name not in _OURS}
    environment = {**outer, "PATH": path, **(variables or {})}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=deadline_s, check=False
    )
    return Result(done.returncode, done.stdout, done.stderr)


def write_package(folder: Path, **modules: str) -> Path:
    """A package `trainer` with these modules; returns the directory it is in."""
    trainer = folder / "trainer"
    trainer.mkdir(parents=True)
    (trainer / "__init__.py").touch()
    for name, code in modules.items():
        (trainer / f"{name}.py").write_text(code)
    return folder


def submit(project: Path, name: str, module: str, *words: str) -> Result:
    flags = ("--package-path", "trainer", "--module-name", f"trainer.{module}")
    return stoker("jobs", "submit", "training", name, *flags, *words, cwd=project)
