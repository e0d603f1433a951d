"""What a user asks for: the fields of stoker.yaml and of `POST /jobs`."""

import math
import re
from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from stoker.origin import Origin
from stoker.schema.launch import EnvironmentSpec, Role
from stoker.schema.model import Model
from stoker.schema.search import SearchSpec
from stoker.schema.space import Errors

JOB_NAME_RULE = "letters, digits and underscores, starting with a letter, at most 128"
_JOB_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_.-]{0,63}")
_MODULE = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*")  # `python -m gym-rl.task` runs
_HASH = re.compile(r"[0-9a-f]{64}")

Labels = dict[str, str]
Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Amounts(Protocol):
    """What a share and a replica have in common."""

    @property
    def cpus(self) -> float: ...
    @property
    def memory_gb(self) -> float: ...
    @property
    def gpus(self) -> float: ...


class Share(Model):
    """What one replica needs of a machine; `a & b` is the smaller of each amount, `a | b` the larger."""

    cpus: Amount = 1.0
    memory_gb: Amount = 0.0
    gpus: Amount = 0.0

    @classmethod
    def total(cls, shares: Sequence[Amounts]) -> "Share":
        return Share(
            cpus=sum(share.cpus for share in shares),
            memory_gb=sum(share.memory_gb for share in shares),
            gpus=sum(share.gpus for share in shares),
        )

    def __sub__(self, taken: Amounts) -> "Share":
        """What is left, which is never less than nothing."""
        return Share(
            cpus=max(self.cpus - taken.cpus, 0.0),
            memory_gb=max(self.memory_gb - taken.memory_gb, 0.0),
            gpus=max(self.gpus - taken.gpus, 0.0),
        )

    def __and__(self, other: Amounts) -> "Share":
        return Share(
            cpus=min(self.cpus, other.cpus),
            memory_gb=min(self.memory_gb, other.memory_gb),
            gpus=min(self.gpus, other.gpus),
        )

    def __or__(self, other: Amounts) -> "Share":
        return Share(
            cpus=max(self.cpus, other.cpus),
            memory_gb=max(self.memory_gb, other.memory_gb),
            gpus=max(self.gpus, other.gpus),
        )

    def fits(self, free: Amounts) -> bool:
        return (
            self.cpus <= free.cpus + _TINY
            and self.memory_gb <= free.memory_gb + _TINY
            and self.gpus <= free.gpus + _TINY
        )

    def times_in(self, free: Amounts) -> float:
        """How often it fits; without end when it is nothing."""
        pairs = ((self.cpus, free.cpus), (self.memory_gb, free.memory_gb), (self.gpus, free.gpus))
        return min([math.floor((there + _TINY) / need) for need, there in pairs if need > 0], default=math.inf)

    @property
    def in_words(self) -> str:
        parts = [f"{self.cpus:g} CPU{'' if self.cpus == 1 else 's'}"]
        if self.memory_gb:
            parts.append(f"{self.memory_gb:g} GB")
        parts.append(f"{self.gpus:g} GPU{'' if self.gpus == 1 else 's'}")
        return ", ".join(parts)


NOTHING = Share(cpus=0, memory_gb=0, gpus=0)
_TINY = 1e-9  # fractions of a GPU add up inexactly


class RoleSpec(Share):
    """So many replicas of one role; `machine` is an AI Platform machine type that the pool sizes."""

    count: Count = 1
    machine: str | None = None
    gpu_type: str | None = None


class Resources(Model):
    """How many processes, and what each needs: plain `slots`, or AI Platform's `tier`, or `roles`."""

    slots: Annotated[int, Field(ge=1)] = 1
    cpus: Amount = 1.0
    memory_gb: Amount = 0.0
    gpus: Amount = 0.0
    tier: str | None = None
    roles: dict[Role, RoleSpec] | None = None
    slot_is_gpu: bool = Field(False, description="a process gets a GPU for each of its CPUs, if the pool has GPUs")
    single_node: bool = Field(False, description="all processes on one machine, or none")

    @property
    def slots_in_all(self) -> int:
        """What a trial takes, as `max_slots` counts."""
        if self.roles is not None:
            return sum(role.count for role in self.roles.values())
        return self.slots * (max(round(self.cpus), 1) if self.slot_is_gpu else 1)

    @model_validator(mode="after")
    def _chief_is_one(self) -> Self:
        if self.roles is not None and (Role.CHIEF not in self.roles or self.roles[Role.CHIEF].count != 1):
            raise ValueError("roles must have a chief, and exactly one")
        return self


