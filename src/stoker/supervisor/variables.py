"""What a replica finds around it: its command line and its environment, as AI Platform, Vertex and torchrun set them.

All pure, so that a table of cases is the test. The facts are in the worker contract of AI Platform Training (TF_CONFIG,
CLOUD_ML_…), Vertex (AIP_…) and torch.distributed.elastic's local agent (RANK and its kin).
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stoker.host.processes import RUN_DIR_VARIABLE
from stoker.run_dir import RunDir
from stoker.schema.launch import Launch, Replica

HOST = "127.0.0.1"
_SECRETS = ("STOKER_SERVER", "STOKER_TOKEN")
# A run inside a run (user code that calls `stoker local train`) must not see the outer one's place in its cluster.
_OF_AN_OUTER_RUN = (
    "STOKER_REPLICA", "TF_CONFIG", "CLUSTER_SPEC", "CLOUD_ML_JOB_ID", "CLOUD_ML_TRIAL_ID", "CLOUD_ML_HP_METRIC_FILE",
    "CLOUD_ML_HP_METRIC_TAG", "AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR", "AIP_TENSORBOARD_LOG_DIR", "RANK", "LOCAL_RANK",
    "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE",
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_USE_AGENT_STORE",
)  # fmt: skip
# All that may differ between the runs of one search; the rest of the environment is the same for all of them.
VOLATILE = frozenset({RUN_DIR_VARIABLE, "CUDA_VISIBLE_DEVICES", "STORAGE_EMULATOR_HOST", *_OF_AN_OUTER_RUN})
# The reference's order of ports: the chief, then parameter servers, then workers. Evaluators have no address.
_PORT_ORDER = ("chief", "ps", "worker")


def command(launch: Launch, python: Path) -> list[str]:
    """The words to run. To a module come, after the user's arguments, its search's hyperparameters and `--job-dir`.

    So they do to the command of a container's Dockerfile, as they came to the container.
    """
    takes_flags = launch.command is None or (launch.origin is not None and launch.origin.container)
    if launch.command is not None:
        words = list(launch.command)
        if words[0] in ("python", "python3"):
            words[0] = str(python)
    else:
        words = [str(python), "-m", str(launch.module)]
    words += launch.args
    if launch.in_search and takes_flags:
        for name, value in _flat(launch.hparams):
            words += [f"--{name}", _word(value)]
    if launch.job_dir is not None and takes_flags:
        words += ["--job-dir", launch.job_dir]
    return words


def _flat(hparams: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names as they were given; of nested ones with dots between."""
    for name, value in hparams.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def addressed(launch: Launch) -> list[Replica]:
    """The replicas that have an address, in the order in which ports are given out."""
    return [replica for role in _PORT_ORDER for replica in launch.replicas if replica.role == role]


def variables(
    launch: Launch, replica: Replica, *, ports: Mapping[str, int], run_dir: RunDir, clustered: bool = True
) -> dict[str, str]:
    """What stoker itself sets for one replica. `ports` are by replica's name.

    Not `clustered` is `local train` without --distributed: TF_CONFIG then has an empty cluster and task, as ever.
    """
    cluster = _cluster(launch, ports) if clustered else {}
    task = _task(launch, replica) if clustered else {}
    job: dict[str, Any] = {"job_name": launch.module if launch.source else launch.job, "args": list(launch.args)}
    if launch.module is not None:
        job["python_module"] = launch.module
    if launch.job_dir is not None:
        job["job_dir"] = launch.job_dir
    found = {
        "PYTHONUNBUFFERED": "1",
        **launch.variables,
        RUN_DIR_VARIABLE: str(run_dir),
        "STOKER_REPLICA": replica.name,
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": task, "environment": "cloud", "job": job}),
        "CLUSTER_SPEC": json.dumps({"cluster": cluster, "task": task, "open_ports": [*_own_port(replica, ports)]}),
        "CLOUD_ML_JOB_ID": launch.job,
        "CLOUD_ML_HP_METRIC_FILE": str(run_dir.metric_file(replica.name)),
    }
    if launch.in_search:
        found["CLOUD_ML_TRIAL_ID"] = str(launch.trial)
    if launch.metric is not None:
        found["CLOUD_ML_HP_METRIC_TAG"] = launch.metric
    if launch.job_dir is not None:
        base = launch.job_dir.rstrip("/")
        found["AIP_MODEL_DIR"] = f"{base}/model/"
        found["AIP_CHECKPOINT_DIR"] = f"{base}/checkpoints/"
        found["AIP_TENSORBOARD_LOG_DIR"] = f"{base}/logs/"
    if launch.world_size > 1 and replica.rank is not None:
        found |= _torchrun(launch, replica, ports)
    return found


