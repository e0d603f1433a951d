"""`get_cluster_info()`: the run this process is part of, in Determined's words."""

import json
import os
import socket
import sys
from dataclasses import dataclass, field
from typing import Any

from stoker import context
from stoker.origin import Origin
from stoker.run_dir import RunDir

_ON_ONE_MACHINE = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class TrialInfo:
    """This trial: its hyperparameters are the ones it was given, nested as the file has them."""

    trial_id: int
    experiment_id: Any  # ours is the job's name
    trial_seed: int
    hparams: dict[str, Any]
    _config: dict[str, Any] = field(default_factory=dict)
    _steps_completed: int = 0
    _trial_run_id: int = 1
    _debug: bool = False
    _inter_node_network_interface: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Where this process runs. There is no master to speak to: what is reported goes to the run's directory."""

    task_id: str
    allocation_id: str
    task_type: str
    slot_ids: list[int]
    gpu_uuids: list[str]
    container_addrs: list[str]
    container_slot_counts: list[int]
    container_rank: int
    user_data: dict[str, Any]
    latest_checkpoint: str | None
    agent_id: str = field(default_factory=socket.gethostname)
    cluster_id: str = "stoker"
    master_url: str = ""
    session_token: str = ""
    master_cert_name: str | None = None
    master_cert_file: str | None = None
    _trial_info: TrialInfo | None = None

    @property
    def trial(self) -> TrialInfo:
        if self._trial_info is None:
            raise RuntimeError(f"This is a {self.task_type} job: there is no trial. Ask info.task_type first.")
        return self._trial_info


def get_cluster_info() -> ClusterInfo | None:
    """None outside a job, which is how code tells; in a job, what its run.json says."""
    run_dir = os.environ.get("STOKER_RUN_DIR")
    if run_dir is None:
        return None
    run = RunDir(run_dir).read_launch()
    origin = Origin.from_json(run.get("origin"))
    slots = _slots(run, origin.slots if origin is not None else 1)
    return ClusterInfo(
        task_id=run["run"],
        allocation_id=run["run"],
        task_type="TRIAL",
        slot_ids=list(range(slots[int(os.environ.get("GROUP_RANK", "0"))])),
        gpu_uuids=[word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word],
        container_addrs=_addresses(len(slots)),
        container_slot_counts=slots,
        container_rank=int(os.environ.get("GROUP_RANK", "0")),
        user_data=run.get("data", {}),
        latest_checkpoint=checkpoint_name(run.get("latest_checkpoint")),
        _trial_info=TrialInfo(
            trial_id=run["trial_id"] or run["trial"],
            experiment_id=run["job"],
            trial_seed=run.get("seed", 0),
            hparams=run.get("hparams", {}),
            _config=origin.document if origin is not None else {},
            _trial_run_id=run.get("attempt", 1),
        ),
    )


def checkpoint_name(path: str | None) -> str | None:
    """What old code calls a checkpoint's uuid: the name of those that `core` made, and the path of all others."""
    if path is None:
        return None
    name = os.path.basename(path)
    return name if len(name) == 36 and name.count("-") == 4 else path


def run_context() -> context.Context:
    """The run of this process; one context for it all, because each opens the events' file."""
    global _context
    if _context is None or _context.run_dir != os.environ.get("STOKER_RUN_DIR", _context.run_dir):
        _context = context.init()
    return _context


_context: context.Context | None = None


def document_of(run: context.Context) -> dict[str, Any]:
    """The experiment's file, which is what `get_experiment_config()` gives; empty for a job of another kind."""
    return dict(run.origin.document) if run.origin is not None else {}


def _slots(run: dict[str, Any], asked: int) -> list[int]:
    """Slots by node. A command that starts its own processes is one replica that was given several."""
    counts: dict[int, int] = {}
    for replica in run["replicas"]:
        if replica.get("rank") is not None:
            counts[replica.get("node", 0)] = counts.get(replica.get("node", 0), 0) + 1
    if len(counts) == 1 and counts.get(0) == 1:
        counts[0] = max(asked, 1)
    return [counts[node] for node in sorted(counts)]


def _addresses(nodes: int) -> list[str]:
    """Of each node, the first first."""
    if nodes == 1:
        return [_ON_ONE_MACHINE]
    cluster = json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {})
    found = [address.rsplit(":", 1)[0] for role in ("chief", "master", "worker") for address in cluster.get(role, [])]
    unique = list(dict.fromkeys(found))
    if len(unique) != nodes:
        sys.stderr.write(f"warning: {nodes} nodes, but TF_CONFIG has the addresses of {len(unique)}\n")
    return unique
