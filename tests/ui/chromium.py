"""Debian's Chromium: where it is, or how it comes onto a machine that is ours."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

INSTALL = (
    ("apt-get", "update", "-q"),
    ("apt-get", "install", "-q", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"),
)
INSTALL_S = 300.0


def find_chromium(shared: Path) -> str | None:
    """Its path, after installing it once if we may; None if there is none. `shared` is a folder of all workers."""
    with (shared / "chromium.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tried = shared / "chromium.tried"
        if shutil.which("chromium") is None and _may_install() and not tried.exists():
            tried.touch()  # whatever comes of it, the next worker need not wait for the same
            _install(shared / "chromium.log")
        return shutil.which("chromium")


def _may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _install(log: Path) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with log.open("ab") as file:
        for command in INSTALL:
            try:
                subprocess.run(command, env=environment, stdout=file, stderr=file, timeout=INSTALL_S, check=True)
            except (OSError, subprocess.SubprocessError) as error:
                file.write(f"{error}\n".encode())
                return
