"""Registered models and their versions, as AI Platform names them; and the one way to say which version is meant."""

import re
from dataclasses import dataclass
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from stoker.errors import UsageError
from stoker.schema.bundle import ModelCard
from stoker.schema.job import Labels
from stoker.schema.model import Model

NAME_RULE = "letters, digits and underscores, starting with a letter, at most 128"
CHECKPOINT = "checkpoint"  # the framework of a version that was made of one
DEFAULT = "default"  # the alias that every model with a version has
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,127}")
_RESOURCE = re.compile(r"(?:projects/[^/]+/)?models/(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Which version of which model: by name, by number, by alias; the default one when nothing is said."""

    model: str
    version: str | None = None
    number: int | None = None
    alias: str | None = None

    @classmethod
    def parse(cls, text: str, version: str | None = None) -> "Reference":
        """`M`, `M:3`, `M:v1`, `M@production`, `M/versions/v1`; or `M` with the version said apart. UsageError."""
        resource = _RESOURCE.fullmatch(text)
        match = re.fullmatch(r"([^/:@]+)(?:(/versions/|:|@)([^/:@]+))?", resource[1] if resource else text)
        if match is None:
            raise UsageError(f"{text!r} names no model. Write M, M:3, M:v1, M@alias or M/versions/v1.")
        model, mark, word = match.groups()
        if mark is not None and version is not None:
            raise UsageError(f"{text!r} says which version, and {version!r} says it again. Give one of them.")
        if mark == "@":
            return cls.of(model, f"@{word}")
        return cls.of(model, word if version is None else version)

    @classmethod
    def of(cls, model: str, word: str | None) -> "Reference":
        """Of this model the version that a word names: `v1`, `3` (a number: names begin with a letter), `@alias`."""
        if not _NAME.fullmatch(model):
            raise UsageError(f"{model!r} is no model's name: those are {NAME_RULE}.")
        if word is None or word == f"@{DEFAULT}":
            return cls(model=model)
        if word.startswith("@"):
            return cls(model=model, alias=checked_alias(word[1:]))
        if word.isdecimal():
            return cls(model=model, number=int(word))
        return cls(model=model, version=checked_name(word, "version"))

    @property
    def word(self) -> str:
        """What `of` takes: the last part of the version's path."""
        if self.alias is not None:
            return f"@{self.alias}"
        return self.version or (f"@{DEFAULT}" if self.number is None else str(self.number))

    def __str__(self) -> str:
        if self.version is not None:
            return f"{self.model}/versions/{self.version}"
        if self.alias is not None:
            return f"{self.model}@{self.alias}"
        return self.model if self.number is None else f"{self.model}:{self.number}"


class NewModel(Model):
    """`POST /models`."""

    name: str
    description: str = ""
    labels: Labels = {}

    @field_validator("name")
    @classmethod
    def _name_is_well_formed(cls, name: str) -> str:
        return _valid(name, "model")


class ModelChanges(Model):
    """What may be changed of a model: both replace what was there."""

    description: str | None = None
    labels: Labels | None = None


class RegisteredModel(Model):
    """A name under which versions are kept."""

    name: str
    description: str = ""
    labels: Labels = {}
    created: float
    default_version: str | None = None
    aliases: dict[str, str] = {}  # to the version's name
    num_versions: int = 0


class NewVersion(Model):
    """`POST /models/{model}/versions`: from a place (`origin`), or from what a trial of a `job` left.

    Without a name it is called by its number: `v3`.
    """

    name: str | None = None
    origin: str | None = None
    job: str | None = None
    trial: int | None = None
    checkpoint: str | None = Field(None, description="of that trial this checkpoint, by its path, and nothing else")
    framework: str | None = None
    runtime_version: str | None = None
    python_version: str | None = None
    prediction_class: str | None = None
    package_uris: tuple[str, ...] = ()
    description: str = ""
    labels: Labels = {}
    metadata: dict[str, Any] = {}
    alias: str | None = None

    @field_validator("name")
    @classmethod
    def _name_is_well_formed(cls, name: str | None) -> str | None:
        return None if name is None else _valid(name, "version")

    @field_validator("alias")
    @classmethod
    def _alias_is_well_formed(cls, alias: str | None) -> str | None:
        if alias is not None and (alias == DEFAULT or not _ALIAS.fullmatch(alias)):
            raise ValueError(f"an alias is letters, digits, _ and -, starting with a letter, and not {DEFAULT!r}")
        return alias

    @model_validator(mode="after")
    def _comes_from_one_place(self) -> Self:
        if (self.origin is None) == (self.job is None):
            raise ValueError("a version is made from `origin` (a folder or URL) or from a `job`: give one of them")
        if self.trial is not None and self.job is None:
            raise ValueError("`trial` is a number within a `job`: give that too")
        if self.checkpoint is not None and self.job is None:
            raise ValueError("`checkpoint` is one of a `job`: give that too")
        return self


class Version(Model):
    """One version of a model: where its files are, what it is, and where it came from (`card.origin`)."""

    model: str
    name: str
    number: int
    url: str  # a folder of the server's machine, or a storage URL
    source: str  # where it was copied from
    created: float
    is_default: bool = False
    aliases: tuple[str, ...] = ()
    runtime_version: str | None = None
    python_version: str | None = None
    prediction_class: str | None = None
    package_uris: tuple[str, ...] = ()
    description: str = ""
    labels: Labels = {}
    size_bytes: int = 0
    card: ModelCard

    @property
    def reference(self) -> str:
        return f"{self.model}/versions/{self.name}"

    def check_predicts(self) -> None:
        """UsageError for a checkpoint: only the code that it was trained with knows what to do with its weights."""
        if self.card.framework == CHECKPOINT:
            raise UsageError(
                f"{self.reference} is a checkpoint, which does not predict by itself. Load it in your code:"
                f" stoker.pytorch.load_trial_from_checkpoint_path({self.url!r})."
            )


class ModelList(Model):
    models: tuple[RegisteredModel, ...]


class VersionList(Model):
    versions: tuple[Version, ...] = Field((), description="newest first")


class AliasTarget(Model):
    """`PUT /models/{model}/aliases/{alias}`."""

    version: str


class SavedModel(Model):
    """A model that a run of a job said it saved."""

    run: str
    trial: int
    time: float
    name: str
    path: str
    framework: str
    metrics: dict[str, float] = {}
    size_bytes: int = 0


def checked_name(name: str, what: str) -> str:
    """UsageError if this cannot be a model's or version's name."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no {what}'s name: those are {NAME_RULE}.")
    return name


def checked_alias(alias: str) -> str:
    """UsageError if this cannot be an alias."""
    if not _ALIAS.fullmatch(alias):
        raise UsageError(f"{alias!r} is no alias: those are letters, digits, _ and -, starting with a letter.")
    return alias


def _valid(name: str, what: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"a {what}'s name is {NAME_RULE}")
    return name
