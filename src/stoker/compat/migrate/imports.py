"""Libraries that code imports and nobody provides: not the package, not the runtime, not the platforms' images."""

import importlib.util
import sys
from collections.abc import Iterable, Iterator

from stoker.compat.eras.images import SHIPPED
from stoker.compat.eras.uses import Uses
from stoker.compat.migrate.directory import Directory, Use
from stoker.packaging.package.requirements import name_of, normal_name

_PROVIDED = frozenset({"stoker", "hypertune", "determined", "setuptools", "pkg_resources"})
# Where a module's name is not its distribution's.
_DISTRIBUTIONS = {"attr": "attrs", "bs4": "beautifulsoup4", "skimage": "scikit-image"}
_OF_GOOGLE = {
    "google.cloud.logging": "google-cloud-logging",
    "google.protobuf": "protobuf",
}


def unprovided(directory: Directory, uses: Uses, requirements: Iterable[str]) -> Iterator[tuple[str, Use]]:
    """A requirement to add, and the import that needs it. Judged by the Python that stoker itself runs on.

    Only of what the job's entry imports for sure, which `uses` says.
    """
    own = {part.removesuffix(".py") for path in directory.paths for part in path.split("/")}
    declared = {normal_name(name) for line in requirements if (name := name_of(line))}
    seen: set[str] = set()
    for use in directory.uses:
        top = use.name.split(".")[0]
        if top in own or top in sys.stdlib_module_names or top in _PROVIDED or not _is_among(use.name, uses.modules):
            continue
        wanted = _distribution(use.name)
        if wanted is None or wanted in seen or normal_name(wanted) in declared or _is_installed(use.name):
            continue
        seen.add(wanted)
        yield wanted, use


def _is_among(name: str, modules: Iterable[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _distribution(name: str) -> str | None:
    """None for what the images had: that is supplied."""
    if _is_among(name, SHIPPED):
        return None
    top = name.split(".")[0]
    if top != "google":
        return _DISTRIBUTIONS.get(top, top)
    return next((found for module, found in _OF_GOOGLE.items() if f"{name}.".startswith(f"{module}.")), None)


def _is_installed(name: str) -> bool:
    parts = name.split(".")
    module = ".".join(parts[:3]) if parts[0] == "google" else parts[0]
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
