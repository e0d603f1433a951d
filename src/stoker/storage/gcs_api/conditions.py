"""Preconditions of requests: `ifGenerationMatch` and its kin."""

from collections.abc import Mapping

from stoker.storage.gcs_api.errors import ApiError
from stoker.storage.object_store import Check, PreconditionError, StoredObject


def check_of(query: Mapping[str, str], *, source: bool = False) -> Check:
    """As a check of the object's present state; a missing one has generation 0. `source`: ifSourceGenerationMatch …"""
    word = "ifSource" if source else "if"
    wanted = {
        name: _number(name, query[name])
        for name in (
            f"{word}GenerationMatch",
            f"{word}GenerationNotMatch",
            f"{word}MetagenerationMatch",
            f"{word}MetagenerationNotMatch",
        )
        if name in query
    }

    def check(current: StoredObject | None) -> None:
        for name, value in wanted.items():
            present = 0
            if current is not None:
                present = current.metageneration if "Metageneration" in name else current.generation
            if (present == value) is name.endswith("NotMatch"):
                raise PreconditionError(
                    f"At least one of the pre-conditions you specified did not hold: {name}={value}, it is {present}."
                )

    return check


def is_unchanged(query: Mapping[str, str], found: StoredObject) -> bool:
    """Whether a reader has this already: then the answer is 304."""
    return query.get("ifGenerationNotMatch") == str(found.generation) or query.get("ifMetagenerationNotMatch") == str(
        found.metageneration
    )


def is_generation(query: Mapping[str, str], found: StoredObject, *, name: str = "generation") -> bool:
    """Whether the object is the generation asked for; only the last one is kept."""
    wanted = query.get(name)
    return wanted is None or _number(name, wanted) == found.generation


def _number(name: str, text: str) -> int:
    if not text.lstrip("-").isdigit():
        raise ApiError(400, f"{name} must be a number (got {text!r}).")
    return int(text)
