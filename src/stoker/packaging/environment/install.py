"""Install what was resolved into a layer: with uv, or with the runtime's own pip where only that can."""

import os
import subprocess
from pathlib import Path

from stoker.errors import StokerError
from stoker.packaging.environment.dates import flags_as_of
from stoker.packaging.environment.needs import Needs
from stoker.packaging.environment.resolution import Resolution
from stoker.packaging.environment.runtimes import Runtime
from stoker.packaging.environment.uv import Uv, short_reason
from stoker.packaging.package.requirements import OVERRIDE


def install(resolution: Resolution, needs: Needs, runtime: Runtime, *, python: Path) -> None:
    """Put the resolution's lines into the layer of `python`; StokerError, with the installer's reason."""
    folder = python.parent.parent
    options = [
        line for line in needs.requirements if line.startswith("--") and not line.startswith(("--pre", OVERRIDE))
    ]
    wanted = folder / "requirements.txt"
    wanted.write_text("\n".join([*options, *resolution.lines, ""]))
    if resolution.installer == "uv":
        words = ["pip", "install", "--python", str(python), "--no-deps", "-r", str(wanted)]
        words += flags_as_of(needs.as_of)  # what sdists are built with is of that day, too
        done = Uv(runtime, folder).run(words)
    else:
        done = _pip_install(wanted, needs, python=python)
    if done.returncode:
        raise StokerError(f"Installing on top of {runtime} failed: {short_reason(done.stderr)}")


def _pip_install(wanted: Path, needs: Needs, *, python: Path) -> "subprocess.CompletedProcess[str]":
    """pip, run inside the layer, sees what the runtime has, and puts what it lacks into the layer."""
    folder = python.parent.parent
    words = [str(python), "-m", "pip", "install", "-r", str(wanted), "--no-input", "--disable-pip-version-check", "-q"]
    constraints = [line.removeprefix("-c ") for line in needs.requirements if line.startswith("-c ")]
    if constraints:
        limits = folder / "constraints.txt"
        limits.write_text("\n".join([*constraints, ""]))
        words += ["-c", str(limits)]
    if "--pre" in needs.requirements:
        words.append("--pre")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
