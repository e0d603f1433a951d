"""Resolve as of a date: uv's flags for it, and the days on which releases were uploaded."""

import re
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from stoker.errors import UsageError
from stoker.packaging.environment.runtimes import Runtime
from stoker.packaging.environment.uv import Uv
from stoker.packaging.package.requirements import normal_name, without_hashes

# Building these takes minutes and mostly fails on a Python that is newer than they are: only their wheels count.
COMPILED = (
    "grpcio h5py matplotlib numpy opencv-python opencv-python-headless pandas pillow pyarrow scikit-learn scipy"
    " tensorflow tensorflow-cpu tensorflow-gpu torch torchvision xgboost"
).split()
# To look releases up for, in this order: today's mostly have wheels for the first, old ones for one of the others.
_PYTHONS = ("3.11", "3.7", "3.8", "3.9", "3.10", "3.13", "3.6", "3.5")
_NOWHERE = re.compile("there is no version of|which are incompatible|was not found in the package registry")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def is_date(text: str | None) -> bool:
    """Whether it is a day, 2020-01-15, and not `auto`, `today` or nothing."""
    return _DATE.fullmatch(text or "") is not None


def flags_as_of(date: str | None) -> list[str]:
    """For `uv pip`: nothing uploaded after that day, and no compiled library built from source."""
    if date is None:
        return []
    if not is_date(date):
        raise UsageError(f"{date!r} is not a date. Write it as 2020-01-15.")
    return ["--exclude-newer", date, *(word for name in COMPILED for word in ("--only-binary", name))]


def release_dates(lines: Sequence[str], runtime: Runtime) -> dict[str, str]:
    """By name, the day of the newest release that each line allows.

    The lines are looked up together, for the first Python that all of them have releases for. Empty where there is
    none, and where the index serves no upload dates.
    """
    with tempfile.TemporaryDirectory(prefix="stoker-dates-") as scratch:
        (Path(scratch) / "pins.in").write_text("\n".join([*map(without_hashes, lines), ""]))
        words = ["pip", "compile", "pins.in", "--no-deps", "--universal", "--format", "pylock.toml", "-q"]
        for python in _PYTHONS:
            done = Uv(runtime, Path(scratch)).run([*words, "--python-version", python])
            if done.returncode == 0:
                return _upload_dates(done.stdout)
            if _NOWHERE.search(" ".join(done.stderr.split())):
                break
    return {}


def _upload_dates(pylock: str) -> dict[str, str]:
    found = {}
    for package in tomllib.loads(pylock).get("packages", ()):
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ())]
        times = [file["upload-time"] for file in files if "upload-time" in file]
        if times:
            found[normal_name(package["name"])] = min(times).date().isoformat()
    return found