class RestartRules(Model):
    """When a run ends badly: how often to start again, and for which exit codes (any, if not given)."""

    max_restarts: Count = 0
    exit_codes: tuple[int, ...] | None = None


class Limits(Model):
    """How long a job may run (from its first process on) and wait, in seconds; and how long a stop may take."""

    max_running_s: Annotated[float, Field(gt=0)] | None = None
    max_waiting_s: Annotated[float, Field(gt=0)] | None = None
    grace_s: Annotated[float, Field(ge=0)] = 30.0


class JobSpec(Model):
    """One thing to run: `train` a module of the package, `command` any command in it, `predict` a batch prediction."""

    name: str
    kind: Literal["train", "command", "predict"] = "train"
    package: str | None = Field(None, description="hash of the uploaded package; filled in by the client")
    import_roots: tuple[str, ...] = Field((".",), description="folders of the package that are on sys.path")
    module: str | None = None
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] = ()
    hparams: dict[str, Any] = {}
    data: dict[str, Any] = Field({}, description="anything; user code reads it as context.config_data")
    origin: Origin | None = Field(None, description="the platform it was written for, if that is not ours")
    job_dir: str | None = None
    pool: str | None = None
    resources: Resources = Resources()
    environment: EnvironmentSpec = EnvironmentSpec()
    restarts: RestartRules = RestartRules()
    limits: Limits = Limits()
    priority: Annotated[int, Field(ge=0, le=1000)] = 0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    chief_name: Literal["chief", "master"] = "chief"
    labels: Labels = {}
    search: SearchSpec | None = Field(None, description="try many sets of hyperparameters; one trial without it")

    @field_validator("environment", mode="before")
    @classmethod
    def _as_of_is_a_date(cls, value: Any) -> Any:
        as_of = value.get("as_of") if isinstance(value, dict) else None
        if as_of in (None, "auto", "today"):
            return value
        try:
            return {**value, "as_of": date.fromisoformat(str(as_of)).isoformat()}  # YAML reads 2020-01-15 as a date
        except ValueError as error:
            raise ValueError("as_of must be a date like 2020-01-15, auto or today") from error

    @field_validator("name")
    @classmethod
    def _name_is_well_formed(cls, name: str) -> str:
        if not _JOB_NAME.fullmatch(name):
            raise ValueError(f"a job's name is {JOB_NAME_RULE}")
        return name

    @field_validator("module")
    @classmethod
    def _module_is_dotted(cls, module: str | None) -> str | None:
        if module is not None and not _MODULE.fullmatch(module):
            raise ValueError("a module's name is dotted words, like trainer.task (no slashes, no .py)")
        return module

    @field_validator("package")
    @classmethod
    def _package_is_a_hash(cls, package: str | None) -> str | None:
        if package is not None and not _HASH.fullmatch(package):
            raise ValueError("a package is named by its sha256")
        return package

    @field_validator("labels")
    @classmethod
    def _labels_are_well_formed(cls, labels: Labels) -> Labels:
        for key, value in labels.items():
            if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
                raise ValueError(f"label {key}={value}: keys are [a-z][a-z0-9_-]{{0,62}}, values [a-z0-9_.-]{{0,63}}")
        return labels

    @field_validator("search")
    @classmethod
    def _search_leaves_hparams_alone(cls, search: SearchSpec | None, info: ValidationInfo) -> SearchSpec | None:
        errors = Errors()
        fixed = info.data.get("hparams", {})
        for name in search.space if search is not None else ():
            if name in fixed:
                errors.add(("space", name), "clashes with hparams, which fixes its value", fixed[name])
        errors.raise_any("search")
        return search

    @model_validator(mode="after")
    def _has_something_to_run(self) -> Self:
        if self.kind == "train" and not self.module:
            raise ValueError("a train job needs `module` (the dotted name to run, like trainer.task)")
        if self.kind != "train" and not self.command:
            raise ValueError(f"a {self.kind} job needs `command` (a list, like [python, script.py])")
        return self
