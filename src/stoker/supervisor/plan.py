"""A run as the supervisor reads it: schema's Launch as plain values.

Not the pydantic model itself, because importing pydantic takes longer (140 ms on a small machine) than all else that
happens before user code starts. Who wrote run.json has validated it; a test keeps the fields the same.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker.errors import StokerError
from stoker.origin import Origin, from_0_1


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One process of a run."""

    role: str
    index: int
    rank: int | None
    node: int = 0
    cpus: float = 1.0
    memory_gb: float = 0.0
    gpus: float = 0.0
    gpu_resource: str | None = None

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Replica":
        return cls(**{name: value for name, value in values.items() if name in cls.__dataclass_fields__})

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run, with which Python, as which processes. The fields are Launch's."""

    run: str
    job: str
    trial: int
    trial_id: int
    attempt: int
    package: str | None = None
    source: str | None = None
    import_roots: tuple[str, ...] = (".",)
    environment: dict[str, Any] = field(default_factory=dict)
    module: str | None = None
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] = ()
    hparams: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    origin: Origin | None = None
    job_dir: str | None = None
    replicas: tuple[Replica, ...]
    addresses: dict[str, str] = field(default_factory=dict)
    start_port: int | None = None
    chief_name: str = "chief"
    in_search: bool = False
    metric: str | None = None
    warm: bool = False
    latest_checkpoint: str | None = None
    artifacts: str | None = None
    seed: int = 0
    max_running_s: float | None = None
    grace_s: float = 30.0

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Plan":
        """Fields this does not know are left out: they are of no use to a supervisor that does not know them."""
        values = from_0_1(values)
        known = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        known["origin"] = Origin.from_json(values.get("origin"))
        for name in ("import_roots", "args", "command"):
            if known.get(name) is not None:
                known[name] = tuple(known[name])
        known["replicas"] = tuple(Replica.from_json(replica) for replica in values["replicas"])
        return cls(**known)

    @classmethod
    def read(cls, path: Path) -> "Plan":
        try:
            return cls.from_json(json.loads(path.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StokerError(f"{path} is not a run that this stoker can start: {error}.") from error

    @property
    def variables(self) -> dict[str, str]:
        """What the environment's author wants in every process's environment."""
        return dict(self.environment.get("variables", {}))

    @property
    def world_size(self) -> int:
        return sum(replica.rank is not None for replica in self.replicas)

    def on_node(self, node: int) -> tuple[Replica, ...]:
        return tuple(replica for replica in self.replicas if replica.node == node)
