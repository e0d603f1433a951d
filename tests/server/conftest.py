"""A home, a clock, an engine without processes, and a real server on loopback around them."""

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn

from stoker.client.client import Client
from stoker.host.home import Home, ServerAddress
from stoker.schema.job import Share
from stoker.schema.pool import Pool
from stoker.server.app import Server, create_app
from stoker.server.live.wakeups import Wakeups
from stoker.server.scheduling.scheduler import Scheduler
from stoker.server.settings import Settings
from stoker.server.store.store import Store, open_store
from tests.postgres import database, own_postgres, postgres
from tests.processes import wait_until
from tests.server.fakes import AtOnce, FakeClock, FakeEngine

__all__ = ["database", "own_postgres", "postgres"]  # fixtures, for the tests here

TOKEN = "secret-of-the-test"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("STOKER_SERVER", raising=False)
    return Home(tmp_path / "home").make()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the newest tables: a copy takes a thousandth of what making them does."""
    path = tmp_path_factory.mktemp("empty") / "stoker.db"
    open_store(path).close()
    return path


@pytest.fixture
def store(home: Home, empty_database: Path) -> Iterator[Store]:
    shutil.copyfile(empty_database, home.database)
    store = open_store(home.database)
    yield store
    store.close()


@pytest.fixture
def pool() -> Pool:
    return Pool(name="local", capacity=Share(cpus=2, memory_gb=8, gpus=0))


@pytest.fixture
def settings(pool: Pool) -> Settings:
    return Settings(pools={"local": pool}, default_pool="local", idle_exit_s=900.0, max_package_bytes=1_000_000)


@pytest.fixture
def wakeups() -> Wakeups:
    return Wakeups()


@pytest.fixture
def scheduler(
    store: Store, engine: FakeEngine, settings: Settings, home: Home, clock: FakeClock, wakeups: Wakeups
) -> Scheduler:
    engines = {"local": engine}
    return Scheduler(
        store, engines=engines, pools=settings.pools, home=home, wakeups=wakeups, now=clock, background=AtOnce()
    )


@dataclass(frozen=True, slots=True)
class Served:
    """A server that answers."""

    address: ServerAddress
    left: threading.Event  # somebody asked it to end

    @property
    def port(self) -> int:
        return int(self.address.url.rpartition(":")[2])


@pytest.fixture
def served(
    store: Store, scheduler: Scheduler, settings: Settings, home: Home, clock: FakeClock, wakeups: Wakeups
) -> Iterator[Served]:
    left = threading.Event()
    parts = Server(
        store=store,
        scheduler=scheduler,
        wakeups=wakeups,
        settings=settings,
        home=home,
        token=TOKEN,
        owner="ada",
        shutdown=left.set,
        now=clock,
    )
    with serving(parts) as url:
        yield Served(ServerAddress(url=url, token=TOKEN, pid=0), left)


@contextmanager
def serving(parts: Server) -> Iterator[str]:
    """The app behind uvicorn in a thread; its url."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(create_app(parts), log_config=None, log_level="warning", ws="none", lifespan="on")
    web = uvicorn.Server(config)
    thread = threading.Thread(target=web.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    wait_until(lambda: web.started or not thread.is_alive(), what="the server to listen")
    assert web.started
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        parts.wakeups.close()
        web.should_exit = True
        thread.join(timeout=60)
        listener.close()


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    client = Client(served.address)
    yield client
    client.close()
