"""PostgreSQL: one server at a time owns a database.

A session-wide advisory lock says who owns the database, but it is gone with its connection, whoever cut that. So the
owner also writes its name into `meta`, and every transaction that writes looks there first: a server whose place was
taken cannot write any more. Whoever takes the place locks `meta` for a moment, which waits for transactions that have
looked already.
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from stoker.errors import ConflictError, ServerError, StoreError, UsageError
from stoker.server.store.failures import LOST_WAIT_S, first_line, is_lost, transaction

_LOCK = 0x73746F6B6572  # "stoker"
_TAKE_WAIT_S = 5.0  # the last owner's connection may be on its way out
_LOOK_S = 0.1


def open_postgres(url: URL) -> Engine:
    """UsageError if psycopg is not installed, or nothing that we can use answers there."""
    try:
        import psycopg  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise UsageError("PostgreSQL needs psycopg: install it with `pip install 'stoker[postgres]'`.") from error
    # Requests are answered by some forty threads; PostgreSQL allows a hundred connections in all, as it comes.
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_size=8,
        max_overflow=24,
        pool_timeout=LOST_WAIT_S,
        connect_args={"application_name": "stoker", "connect_timeout": 10, "keepalives_idle": 30},
    )
    try:
        engine.connect().close()
    except DBAPIError as error:
        engine.dispose()
        raise UsageError(f"The database {shown(url)} cannot be opened: {first_line(error)}") from error
    return engine


def shown(url: URL) -> str:
    """Without its password."""
    return url.set(drivername="postgresql").render_as_string(hide_password=True)


class Ownership:
    """That this process alone writes to a database."""

    def __init__(self, engine: Engine, *, home: str = "") -> None:
        """ConflictError if another server has it."""
        self._engine = engine
        who = {"token": uuid.uuid4().hex, "host": socket.gethostname(), "pid": os.getpid(), "home": home}
        self.name = json.dumps(who)
        self._connection: Connection | None = None
        if not self._take(wait_s=_TAKE_WAIT_S):
            raise ConflictError(
                f"The database {shown(engine.url)} {self._who_has_it()}. One at a time: end that first."
            )

    def claim(self, connection: Connection) -> None:
        """Write our name, once the tables are there and before anything else is written."""
        connection.execute(text("LOCK TABLE meta IN ACCESS EXCLUSIVE MODE"))
        connection.execute(text("DELETE FROM meta WHERE key = 'owner'"))
        connection.execute(text("INSERT INTO meta (key, value) VALUES ('owner', :name)"), {"name": self.name})

    def keep(self) -> bool:
        """Hold on to the lock, if need be by a new connection; False if the place was taken. True while none knows."""
        try:
            if self._connection is not None:
                self._connection.execute(text("SELECT 1"))
                self._connection.commit()
                return True
        except DBAPIError:
            self.close()
        try:
            return self._take(wait_s=0.0) and self._is_in_place()
        except DBAPIError as error:
            if is_lost(error):
                return True
            raise

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(DBAPIError):
                self._connection.invalidate()  # closed, not given back: the lock is the session's
                self._connection.close()
            self._connection = None

    def _take(self, *, wait_s: float) -> bool:
        connection = self._engine.connect()
        deadline = time.monotonic() + wait_s
        while not connection.execute(text(f"SELECT pg_try_advisory_lock({_LOCK})")).scalar_one():
            connection.commit()
            if time.monotonic() >= deadline:
                connection.close()
                return False
            time.sleep(_LOOK_S)
        connection.commit()
        self._connection = connection
        return True

    def _is_in_place(self) -> bool:
        with self._engine.connect() as connection:
            return connection.execute(_OWNER).scalar_one_or_none() == self.name

    def _who_has_it(self) -> str:
        try:
            with self._engine.connect() as connection:
                who = json.loads(connection.execute(_OWNER).scalar_one())
            return f"is used by a server of {who['home']} (pid {who['pid']} on {who['host']})"
        except (DBAPIError, ValueError, KeyError, ServerError):
            return "is used by another server"


_OWNER = text("SELECT value FROM meta WHERE key = 'owner'")
_BEGIN = text("SELECT value, pg_current_xact_id()::text AS id FROM meta WHERE key = 'owner'")


def owned_writer(engine: Engine, owner: Ownership) -> Callable[[], contextlib.AbstractContextManager[Connection]]:
    """A function that opens a transaction for writing: one at a time, and only while the database is ours.

    If the connection is lost while it commits, the database is asked what became of it: the transaction has then
    ended well after all, or the error says that it did not happen.
    """
    turn = threading.Lock()

    @contextmanager
    def write() -> Iterator[Connection]:
        with turn, engine.connect() as connection:
            transaction = connection.begin()
            try:
                found = connection.execute(_BEGIN).one_or_none()
                if found is None or found.value != owner.name:
                    raise StoreError(f"Another server has taken the database {shown(engine.url)}: this one has to end.")
                yield connection
            except BaseException:
                transaction.rollback()
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                if not is_lost(error) or not _was_committed(engine, found.id):
                    raise

    return write


def _was_committed(engine: Engine, number: str) -> bool:
    return transaction(_ask_if_committed)(engine, number)


def _ask_if_committed(engine: Engine, number: str) -> bool:
    query = text("SELECT pg_xact_status(CAST(:id AS xid8))")
    while True:
        with engine.connect() as connection:
            status = connection.execute(query, {"id": number}).scalar_one()
        if status != "in progress":
            return bool(status == "committed")
        time.sleep(_LOOK_S)
