"""A program to be given an era: its files, what it requires, and the image that it was written for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from stoker.compat.eras import pins
from stoker.compat.eras.images import RUNTIME_1, Image, image_of, image_of_runtime, shipped
from stoker.compat.eras.uses import Uses, entries_of, uses_of
from stoker.packaging.package.requirements import name_of
from stoker.submission.reading import origin_of

TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly")


@dataclass(frozen=True)
class Program:
    """The code, as far as this is about it."""

    files: Mapping[str, bytes]  # modules
    requirements: tuple[str, ...]  # the package's and the job's own
    values: Mapping[str, Any]  # the job's
    root: Path | None = None  # the directory, for its history

    @property
    def environment(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.values.get("environment", {})
        return found

    @cached_property
    def own(self) -> pins.Mended:
        return pins.mended(self.requirements)

    @cached_property
    def uses(self) -> Uses:
        return uses_of(self.files, entries=list(entries_of(self.values)))

    @property
    def is_determineds(self) -> bool:
        return any(name.split(".")[0] == "determined" for name in self.uses.modules)

    @cached_property
    def image(self) -> Image:
        """Its Dockerfile's, or AI Platform's; with the libraries that the code imports and the package allows."""
        own = origin_of(self.values).get("image")
        found = image_of(own) if own else image_of_runtime(self.environment.get("runtime"))
        if self.uses.is_of_runtime_1 and not found.libraries:
            found = replace(RUNTIME_1, name="code for TensorFlow 1 or scikit-learn 0.20")
        libraries = {module: line for module, line in found.libraries.items() if self._takes(module, line)}
        is_used = bool(libraries) or self.uses.is_of_runtime_1
        return replace(found, libraries=libraries, date=found.date if is_used else None)

    def _takes(self, module: str, line: str) -> bool:
        if module not in shipped(self.uses.modules):
            return False
        names = TENSORFLOWS if module == "tensorflow" else (name_of(line),)
        declared = [own for own in self.own.lines if name_of(own) in names]
        return all(name_of(own) == name_of(line) and pins.allows(own, line) for own in declared)
