"""A home of its own for every end-to-end test, and its server and runs ended at the end."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.client.client import Client, connect, is_alive
from stoker.host.home import Home
from tests.e2e.ray_pool import cluster, nodes
from tests.postgres import database, own_postgres, postgres
from tests.processes import kill_all_with_environment, wait_until

__all__ = ["cluster", "database", "nodes", "own_postgres", "postgres"]  # fixtures, for the tests here


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    root = tmp_path / "home"
    monkeypatch.setenv("STOKER_HOME", str(root))
    monkeypatch.delenv("STOKER_SERVER", raising=False)
    home = Home(root).make()
    yield home
    kill_server(home)
    kill_all_with_environment("STOKER_HOME", str(root))
    kill_all_with_environment("STOKER_RUN_DIR", str(root), prefix=True)


@pytest.fixture
def client(home: Home) -> Iterator[Client]:
    client = connect(home)
    yield client
    client.close()


def kill_server(home: Home) -> None:
    """kill -9, and wait until it is really gone."""
    address = home.server()
    if address is None:
        return
    try:
        os.kill(address.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    wait_until(lambda: not is_alive(address), what="the server to be gone")
