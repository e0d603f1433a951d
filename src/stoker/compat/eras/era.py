"""The date and the Python that a program was written for: the libraries of its time follow from these two."""

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from datetime import date as Day
from pathlib import Path
from typing import Protocol

from stoker.compat.eras import pins
from stoker.compat.eras.images import Image
from stoker.packaging.environment.dates import is_date
from stoker.packaging.environment.runtimes import Runtime
from stoker.packaging.package.requirements import name_of

_RELEASED = {
    "3.7": "2018-06-27",
    "3.8": "2019-10-14",
    "3.9": "2020-10-05",
    "3.10": "2021-10-04",
    "3.11": "2022-10-24",
    "3.12": "2023-10-02",
    "3.13": "2024-10-07",
    "3.14": "2025-10-07",
}
_UNKNOWN = "9000-01-01"


class Index(Protocol):
    """A package index, as far as eras ask it; tests have one of their own."""

    def release_dates(self, lines: Sequence[str]) -> dict[str, str]:
        """By name, the day of the newest release that each line allows; empty where the index serves none."""

    def resolves(self, runtime: Runtime, lines: Sequence[str], as_of: str | None) -> bool: ...

    def has_wheel(self, line: str, runtime: Runtime) -> bool: ...


@dataclass(frozen=True, slots=True)
class Era:
    """A date, or None where nothing says one, and the reason for it in a few words."""

    date: str | None = None
    reason: str = ""
    is_explicit: bool = False


def era_of(as_of: str | None, image: Image, lines: Sequence[str], index: Index | None) -> Era:
    """The date that was asked for, or that of the newest release that the image or the package names."""
    if is_date(as_of):
        return Era(as_of, "as requested", is_explicit=True)
    dated = [(image.date, image.name)] if image.date else []
    named = {name_of(line): line for line in (*pins.exact(lines), *image.libraries.values())}
    if image.date:  # which is better than that of its releases
        named = {name: line for name, line in named.items() if line not in image.libraries.values()}
    if index is not None and named:
        dates = index.release_dates(list(named.values()))
        dated += [(date, str(named[name])) for name, date in dates.items() if name in named]
    if not dated:
        return Era()
    date, name = max(dated)
    return Era(date, image.name if name in image.libraries.values() else name)


def era_by_hints(lines: Sequence[str], root: Path | None, index: Index) -> Era:
    """For a package that names no release: its newest upper bound, or else the last commit to it."""
    bounds = pins.bounded(lines)
    if bounds and not pins.exact(lines):
        dates = index.release_dates(bounds)
        if dates:
            name = max(dates, key=lambda one: dates[one])
            line = next((line for line in bounds if name_of(line) == name), name)
            return Era(dates[name], line)
    commit = last_commit(root) if root is not None else None
    return Era(commit, "the last commit") if commit else Era()


def last_commit(root: Path) -> str | None:
    """The day of the last commit that touched a directory; None outside of git."""
    words = ["git", "-C", str(root), "log", "-1", "--format=%cs", "--", "."]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def python_at(date: str) -> str:
    """The Python that libraries of a date had wheels for: the newest that was a year old; the oldest that is known."""
    return next((minor for minor in reversed(_RELEASED) if established(minor) <= date), next(iter(_RELEASED)))


def established(minor: str) -> str:
    """The day from which libraries in general have wheels for a Python: a year after its release."""
    released = Day.fromisoformat(_RELEASED.get(minor, _UNKNOWN))
    return released.replace(year=released.year + 1).isoformat()


def places(runtimes: Sequence[Runtime], era: Era, *, is_first: bool) -> Iterator[tuple[Runtime, str]]:
    """The Pythons to try, each with a date; documented in docs/environments.md. The first is the one asked for.

    1. The one asked for, where it `is_first` or was released by the era's date. 2. Those established by then, newest
    first. 3. Those that came later, oldest first, each with the date moved forward to when it was established; a date
    that the user gave is not moved.
    """
    date = era.date
    assert date is not None
    asked = runtimes[0]
    if is_first or _RELEASED.get(asked.minor, _UNKNOWN) <= date:
        yield asked, date
    newest_first = sorted(runtimes, key=lambda one: one.interpreter.numbers, reverse=True)
    yield from ((one, date) for one in newest_first if established(one.minor) <= date and one is not asked)
    today = datetime.now(UTC).date().isoformat()
    for runtime in reversed(newest_first):
        moved = established(runtime.minor)
        if date < moved <= today:
            yield runtime, date if era.is_explicit else moved
