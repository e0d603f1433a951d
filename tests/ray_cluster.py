"""A real Ray cluster of three nodes on this machine, for tests: one head and two more raylets, two CPUs each.

`start` runs this very file with a Python that has Ray (`make test-ray` makes one), which keeps the cluster until
its standard input ends.
"""

import itertools
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
# Only when asked for: a worker of `pytest -n` would start a cluster of its own.
_PYTHONS = (os.environ.get("STOKER_RAY_PYTHON", ""),)


@dataclass(frozen=True)
class RayCluster:
    """Where it is, what its processes are, and what has to be in the environment of who speaks to it."""

    python: str
    address: str
    raylets: list[int]
    variables: Mapping[str, str]
    process: "subprocess.Popen[str]"

    def ask(self, question: str, **arguments: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"ask": question, **arguments}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def add_node(self) -> int:
        """The pid of a new node's raylet."""
        return int(self.ask("add"))

    def leftovers(self) -> list[str]:
        """The names of placement groups and detached actors that are there."""
        return list(self.ask("leftovers"))


def python_with_ray() -> str | None:
    for python in filter(None, map(str, _PYTHONS)):
        if Path(python).exists():
            done = subprocess.run(
                [python, "-c", "import importlib.util as u; print(u.find_spec('ray') is not None)"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.stdout.strip() == "True":
                return python
    return None


@contextmanager
def start(python: str) -> Iterator[RayCluster]:
    variables = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "STOKER_"))}
    process = subprocess.Popen(
        [python, "-P", __file__],
        env={**inherited, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = json.loads(process.stdout.readline())
        yield RayCluster(python, said["address"], said["raylets"], variables, process)
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(60)


def keep() -> None:
    import ray
    from ray.cluster_utils import Cluster

    said = os.dup(1)
    os.dup2(2, 1)  # Ray prints
    out = os.fdopen(said, "w")
    # Loopback addresses of their own, as if they were hosts. Not 127.0.0.1: Ray takes that for the machine's address.
    hosts = itertools.count(2)

    def node() -> dict[str, Any]:
        return {"num_cpus": 2, "object_store_memory": 80_000_000, "node_ip_address": f"127.0.0.{next(hosts)}"}

    cluster = Cluster(initialize_head=True, head_node_args={**node(), "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(wait=False, **node())
    cluster.wait_for_nodes()

    def tell(answer: object) -> None:
        out.write(json.dumps(answer) + "\n")
        out.flush()

    nodes = [cluster.head_node, *cluster.worker_nodes]
    tell({"address": cluster.address, "raylets": [_raylet(node) for node in nodes]})
    for line in sys.stdin:
        question = json.loads(line)["ask"]
        if question == "add":
            tell(_raylet(cluster.add_node(wait=True, **node())))
        elif question == "leftovers":
            if not ray.is_initialized():
                ray.init(address=cluster.address, namespace="stoker", log_to_driver=False)
            groups = [
                found["name"] for found in ray.util.placement_group_table().values() if found["state"] != "REMOVED"
            ]
            tell(groups + ray.util.list_named_actors())
    cluster.shutdown()


def _raylet(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


if __name__ == "__main__":
    keep()
