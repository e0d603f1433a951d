"""Where a job came from, if that was another platform: what its file told that platform, for whoever asks.

Standard library only and valid on Python 3.7, because user code reads it, too, as `context.origin`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Dict, Optional

Length = Dict[str, int]  # {"epochs": 20}, {"batches": 100}


class Platform(str, Enum):
    """Whose commands or files a job was submitted with."""

    AI_PLATFORM = "aiplatform"
    DETERMINED = "determined"

    __str__ = str.__str__

    @property
    def in_words(self) -> str:
        return {"aiplatform": "Google AI Platform Training", "determined": "Determined"}[self.value]


@dataclass(frozen=True)
class TrainerSettings:
    """Of training, by the names of the arguments of `Trainer.fit` and `init`; None where the file says nothing."""

    __pydantic_config__ = {"extra": "forbid"}

    max_length: Optional[Length] = None
    validation_period: Optional[Length] = None
    checkpoint_period: Optional[Length] = None
    reporting_period: Optional[Length] = None
    checkpoint_policy: Optional[str] = None
    step_zero_validation: Optional[bool] = None
    profiling_enabled: Optional[bool] = None
    aggregation_frequency: Optional[int] = None
    average_aggregated_gradients: Optional[bool] = None
    test_mode: Optional[bool] = None

    def given(self) -> Dict[str, Any]:
        """Those that the file has."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Origin:
    """The platform that a job was written for, and what its file said there."""

    __pydantic_config__ = {"extra": "forbid"}

    platform: Platform
    document: Dict[str, Any] = field(default_factory=dict)  # the file, without `data` and secrets
    trainer: TrainerSettings = TrainerSettings()
    slots: int = 1  # of a trial; its one process has them all, if it starts its own ranks
    image: Optional[str] = None  # what its Dockerfile starts from
    container: bool = False  # the command is an image's: hyperparameters and --job-dir come after it as flags

    @classmethod
    def from_json(cls, values: Optional[Dict[str, Any]]) -> Optional[Origin]:
        """From run.json. Fields this does not know are left out: a newer stoker may have written it."""
        if values is None:
            return None
        known = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        settings = {k: v for k, v in known.get("trainer", {}).items() if k in TrainerSettings.__dataclass_fields__}
        return cls(**{**known, "platform": Platform(values["platform"]), "trainer": TrainerSettings(**settings)})


_KEYS_OF_0_1 = {"slots", "trainer", "experiment", "legacy_trial", "checkpoints", "container", "base"}


def from_0_1(values: Dict[str, Any]) -> Dict[str, Any]:
    """A run.json, job or job file of stoker 0.1.0, which kept the origin in `data`, as `stoker`; any other as it is.

    A `stoker` of the user's own stays where it is.
    """
    ours = (values.get("data") or {}).get("stoker")
    if "origin" in values or not isinstance(ours, dict) or not _KEYS_OF_0_1.issuperset(ours):
        return values
    origin: Optional[Dict[str, Any]] = None
    if "experiment" in ours:
        names = {"experiment": "document", "trainer": "trainer", "slots": "slots"}
        origin = {"platform": "determined", **{new: ours[old] for old, new in names.items() if old in ours}}
    elif ours.get("container") is True:
        origin = {"platform": "aiplatform", "container": True, "image": ours.get("base")}
    elif ours != {"trainer": {"test_mode": True}}:  # which `experiment create --test` added to any job
        return values
    data = {name: value for name, value in values["data"].items() if name != "stoker"}
    return {**values, "data": data, "origin": origin}
