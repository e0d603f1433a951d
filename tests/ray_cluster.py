"""A real Ray cluster of three nodes on this machine, for tests: one head and two more raylets, two CPUs each.

`start` runs this very file with a Python that has Ray (`make test` makes one), which keeps the cluster until its
standard input ends. At most one is kept on a machine at a time, whoever runs tests there.
"""

import fcntl
import itertools
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
IS_WHOLE = bool(os.environ.get("STOKER_TEST_RAY"))  # `make test-ray`: minutes of killing, not for every change
NO_RAY = "on a real Ray cluster: set STOKER_RAY_PYTHON to a Python with Ray, as `make test` does"
NOT_WHOLE = "on a real Ray cluster, for minutes: `make test-ray`"


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
    """Only where one was named: it is not for tests to look for it."""
    named = os.environ.get("STOKER_RAY_PYTHON")
    return str(Path(named).absolute()) if named else None


@contextmanager
def _only_one() -> Iterator[None]:
    """Wait until no other cluster is kept on this machine: two cores do not bear two, and workers would start four."""
    path = Path(tempfile.gettempdir()) / f"stoker-test-ray-{os.getuid()}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def start(python: str) -> Iterator[RayCluster]:
    with _only_one(), _start(python) as cluster:
        yield cluster


@contextmanager
def _start(python: str) -> Iterator[RayCluster]:
    variables = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_prestart_worker_first_driver": "0",
    }
    process, said = _launch(python, variables)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield RayCluster(python, variables=variables, process=process, **said)
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(60)


def _launch(
    python: str, variables: Mapping[str, str], *, is_last: bool = False
) -> "tuple[subprocess.Popen[str], dict[str, Any]]":
    """What keeps the cluster, and what it said first; tried twice, because Ray gives each node 30 s, busy or not."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "STOKER_"))}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [python, "-P", __file__],
            env={**inherited, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        if said := process.stdout.readline():
            return process, json.loads(said)
        process.communicate()
        if not is_last:
            return _launch(python, variables, is_last=True)
        errors.seek(0)
        raise AssertionError(f"{python} started no cluster: {errors.read()}")


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

    cluster = Cluster(
        initialize_head=True, head_node_args={**node(), "include_dashboard": False, "include_log_monitor": False}
    )
    for _ in range(2):
        cluster.add_node(wait=False, **node())
    cluster.wait_for_nodes(timeout=120)

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
