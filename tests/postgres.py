"""A real PostgreSQL for tests: one cluster for all workers, a database for each test, nothing left behind."""

import contextlib
import fcntl
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from stoker.server.store.store import open_store

_TEMPLATE = "stoker_template"
_QUICK = ("fsync=off", "full_page_writes=off", "autovacuum=off", "max_connections=60")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A PostgreSQL that listens on a Unix socket in its own folder."""

    binaries: Path
    root: Path

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.root}"

    def make(self) -> None:
        self.root.mkdir(mode=0o755)
        if os.getuid() == 0:
            shutil.chown(self.root, "postgres", "postgres")
        self._run("initdb", "-D", str(self.root / "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        options = " ".join(f"-c {setting}" for setting in _QUICK)
        where = f"-c listen_addresses='' -c unix_socket_directories='{self.root}'"
        self._control("start", "-w", "-t", "60", "-l", str(self.root / "log"), "-o", f"{options} {where}")

    def stop(self, *, mode: str = "fast") -> None:
        self._control("stop", "-w", "-t", "60", "-m", mode)

    def is_running(self) -> bool:
        return (self.root / "data" / "postmaster.pid").exists()

    def execute(self, words: str, *, database: str = "postgres") -> list[tuple[object, ...]]:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(words.encode())
            return cursor.fetchall() if cursor.description else []

    def create(self, *, template: str = _TEMPLATE) -> str:
        """A new database's name."""
        name = f"test_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop(self, name: str) -> None:
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _control(self, *words: str) -> None:
        self._run("pg_ctl", "-D", str(self.root / "data"), *words)

    def _run(self, program: str, *words: str) -> None:
        command = [str(self.binaries / program), *words]
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]
        # Into a file: a server that pg_ctl starts would hold a pipe open for ever.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                command, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=120, check=False
            )
            output.seek(0)
            assert done.returncode == 0, f"{program}: {output.read().decode()}"


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster that all tests share; the last worker to leave ends it."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    folder = Path(tempfile.gettempdir()) / f"stoker-pg-{os.getuid()}-{_short(shared)}"
    with _lock(shared / "postgres.lock"):
        cluster = Cluster(_binaries(), folder)
        users = (shared / "postgres.users").open("w")
        fcntl.flock(users, fcntl.LOCK_SH)
        if not cluster.root.exists():
            cluster.make()
        if not cluster.is_running():
            cluster.start()
        if not cluster.execute(f"SELECT 1 FROM pg_database WHERE datname = '{_TEMPLATE}'"):
            cluster.execute(f"CREATE DATABASE {_TEMPLATE}")
            open_store(cluster.url(_TEMPLATE)).close()
    yield cluster
    with _lock(shared / "postgres.lock"), contextlib.suppress(BlockingIOError):
        fcntl.flock(users, fcntl.LOCK_UN)
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        cluster.stop(mode="immediate")
        shutil.rmtree(cluster.root)
    users.close()


@pytest.fixture
def database(postgres: Cluster) -> Iterator[str]:
    """The URL of a database with the newest tables, empty."""
    name = postgres.create()
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
def own_postgres(postgres: Cluster) -> Iterator[Cluster]:
    """A cluster that a test may restart."""
    root = Path(tempfile.mkdtemp(prefix="stoker-pg-")) / "own"
    root.parent.chmod(0o755)
    cluster = Cluster(postgres.binaries, root)
    cluster.make()
    cluster.start()
    cluster.execute("CREATE DATABASE stoker")
    yield cluster
    if cluster.is_running():
        cluster.stop(mode="immediate")
    shutil.rmtree(root.parent)


def _binaries() -> Path:
    """Where initdb is. `make test` installs it where it may; without it the test is skipped."""
    found = _find()
    if found is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    if os.getuid() == 0 and not _has_user("postgres"):
        pytest.skip("PostgreSQL does not run as root, and there is no user 'postgres'")
    return found


def _find() -> Path | None:
    if (program := shutil.which("initdb")) is not None:
        return Path(program).resolve().parent
    return max((path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")), default=None)


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _short(path: Path) -> str:
    """A Unix socket's path may have a hundred characters: a number for this one will do."""
    return f"{path.stat().st_ino:x}"


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
