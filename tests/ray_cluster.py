"""A real Ray cluster of three nodes on this machine, for tests: one head and two more raylets, two CPUs each.

`start` runs this very file with a Python that has Ray (`make test` makes one), which keeps the cluster until its
standard input ends. At most one is kept on a machine at a time, whoever runs tests there.
"""

import fcntl
import itertools
import json
import os
import secrets
import signal
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
    dashboard: str  # HOST:PORT, if it has one
    variables: Mapping[str, str]
    process: "subprocess.Popen[str]"

    def ask(self, question: str, **arguments: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"ask": question, **arguments}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def add_node(self, **has: Any) -> int:
        """The pid of a new node's raylet; `has` is what Ray is to believe of it: num_gpus, memory, resources."""
        self.raylets.append(int(self.ask("add", has=has)))
        return self.raylets[-1]

    def kill_head(self) -> None:
        """kill -9 of what knows the cluster (the GCS); the rest of it ends some time after."""
        self.ask("kill head")

    def renew(self) -> None:
        """Another cluster, at the same address."""
        self.raylets[:] = self.ask("renew")

    def raylet_at(self, address: str) -> int:
        for pid in self.raylets:
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # one that was killed
            if f"--node_ip_address={address}".encode() in words:
                return pid
        raise AssertionError(f"no raylet at {address}")

    def leftovers(self) -> list[str]:
        """The names of placement groups and detached actors that are there, but for the agents, which wait for more."""
        return list(self.ask("leftovers"))


def python_with_ray() -> str | None:
    """Only where one was named: it is not for tests to look for it."""
    named = os.environ.get("STOKER_RAY_PYTHON")
    return str(Path(named).absolute()) if named else None


@contextmanager
def only_one() -> Iterator[None]:
    """Wait until no other cluster is kept on this machine: two cores do not bear two, and workers would start four."""
    descriptor = os.open("/tmp", os.O_RDONLY)  # a folder can be locked too, and no file is left
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def start(python: str, *, with_dashboard: bool = False) -> Iterator[RayCluster]:
    """`with_dashboard` is for `ray job submit`, which speaks to it."""
    with only_one(), _start(python, {"DASHBOARD": "1"} if with_dashboard else {}) as cluster:
        yield cluster


@contextmanager
def _start(python: str, wishes: Mapping[str, str]) -> Iterator[RayCluster]:
    variables = {
        **wishes,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_prestart_worker_first_driver": "0",
        "RAY_worker_niceness": "0",  # not 15: on a busy machine such a worker does not get to run for minutes
        "RAY_gcs_rpc_server_reconnect_timeout_s": "20",  # how long a cluster without its head waits to end: not 60 s
        "RAY_raylet_start_wait_time_s": "180",  # not 30: a busy machine takes longer to start a node
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


class _Keeper:
    """The cluster, and the answers to what is asked about it."""

    def __init__(self) -> None:
        # Loopback addresses of their own, as if they were hosts. Not 127.0.0.1: Ray takes that for the machine's.
        self._hosts = itertools.count(2)
        self._begin()

    def _begin(self, *, port: int = 0) -> None:
        from ray.cluster_utils import Cluster

        head = {
            "include_dashboard": "DASHBOARD" in os.environ,
            "include_log_monitor": False,
            "gcs_server_port": port,
            "dashboard_agent_listen_port": 0,  # a free one: another cluster on this machine may have Ray's
        }
        self._cluster = Cluster(initialize_head=True, head_node_args={**self._node(), **head})
        for _ in range(2):
            self._cluster.add_node(wait=False, **self._node())
        self._cluster.wait_for_nodes(timeout=120)
        self.address = str(self._cluster.address)
        self.dashboard = str(self._cluster.webui_url or "")

    def _node(self) -> dict[str, Any]:
        return {"num_cpus": 2, "object_store_memory": 80_000_000, "node_ip_address": f"127.0.0.{next(self._hosts)}"}

    @property
    def raylets(self) -> list[int]:
        return [_raylet(node) for node in (self._cluster.head_node, *self._cluster.worker_nodes)]

    def answer(self, question: str, *, has: Mapping[str, Any] | None = None) -> object:
        match question:
            case "add":
                return _raylet(self._cluster.add_node(wait=True, **{**self._node(), **(has or {})}))
            case "leftovers":
                return self._leftovers()
            case "kill head":
                return self._kill_head()
            case "renew":
                host, _, port = self.address.partition(":")
                for node in (*self._cluster.worker_nodes, self._cluster.head_node):
                    node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
                self._hosts = itertools.count(int(host.rpartition(".")[2]))
                self._begin(port=int(port))
                return self.raylets
        raise AssertionError(question)

    def _leftovers(self) -> list[str]:
        import ray

        if not ray.is_initialized():
            ray.init(address=self.address, namespace="stoker", log_to_driver=False)
        groups = [found["name"] for found in ray.util.placement_group_table().values() if found["state"] != "REMOVED"]
        return groups + [name for name in ray.util.list_named_actors() if "/agent/" not in name]

    def _kill_head(self) -> None:
        import ray

        ray.shutdown()  # or it would end us with itself
        os.kill(self._cluster.head_node.all_processes["gcs_server"][0].process.pid, signal.SIGKILL)

    def close(self) -> None:
        self._cluster.shutdown()


def keep() -> None:
    said = os.dup(1)
    os.dup2(2, 1)  # Ray prints
    out = os.fdopen(said, "w")

    def tell(answer: object) -> None:
        out.write(json.dumps(answer) + "\n")
        out.flush()

    keeper = _Keeper()
    tell({"address": keeper.address, "raylets": keeper.raylets, "dashboard": keeper.dashboard})
    for line in sys.stdin:
        asked = json.loads(line)
        tell(keeper.answer(asked["ask"], has=asked.get("has")))
    keeper.close()


def _raylet(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


if __name__ == "__main__":
    keep()
