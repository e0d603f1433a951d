"""A run as data: all that a supervisor needs to start it. `--dry-run` prints it, tests compare it.

Dataclasses of the standard library, because the supervisor reads them: importing pydantic takes longer (140 ms on a
small machine) than all else that happens before user code starts. Pydantic models hold and check them all the same.
"""

import json
import string
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from stoker.errors import StokerError
from stoker.origin import Origin
from stoker.run_dir import RunDir

_HEX = frozenset("0123456789abcdef")
_FILENAME = frozenset(string.ascii_letters + string.digits + "._+!-")


class Role(StrEnum):
    """What a replica is for. AI Platform's older `master` is our `chief`."""

    CHIEF = "chief"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A prebuilt wheel, sdist or zip, uploaded along with the package and installed into the environment."""

    __pydantic_config__ = {"extra": "forbid"}

    hash: str
    filename: str

    def __post_init__(self) -> None:
        """Both become a path, and may come from anyone who can submit a job."""
        if len(self.hash) != 64 or not set(self.hash) <= _HEX:
            raise ValueError("hash must be the sha256 of the archive, 64 hexadecimal digits")
        if self.filename.startswith(".") or not self.filename or not set(self.filename) <= _FILENAME:
            raise ValueError("filename must be letters, digits and ._+!- only, and not start with a dot")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSpec:
    """The Python a package needs, as its author wrote it down."""

    __pydantic_config__ = {"extra": "forbid"}

    runtime: str | None = None
    python: str | None = None
    requirements: tuple[str, ...] = ()
    archives: tuple[Archive, ...] = ()
    prefer_runtime: bool = False
    as_of: str | None = None  # a date: install what was released by then; `auto`: find the date; `today`: no date
    variables: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        known = _known(cls, values)
        known["requirements"] = tuple(known.get("requirements", ()))
        known["archives"] = tuple(Archive(**_known(Archive, archive)) for archive in known.get("archives", ()))
        return cls(**known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One process of a run. `rank` numbers the chief and the workers; parameter servers and evaluators have none."""

    __pydantic_config__ = {"extra": "forbid"}

    role: Role
    index: int
    rank: int | None
    node: int = 0
    cpus: float = 1.0
    memory_gb: float = 0.0
    gpus: float = 0.0
    gpu_resource: str | None = None  # the cluster's own name of the kind of GPU it needs; any kind, if not given

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to run, with which Python, as which processes."""

    __pydantic_config__ = {"extra": "forbid", "ser_json_inf_nan": "strings"}

    run: str  # "taxi_1.1.1": job, trial number, attempt
    job: str
    trial: int  # from 1, within the job
    trial_id: int  # unique on the server; 0 without one
    attempt: int  # from 1
    package: str | None = None  # hash; fetched and unpacked into the run directory
    source: str | None = None  # or a directory to run in place (`stoker local train`)
    import_roots: tuple[str, ...] = (".",)
    environment: EnvironmentSpec = EnvironmentSpec()
    module: str | None = None
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] = ()
    hparams: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    origin: Origin | None = None
    job_dir: str | None = None
    replicas: tuple[Replica, ...]
    addresses: dict[str, str] = field(default_factory=dict)  # "host:port" of replicas that are on several nodes
    start_port: int | None = None  # of the replicas' addresses; free ports when not given
    chief_name: str = "chief"
    in_search: bool = False  # CLOUD_ML_TRIAL_ID and TF_CONFIG's task.trial are for searches alone
    metric: str | None = None  # what the search looks at: CLOUD_ML_HP_METRIC_TAG
    warm: bool = False  # its replicas may be forked from a Python that has imported what they import
    latest_checkpoint: str | None = None  # a path; or a storage URL, which the supervisor fetches
    artifacts: str | None = None  # a storage URL under which its checkpoints and models are kept beside its own disk
    seed: int = 0
    max_running_s: float | None = None
    grace_s: float = 30.0

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Fields this does not know are left out: they are of no use to a supervisor that does not know them."""
        known = _known(cls, values)
        for name in ("import_roots", "args", "command"):
            if known.get(name) is not None:
                known[name] = tuple(known[name])
        known["environment"] = EnvironmentSpec.from_json(known.get("environment", {}))
        known["origin"] = Origin.from_json(known.get("origin"))
        known["replicas"] = tuple(
            Replica(**{**_known(Replica, replica), "role": Role(replica["role"])}) for replica in values["replicas"]
        )
        return cls(**known)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, run_dir: RunDir) -> Self:
        """From run.json, also of stoker 0.1.0."""
        try:
            return cls.from_json(run_dir.read_launch())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StokerError(f"{run_dir.launch} is not a run that this stoker can start: {error}.") from error

    def write(self, run_dir: RunDir) -> None:
        """As run.json, whole or not at all; makes the directory."""
        run_dir.write_launch(json.dumps(self.to_json()))

    @property
    def num_nodes(self) -> int:
        return 1 + max(replica.node for replica in self.replicas)

    @property
    def world_size(self) -> int:
        return sum(replica.rank is not None for replica in self.replicas)

    @property
    def variables(self) -> dict[str, str]:
        """What the environment's author wants in every process's environment."""
        return self.environment.variables

    def on_node(self, node: int) -> tuple[Replica, ...]:
        return tuple(replica for replica in self.replicas if replica.node == node)


def _known(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in cls.__dataclass_fields__}  # type: ignore[attr-defined]
