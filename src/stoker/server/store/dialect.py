"""All that differs between databases: how to open one, and how one writer at a time is had."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from stoker.errors import UsageError
from stoker.server.store.postgres import open_postgres

_WRITES = "stoker_writes"

Writer = Callable[[], AbstractContextManager[Connection]]


def open_database(database: Path | str) -> Engine:
    """A SQLite file, or what a URL names: `postgresql://user@host:port/name`, `sqlite:///path`; UsageError."""
    if isinstance(database, Path):
        return open_sqlite(database)
    try:
        url = make_url(database)
    except (ArgumentError, ValueError):
        url = None
    match url and url.get_backend_name():
        case "postgresql" | "postgres" if url is not None:
            return open_postgres(url)
        case "sqlite" if url is not None and url.database:
            return open_sqlite(Path(url.database))
    raise UsageError(
        f"{database.partition('@')[2] or database!r} is not a database: give postgresql://USER@HOST:PORT/NAME"
        " or sqlite:///PATH."
    )


def reader_of(engine: Engine) -> Engine:
    """For transactions that read: all of one sees the same moment."""
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def open_sqlite(path: Path) -> Engine:
    """A database file, made if it is not there.

    WAL lets readers go on while one writes, and synchronous=NORMAL keeps what was committed through kill -9 of this
    process (a power cut may take the last moments, whose events supervisors then send again).
    """
    # A thread of the server's pool holds a connection for one short transaction; waiting for one would be a stall.
    engine = create_engine(f"sqlite:///{path}", pool_size=16, max_overflow=-1, connect_args={"timeout": 60.0})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def writer_of(engine: Engine) -> Writer:
    """A function that opens a transaction for writing."""
    # SQLite makes writers wait by sleeping and trying again, up to 100 ms at a time; a lock hands over at once.
    turn: AbstractContextManager[Any] = threading.Lock() if engine.dialect.name == "sqlite" else nullcontext()

    @contextmanager
    def write() -> Iterator[Connection]:
        with turn, engine.connect().execution_options(**{_WRITES: True}) as connection, connection.begin():
            yield connection

    return write


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where SQLAlchemy says, not where sqlite3 guesses
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "busy_timeout=60000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and writes later cannot wait for its turn in between, and fails: take it at once.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
