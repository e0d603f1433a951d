"""A real Ray cluster that grows and shrinks by Ray's own autoscaler, on this machine: nodes are raylets here.

Ray's `AutoscalingCluster` does the same, but ends every Ray on the machine as it starts; and the settings that its
provider goes by are not in the wheel. So the provider is named as an external one.
"""

import json
import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.processes import kill_all_with_environment
from tests.ray_cluster import only_one

_PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
_HEAD = f"{'f' * 51}00000"  # the provider's own name of the head
_MARK = "STOKER_TEST_CLUSTER"
_START_S = 120.0
_LEFTOVERS = """
import json, sys, ray
ray.init(address=sys.argv[1], namespace="stoker", log_to_driver=False, logging_level="ERROR")
groups = [found["name"] for found in ray.util.placement_group_table().values() if found["state"] != "REMOVED"]
print(json.dumps(groups + [name for name in ray.util.list_named_actors() if "/agent/" not in name]))
"""


@dataclass(frozen=True)
class GrowingCluster:
    """Where it is, and what has to be in the environment of who speaks to it."""

    python: str
    address: str
    variables: Mapping[str, str]

    def leftovers(self) -> list[str]:
        """The names of placement groups and detached actors that are there, but for the agents, which wait for more."""
        words = [self.python, "-P", "-c", _LEFTOVERS, self.address]
        done = subprocess.run(words, env={**os.environ, **self.variables}, stdout=subprocess.PIPE, check=True)
        return list(json.loads(done.stdout.splitlines()[-1]))


@contextmanager
def grow(python: str, *, types: Mapping[str, Mapping[str, float]], max_nodes: int) -> Iterator[GrowingCluster]:
    """A head without CPUs, and up to so many nodes of these types, each with what Ray is to believe of it."""
    variables = {
        _MARK: secrets.token_hex(8),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_prestart_worker_first_driver": "0",
        "RAY_worker_niceness": "0",
        "RAY_raylet_start_wait_time_s": "180",
    }
    # A short name: Ray has Unix sockets below it.
    with only_one(), tempfile.TemporaryDirectory(prefix="grow", ignore_cleanup_errors=True) as folder:
        address = _free_address()
        config = Path(folder, "autoscaling.json")
        config.write_text(json.dumps(_config(address, types, max_nodes)))
        process = _start(python, address, config, variables)
        try:
            yield GrowingCluster(python, address, variables)
        finally:
            kill_all_with_environment(_MARK, variables[_MARK])
            process.wait(60)


def _free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def _start(
    python: str, address: str, config: Path, variables: Mapping[str, str], *, attempts: int = 3
) -> "subprocess.Popen[bytes]":
    """Tried again when it fails, because a raylet gives its own agent 15 s to start, on a busy machine too."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "STOKER_"))}
    # Ray's second autoscaler, which KubeRay and `ray up` have.
    fake = {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_enable_autoscaler_v2": "1"}
    fake |= {"RAY_CLOUD_INSTANCE_ID": _HEAD, "RAY_OVERRIDE_NODE_ID_FOR_TESTING": _HEAD}
    words = [str(Path(python).with_name("ray")), "start", "--head", "--block", "--node-ip-address=127.0.0.1"]
    words += [f"--port={address.partition(':')[2]}", "--num-cpus=0", "--object-store-memory=80000000"]
    words += ["--include-dashboard=false", "--dashboard-agent-listen-port=0", f"--temp-dir={config.parent / 'r'}"]
    words += [f"--autoscaling-config={config}"]
    log = config.with_name("log")
    with log.open("w") as file:
        process = subprocess.Popen(
            words, env={**inherited, **variables, **fake}, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
    give_up = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < give_up:
        if "Ray runtime started" in log.read_text():
            return process
        time.sleep(0.2)
    kill_all_with_environment(_MARK, variables[_MARK])
    process.wait(60)
    if attempts > 1:
        return _start(python, address, config, variables, attempts=attempts - 1)
    raise AssertionError(f"{python} started no cluster: {log.read_text()}")


def _config(address: str, types: Mapping[str, Mapping[str, float]], max_nodes: int) -> dict[str, Any]:
    head = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
    kinds = {
        name: {
            "resources": {**has, "object_store_memory": 80_000_000},
            "node_config": {},
            "min_workers": 0,
            "max_workers": max_nodes,
        }
        for name, has in types.items()
    }
    nothing = ("setup_commands", "head_setup_commands", "worker_setup_commands", "initialization_commands")
    provider = {"type": "external", "module": _PROVIDER, "gcs_address": address, "head_node_id": _HEAD}
    return {
        "cluster_name": "growing",
        "max_workers": max_nodes,
        "idle_timeout_minutes": 0.1,
        "upscaling_speed": 20.0,
        "provider": {**provider, "launch_multiple": True},
        "head_node_type": "ray.head.default",  # the provider's own name for it
        "available_node_types": {"ray.head.default": head, **kinds},
        **{name: [] for name in (*nothing, "head_start_ray_commands", "worker_start_ray_commands")},
        **{name: {} for name in ("auth", "docker", "file_mounts")},
        **{name: [] for name in ("cluster_synced_files", "rsync_exclude", "rsync_filter")},
        "file_mounts_sync_continuously": False,
    }
