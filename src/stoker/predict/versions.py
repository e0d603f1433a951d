"""Say once when what is installed is not what a model was made with."""

import logging
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from stoker.schema.bundle import ModelCard

logger = logging.getLogger(__name__)


def installed(*packages: str) -> tuple[str, ...]:
    """name==version of each that is installed, as a card's requirements have them."""
    found = []
    for package in packages:
        try:
            found.append(f"{package}=={version(package)}")
        except PackageNotFoundError:
            continue  # another distribution may provide the module (xgboost-cpu for xgboost)
    return tuple(found)


def warn_of_other_versions(card: ModelCard) -> None:
    """One line if a package's version is not the recorded one: numbers may differ, or loading may fail."""
    differing = []
    for requirement in card.requirements:
        name, _, wanted = requirement.partition("==")
        for have in installed(name):
            if wanted and have != requirement:
                differing.append(f"{name} {wanted} (here {have.partition('==')[2]})")
    if differing:
        logger.warning("%s was made with %s: its numbers may differ.", card.name, ", ".join(differing))


def say_what_differs(path: Path, caught: Sequence[warnings.WarningMessage]) -> None:
    """The warnings of a load, each kind once and on one line."""
    seen = set()
    for item in caught:
        if item.category not in seen and not issubclass(item.category, DeprecationWarning | ImportWarning):
            seen.add(item.category)
            logger.warning("%s: %s", path.name, " ".join(str(item.message).split())[:300])
