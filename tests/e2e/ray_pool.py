"""A home whose one pool is a real Ray cluster, for end-to-end tests; and what must be true there in the end."""

import contextlib
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from stoker.client.client import Client
from stoker.host.home import Home
from tests.processes import kill_all_with_environment, processes_with_environment, wait_until
from tests.ray_cluster import RayCluster, python_with_ray, start


class Cluster(Protocol):
    """What a pool is to know of one, and the variables by which it is reached."""

    @property
    def address(self) -> str: ...
    @property
    def python(self) -> str: ...
    @property
    def variables(self) -> dict[str, str]: ...


class Remains(Protocol):
    """A cluster that can say what is left on it."""

    def leftovers(self) -> list[str]: ...


TWO_NODES = "trainingInput: {scaleTier: CUSTOM, masterType: n1-standard-1, workerType: n1-standard-1, workerCount: 1}\n"


@contextmanager
def ray_pool(home: Home, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch, *, more: str = "") -> Iterator[Home]:
    """The home of the nodes of the one pool."""
    with home_of_nodes(home, cluster, monkeypatch) as nodes:
        home.config.write_text(pool_table(cluster, nodes.root) + textwrap.dedent(more))
        yield nodes


@contextmanager
def home_of_nodes(home: Home, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """The home of the nodes; all that runs from it is ended with it."""
    for name, value in cluster.variables.items():
        monkeypatch.setenv(name, value)
    folder = home.root.parent / "nodes"
    yield Home(folder)
    kill_all_with_environment("STOKER_HOME", str(folder))
    kill_all_with_environment("STOKER_RUN_DIR", str(folder), prefix=True)


def pool_table(cluster: Cluster, nodes: Path) -> str:
    return textwrap.dedent(f"""
        [pools.cluster]
        engine = "ray"
        address = "{cluster.address}"
        python = "{cluster.python}"
        node_python = "{sys.executable}"
        home = "{nodes}"
        placement = "spread"
    """)


def wait_ready(client: Client, *, cpus: int = 6) -> None:
    """Until the server knows its cluster, whole."""
    wait_until(lambda: client.pools()[0].capacity.cpus >= cpus, what="the cluster to be known", deadline_s=180)


def assert_nothing_is_left(cluster: Remains, nodes: Home) -> None:
    """No placement group, no actor, no supervisor, no process of user code."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: cluster.leftovers() == [], what="nothing to be left on the cluster")
    left = cluster.leftovers()
    assert left == [], left
    wait_until(lambda: not processes_with_environment("STOKER_HOME", str(nodes.root)), what="supervisors to have ended")
    assert processes_with_environment("STOKER_RUN_DIR", str(nodes.root), prefix=True) == []


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    python = python_with_ray()
    assert python is not None
    with start(python) as cluster:
        yield cluster


@pytest.fixture
def nodes(home: Home, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home with the cluster as its pool; this is where the runs are."""
    with ray_pool(home, cluster, monkeypatch) as nodes:
        yield nodes
