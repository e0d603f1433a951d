"""What a user is told of a cluster that cannot be had: one line that says what to do."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.engines.ray.engine import RayEngine
from stoker.errors import StokerError
from stoker.host.home import Home
from stoker.schema.pool import RayPool
from tests.processes import kill_all_with_environment
from tests.ray_cluster import IS_WHOLE, NOT_WHOLE, RayCluster, python_with_ray, start

PYTHON = python_with_ray()
pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path))
    yield Home(tmp_path)
    kill_all_with_environment("STOKER_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    if PYTHON is None or not IS_WHOLE:
        pytest.skip(NOT_WHOLE)
    with start(PYTHON) as cluster:
        yield cluster


def trouble(home: Home, *, address: str, python: str | None = None) -> str:
    with pytest.raises(StokerError) as told:
        RayEngine(home, "cluster", RayPool(address=address, python=python)).nodes()
    assert "\n" not in str(told.value)
    return str(told.value)


def test_head_that_does_not_answer_is_told(home: Home) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"

        told = trouble(home, address=address)

    assert told.startswith(f"Pool 'cluster': Nothing answers at {address}: Connection refused.")
    assert "ray status" in told


def test_head_whose_name_nobody_knows_is_told(home: Home) -> None:
    told = trouble(home, address="no-such-head.invalid:6379")

    assert told.startswith("Pool 'cluster': Nothing answers at no-such-head.invalid:6379: ")


def test_python_without_ray_is_told(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told = trouble(home, address=f"127.0.0.1:{listener.getsockname()[1]}", python=sys.executable)

    assert f"{sys.executable} has no module 'ray'" in told
    assert "pip install" in told


def test_python_that_is_not_there_is_told(home: Home) -> None:
    told = trouble(home, address="127.0.0.1:1", python="/nowhere/python")

    assert told == "Pool 'cluster': cannot start /nowhere/python: No such file or directory."


def test_wrong_token_is_told(home: Home, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cluster.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)

    told = trouble(home, address=cluster.address, python=cluster.python)

    assert f"The cluster at {cluster.address} did not take us in: it is no Ray head, or its token is another" in told
    assert "RAY_AUTH_TOKEN" in told


def test_token_is_found_where_ray_start_finds_it(
    home: Home, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text(cluster.variables["RAY_AUTH_TOKEN"])
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)

    nodes = RayEngine(home, "cluster", RayPool(address=cluster.address, python=cluster.python)).nodes()

    assert len(nodes) == 3


@pytest.mark.parametrize(
    ("as_if", "version"),
    [
        ("import ray; ray.__version__ = '2.59.1'", "2.59.1"),
        ("import ray._private.utils as u; u.compute_version_info = lambda: ('2.60.0', '3.10.1')", "3.10.1"),
    ],
)
def test_other_versions_than_the_clusters_are_told(
    home: Home, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, as_if: str, version: str
) -> None:
    for name, value in cluster.variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "sitecustomize.py").write_text(as_if)
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec {cluster.python} "$@"\n')
    os.chmod(other, 0o755)

    told = trouble(home, address=cluster.address, python=str(other))

    assert version in told
    assert "The cluster was started with: Ray: 2." in told
    assert "Set python under the pool to a Python with the cluster's versions" in told
