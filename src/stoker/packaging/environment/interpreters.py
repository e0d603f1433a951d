"""Find the Pythons of this machine and ask each, once, what it is."""

import glob
import json
import os
import re
import site
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.errors import UsageError

OLDEST = (3, 7)
_PROBE_TIMEOUT_S = 30

# Runs on any Python 3; `site` decides on its own whether the user's site-packages count.
_PROBE = """
import json, os, platform, site, sys
base = getattr(sys, "_base_executable", None) or sys.executable
if sys.prefix != sys.base_prefix and os.path.realpath(os.path.dirname(base)) == os.path.realpath(sys.prefix + "/bin"):
    name = "bin/python%d.%d" % sys.version_info[:2]
    beside = os.path.join(sys.base_prefix, name)
    base = beside if os.path.exists(beside) else os.path.realpath(sys.executable)
folders = list(site.getsitepackages())
if site.ENABLE_USER_SITE:
    folders.insert(0, site.getusersitepackages())
print(json.dumps({"version": platform.python_version(), "implementation": sys.implementation.name,
                  "base_python": base, "site_dirs": [f for f in folders if os.path.isdir(f)]}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """What a Python says of itself."""

    version: str  # "3.7.16"
    implementation: str  # "cpython"
    base_python: str  # itself, or the one its virtual environment was made from
    site_dirs: tuple[str, ...]  # in the order of sys.path

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(int(number) for number in re.findall(r"\d+", self.version)[:3])


def this_interpreter() -> Interpreter:
    """The Python stoker itself runs on, without starting another."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    folders = list(site.getsitepackages())
    if site.ENABLE_USER_SITE:
        folders.insert(0, site.getusersitepackages())
    return Interpreter(
        version=".".join(map(str, sys.version_info[:3])),
        implementation=sys.implementation.name,
        base_python=base,
        site_dirs=tuple(folder for folder in folders if os.path.isdir(folder)),
    )


def probe(python: Path) -> Interpreter:
    """Start a Python and ask; UsageError when it is none, or is too old."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [str(python), "-c", _PROBE],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
        )
        said = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{python} is not a Python that can be used: it does not say what it is.") from error
    found = Interpreter(**{**said, "site_dirs": tuple(said["site_dirs"])})
    if found.numbers < OLDEST:
        raise UsageError(f"{python} is Python {found.version}; stoker runs packages on 3.7 and later.")
    return found


def find_pythons() -> Iterator[Path]:
    """Paths that look like a Python of their own: on PATH, then in the folders of pyenv, uv, mise and asdf."""
    seen: set[str] = set()
    for path in (*_on_path(), *_in_folders()):
        real = os.path.realpath(path)
        if real not in seen and os.access(path, os.X_OK):
            seen.add(real)
            yield Path(path)


def _on_path() -> Iterator[str]:
    folders = [*os.environ.get("PATH", "").split(os.pathsep), "/usr/local/bin", "/usr/bin"]
    for folder in dict.fromkeys(folders):
        # pyenv's shims are shell scripts that start whatever Python is current; the real ones come below.
        if not folder or os.path.basename(folder) == "shims" or _is_virtual(folder):
            continue
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        matching = [name for name in names if re.fullmatch(r"python3\.\d+", name)]
        yield from (os.path.join(folder, name) for name in sorted(matching, key=lambda n: int(n.split(".")[1])))


def _is_virtual(folder: str) -> bool:
    return os.path.exists(os.path.join(os.path.dirname(folder.rstrip("/")), "pyvenv.cfg"))


def _in_folders() -> Iterator[str]:
    home = os.path.expanduser("~")
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(home, ".local/share")
    roots = (
        os.path.join(os.environ.get("PYENV_ROOT") or os.path.join(home, ".pyenv"), "versions"),
        os.environ.get("UV_PYTHON_INSTALL_DIR") or os.path.join(data, "uv/python"),
        os.path.join(data, "mise/installs/python"),
        os.path.join(home, ".asdf/installs/python"),
    )
    for root in roots:
        yield from sorted(glob.glob(os.path.join(glob.escape(root), "*/bin/python3")), key=_by_version, reverse=True)


def _by_version(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.split("/")[-3])]