def process_environment(
    inherited: Mapping[str, str], own: Mapping[str, str], *, launch: Launch, root: Path
) -> dict[str, str]:
    """The whole environment of a replica: what the supervisor inherited, less its secrets, and `own` over it."""
    hidden = {*_SECRETS, *(_OF_AN_OUTER_RUN if RUN_DIR_VARIABLE in inherited else ())}
    found = {name: value for name, value in inherited.items() if name not in hidden}
    if len(launch.replicas) > 1:  # torchrun's defaults too: ranks that each take all cores are slower than one
        found = {"OMP_NUM_THREADS": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", **found}
    found |= own
    found["PYTHONPATH"] = os.pathsep.join([*import_roots(launch, root), *filter(None, [found.get("PYTHONPATH")])])
    return found


def import_roots(launch: Launch, root: Path) -> list[str]:
    """The folders of the package that Python looks for modules in."""
    return [os.path.normpath(root / folder) for folder in launch.import_roots]


def split_gpus(replicas: Sequence[Replica], visible: Sequence[str]) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES of the replicas that asked for GPUs, in turn; parts of a GPU are put together on one."""
    found: dict[str, str] = {}
    used = 0.0
    for replica in replicas:
        if replica.gpus <= 0 or not visible:
            continue
        if replica.gpus >= 1 or math.floor(used) != math.ceil(used + replica.gpus - 1e-9) - 1:
            used = math.ceil(used - 1e-9)
        first, count = math.floor(used + 1e-9), math.ceil(replica.gpus)
        mine = dict.fromkeys(visible[place % len(visible)] for place in range(first, first + count))
        found[replica.name] = ",".join(mine)
        used += replica.gpus
    return found


def _cluster(launch: Launch, ports: Mapping[str, int]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for replica in addressed(launch):
        found.setdefault(_task_type(launch, replica), []).append(f"{_host(launch, replica)}:{ports[replica.name]}")
    return found


def _host(launch: Launch, replica: Replica) -> str:
    return launch.addresses[replica.name].rpartition(":")[0] if launch.addresses else HOST


def _task(launch: Launch, replica: Replica) -> dict[str, Any]:
    task: dict[str, Any] = {"type": _task_type(launch, replica), "index": replica.index}
    if launch.in_search:
        task["trial"] = str(launch.trial)
    return task


def _task_type(launch: Launch, replica: Replica) -> str:
    return launch.chief_name if replica.role == "chief" else replica.role


def _own_port(replica: Replica, ports: Mapping[str, int]) -> list[int]:
    return [ports[replica.name]] if replica.name in ports else []


def _torchrun(launch: Launch, replica: Replica, ports: Mapping[str, int]) -> dict[str, str]:
    ranked = [other for other in launch.replicas if other.rank is not None]
    beside = [other for other in ranked if other.node == replica.node]
    return {
        "RANK": str(replica.rank),
        "LOCAL_RANK": str(beside.index(replica)),
        "WORLD_SIZE": str(launch.world_size),
        "LOCAL_WORLD_SIZE": str(len(beside)),
        "GROUP_RANK": str(replica.node),
        "GROUP_WORLD_SIZE": str(len({other.node for other in ranked})),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(replica.rank),
        "ROLE_WORLD_SIZE": str(launch.world_size),
        "MASTER_ADDR": _host(launch, ranked[0]),
        "MASTER_PORT": str(ports["chief-0"]),
        "TORCHELASTIC_RUN_ID": launch.run,
        "TORCHELASTIC_RESTART_COUNT": str(launch.attempt - 1),
        "TORCHELASTIC_MAX_RESTARTS": "0",
        # There is no agent: with True, rank 0 would wait for a store that nobody opens.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def _word(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)  # true, 0.1, [1, 2]: as YAML and argparse's users write them
