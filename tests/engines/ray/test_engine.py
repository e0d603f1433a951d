"""The Ray engine on a real cluster: the contract, several nodes, and what is its own."""

import json
from collections.abc import Callable, Iterator

import pytest

from stoker.engines.base import Engine
from stoker.engines.ray.engine import RayEngine
from stoker.errors import StokerError
from stoker.host.home import Home
from stoker.run_dir import RunDir
from stoker.schema.launch import Launch
from stoker.schema.pool import RayPool
from tests.contracts.engine import SLEEP, EngineContract, kill
from tests.ray_cluster import IS_WHOLE, NOT_WHOLE, RayCluster, python_with_ray, start

PYTHON = python_with_ray()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None or not IS_WHOLE, reason=NOT_WHOLE),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    assert PYTHON is not None
    with start(PYTHON) as cluster:
        yield cluster


class TestRayEngine(EngineContract):
    @pytest.fixture
    def another(self, home: Home, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Engine]:
        for name, value in cluster.variables.items():
            monkeypatch.setenv(name, value)
        return lambda: RayEngine(home, "cluster", settings(cluster, home))

    @pytest.fixture(autouse=True)
    def nothing_is_left(self, home: Home, cluster: RayCluster) -> Iterator[None]:
        yield
        assert cluster.leftovers() == []

    def run_dir(self, home: Home, launch: Launch) -> RunDir:
        return node_home(home).run_dir(launch.job, launch.trial, launch.attempt)

    def kill_supervisor(self, home: Home, launch: Launch) -> None:
        kill(json.loads(self.run_dir(home, launch).processes.read_text())["supervisor"]["pid"])

    def test_run_that_cannot_be_started_raises(self, engine: Engine, launch: Callable[..., Launch], home: Home) -> None:
        run = launch(SLEEP)
        directory = home.run_dir(run.job, run.trial, run.attempt).path
        directory.parent.mkdir(parents=True)
        directory.write_text("a file is in the way")

        with pytest.raises(StokerError, match=run.run):
            engine.submit(run)


def settings(cluster: RayCluster, home: Home) -> RayPool:
    import sys

    return RayPool(
        address=cluster.address, python=cluster.python, node_python=sys.executable, home=str(node_home(home).root)
    )


def node_home(home: Home) -> Home:
    return Home(home.root.parent / "nodes")
