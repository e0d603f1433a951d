"""What is installed in a runtime, read from its folders; the runtime's Python is never started for it."""

import copy
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PathDistribution
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from stoker.packaging.environment.fingerprint import metadata_folders
from stoker.packaging.environment.runtimes import Runtime
from stoker.packaging.package.requirements import normal_name


@dataclass(frozen=True)
class Distribution:
    """One installed distribution; its metadata is read when it is asked for."""

    name: str
    path: str

    @cached_property
    def version(self) -> str:
        return self._metadata.version

    @cached_property
    def requires(self) -> tuple[Requirement, ...]:
        """What it says it needs, without the lines that no longer parse."""
        return tuple(filter(None, map(_parsed, self._metadata.requires or ())))

    @cached_property
    def _metadata(self) -> PathDistribution:
        return PathDistribution(Path(self.path))


class Installed:
    """The distributions of a runtime by normal name; of two with one name, the one Python would import."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._by_name: dict[str, Distribution] = {}
        for path in metadata_folders(runtime.interpreter.site_dirs):
            name = normal_name(os.path.basename(path).partition("-")[0].removesuffix(".egg-info"))
            self._by_name.setdefault(name, Distribution(name, path))
        self.markers = _markers_of(runtime)

    def only(self, name: str) -> "Installed":
        """One distribution and what it requires, as if nothing else were installed."""
        kept = copy.copy(self)
        kept._by_name = {}
        waiting = [name]
        while waiting:
            found = self.get(waiting.pop())
            if found is not None and found.name not in kept._by_name:
                kept._by_name[found.name] = found
                waiting += [needed.name for needed in found.requires if self.applies(needed)]
        return kept

    def __iter__(self) -> Iterator[Distribution]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Distribution | None:
        return self._by_name.get(normal_name(name))

    def version(self, name: str) -> str | None:
        """The version, when it is there and is one by the standard."""
        found = self.get(name)
        try:
            return str(Version(found.version)) if found else None
        except (InvalidVersion, TypeError):
            return None

    def applies(self, requirement: Requirement, *, extra: str = "") -> bool:
        return requirement.marker is None or requirement.marker.evaluate({**self.markers, "extra": extra})

    def satisfies(self, requirement: Requirement) -> bool:
        """Whether what is here meets a requirement, and what its extras ask for.

        What an installed distribution itself needs is not questioned: whoever made the runtime saw it work.
        """
        return self._satisfies(requirement, seen=set())

    def _satisfies(self, requirement: Requirement, *, seen: set[str]) -> bool:
        version = self.version(requirement.name)
        if version is None or requirement.url is not None:
            return False
        if not requirement.specifier.contains(version, prereleases=True):
            return False
        found = self.get(requirement.name)
        assert found is not None
        for extra in requirement.extras:
            key = f"{found.name}[{extra}]"
            if key in seen:
                continue
            seen.add(key)
            for needed in found.requires:
                of_extra = self.applies(needed, extra=extra) and not self.applies(needed)
                if of_extra and not self._satisfies(needed, seen=seen):
                    return False
        return True


def _markers_of(runtime: Runtime) -> dict[str, str]:
    """The values of a requirement's markers there; it is this machine, so only Python itself can differ."""
    interpreter = runtime.interpreter
    names = {"cpython": "CPython", "pypy": "PyPy"}
    return {
        **{key: str(value) for key, value in default_environment().items()},
        "python_version": runtime.minor,
        "python_full_version": interpreter.version,
        "implementation_name": interpreter.implementation,
        "implementation_version": interpreter.version,
        "platform_python_implementation": names.get(interpreter.implementation, interpreter.implementation),
    }


def _parsed(line: str) -> Requirement | None:
    try:
        return Requirement(line)
    except InvalidRequirement:
        return None
