"""Ray on hosts with networks of their own (namespaces): the server is reached from them; one is cut off for a while."""

import os
import secrets
import shutil
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from stoker.host.home import Home
from tests.e2e.ray_pool import home_of_nodes, pool_table
from tests.e2e.ray_training import Training
from tests.processes import wait_until
from tests.ray_cluster import IS_WHOLE, NOT_WHOLE, only_one, python_with_ray

PYTHON = python_with_ray()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None or not IS_WHOLE, reason=NOT_WHOLE),
    pytest.mark.skipif(os.getuid() != 0 or not shutil.which("ip"), reason="network namespaces need root and `ip`"),
]

CUT_S = 30.0
LEFTOVERS = """
    import ray, sys
    ray.init(address=sys.argv[1], namespace="stoker", log_to_driver=False, logging_level="ERROR")
    groups = [found["name"] for found in ray.util.placement_group_table().values() if found["state"] != "REMOVED"]
    print("LEFT", *groups, *(name for name in ray.util.list_named_actors() if "/agent/" not in name))
"""


@dataclass(frozen=True)
class Hosts:
    """A head here, and two hosts behind a bridge; each network has the same first three numbers."""

    python: str
    network: str
    port: int
    variables: dict[str, str]
    folder: Path

    @property
    def head(self) -> str:
        return f"{self.network}.1"

    @property
    def address(self) -> str:
        return f"{self.head}:{self.port}"

    def leftovers(self) -> list[str]:
        code = textwrap.dedent(LEFTOVERS)
        environment = {**os.environ, **self.variables}
        done = subprocess.run(
            [self.python, "-c", code, self.address], env=environment, capture_output=True, text=True, check=True
        )
        return next(line for line in done.stdout.splitlines() if line.startswith("LEFT")).split()[1:]

    def cut(self, host: int) -> None:
        _ip("link", "set", _cable(host), "down")

    def mend(self, host: int) -> None:
        _ip("link", "set", _cable(host), "up")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    assert PYTHON is not None
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    variables = {**token, "RAY_worker_niceness": "0", "RAY_prestart_worker_first_driver": "0"}
    network, port = f"10.77.{os.getpid() % 250}", 20000 + os.getpid() % 10000
    with only_one(), tempfile.TemporaryDirectory(prefix="ray") as folder, ExitStack() as stack:
        found = Hosts(PYTHON, network, port, variables, Path(folder))
        stack.enter_context(_network(found))
        head = ["--head", f"--port={found.port}", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={folder}"]
        stack.enter_context(_raylet(found, 1, *head))
        for host in (2, 3):
            stack.enter_context(_raylet(found, host, f"--address={found.address}", "--num-cpus=2"))
        yield found


@pytest.fixture
def nodes(home: Home, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    with home_of_nodes(home, hosts, monkeypatch) as nodes:
        home.config.write_text(f'listen = "{hosts.head}:0"\n' + pool_table(hosts, nodes.root))
        yield nodes


def test_job_ends_well_and_all_is_told_when_a_host_is_cut_off_for_a_while(
    home: Home, nodes: Home, hosts: Hosts, tmp_path: Path
) -> None:
    training = Training(home, nodes, hosts, tmp_path)
    assert training.client.health().url.startswith(f"http://{hosts.head}:"), "not loopback: nodes could not reach it"

    hosts.cut(3)
    time.sleep(CUT_S)
    hosts.mend(3)

    training.finish(runs=None)
    training.client.close()


@contextmanager
def _network(hosts: Hosts) -> Iterator[None]:
    bridge = _cable(0)
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{hosts.head}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for host in (2, 3):
            space = _space(host)
            _ip("netns", "add", space)
            _ip("link", "add", _cable(host), "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", _cable(host), "master", bridge, "up")
            _ip("-n", space, "addr", "add", f"{hosts.network}.{host}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
        yield
    finally:
        for host in (2, 3):
            subprocess.run(["ip", "netns", "del", _space(host)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)


@contextmanager
def _raylet(hosts: Hosts, host: int, *words: str) -> Iterator[None]:
    inside = ["ip", "netns", "exec", _space(host)] if host > 1 else []
    command = [*inside, str(Path(hosts.python).with_name("ray")), "start", "--block", "--disable-usage-stats", *words]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "STOKER_"))}
    process = subprocess.Popen(
        [*command, f"--node-ip-address={hosts.network}.{host}", "--object-store-memory=80000000"],
        env={**inherited, **hosts.variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        # One after the other: they choose the names of their sockets by what is there, in one file system.
        sockets = hosts.folder / "session_latest" / "sockets"
        wait_until(lambda: len([*sockets.glob("raylet*")]) == host or process.poll() is not None, what="a raylet")
        assert process.poll() is None, "it has ended"
        yield
    finally:
        process.terminate()
        process.wait(60)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _space(host: int) -> str:
    return f"stoker-{os.getpid()}-{host}"


def _cable(host: int) -> str:
    return f"sk{host}-{os.getpid()}"  # the kernel takes 15 characters
