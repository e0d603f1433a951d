"""Copy all that a server keeps from one database into another: in one transaction there, and read back."""

import fcntl
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, func, insert, select, text
from sqlalchemy.exc import DBAPIError

from stoker.errors import ConflictError, ServerError, UsageError
from stoker.server.store.dialect import open_database, reader_of, writer_of
from stoker.server.store.migrate import known_revisions, migrate, revision_of
from stoker.server.store.postgres import Ownership, shown
from stoker.server.store.tables import meta, metadata

_ROWS = 1000  # at once

Step = Callable[[str, int, int], None]  # a table, and how many of its rows are done of how many


def copy_all(source: Path | str, target: Path | str, *, step: Step = lambda table, done, total: None) -> dict[str, int]:
    """Rows of each table that were copied.

    UsageError if the target holds anything, ConflictError if a server uses either. Whatever happens, the source stays
    as it was, and the target is what was asked for or what it was.
    """
    _check_there(source)
    with ExitStack() as stack:
        from_engine = stack.enter_context(_held(source))
        to_engine = stack.enter_context(_held(target))
        reading = stack.enter_context(reader_of(from_engine).connect())
        with _writing(to_engine) as writing:
            _check_source(reading, from_engine)
            migrate(writing)
            _check_empty(writing, to_engine)
            return {table.name: _copy(table, reading, writing, step) for table in _tables()}


def _tables() -> list[Table]:
    """Those that are referred to come first. `meta` is each database's own."""
    return [table for table in metadata.sorted_tables if table is not meta]


def _check_there(source: Path | str) -> None:
    """SQLite makes what is not there."""
    path = _file(source)
    if path is not None and not path.exists():
        raise UsageError(f"There is no database {path}. Give the one to copy with --from sqlite:///PATH.")


@contextmanager
def _held(database: Path | str) -> Iterator[Engine]:
    """Opened, with its server kept away: what that wrote meanwhile would be lost."""
    path = _file(database)
    engine = open_database(database)
    try:
        with _kept_from_server(path) if path is not None else closing(Ownership(engine, home="copy-store")):
            yield engine
    finally:
        engine.dispose()


@contextmanager
def _kept_from_server(path: Path) -> Iterator[None]:
    lock = path.parent / "server.lock"
    if not lock.exists():
        yield
        return
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConflictError(f"A server uses {path}. End it first, with `stoker server stop`.") from error
        yield


def _file(database: Path | str) -> Path | None:
    if isinstance(database, Path):
        return database
    return Path(database.removeprefix("sqlite:///")) if database.startswith("sqlite:///") else None


@contextmanager
def _writing(engine: Engine) -> Iterator[Connection]:
    with writer_of(engine)() as connection:
        yield connection


def _check_source(connection: Connection, engine: Engine) -> None:
    found, newest = revision_of(connection), known_revisions()[-1]
    if found != newest:
        raise UsageError(
            f"{_name(engine)} has schema {found or 'of an older stoker or none'}, and {newest} is needed. Start this"
            " stoker's server on it once (`stoker server start`), which takes it along; end that; copy then."
        )


def _check_empty(connection: Connection, engine: Engine) -> None:
    full = [table.name for table in _tables() if connection.execute(select(table).limit(1)).first() is not None]
    if full:
        raise UsageError(f"{_name(engine)} is not empty: {', '.join(full)} have rows. Copy into a new database.")


def _copy(table: Table, source: Connection, target: Connection, step: Step) -> int:
    total = source.execute(select(func.count()).select_from(table)).scalar_one()
    read, done = hashlib.sha256(), 0
    step(table.name, 0, total)
    for rows in _chunks(table, source):
        _add(read, rows)
        try:
            target.execute(insert(table), [row._asdict() for row in rows])
        except DBAPIError as error:
            raise ServerError(f"Table {table.name} cannot be copied: {str(error.orig).splitlines()[0]}") from error
        done += len(rows)
        step(table.name, done, total)
    _check_same(table, target, read.digest(), done)
    if target.dialect.name == "postgresql":
        _continue_numbers(table, target)
    return done


def _check_same(table: Table, target: Connection, expected: bytes, count: int) -> None:
    written, found = hashlib.sha256(), 0
    for rows in _chunks(table, target):
        _add(written, rows)
        found += len(rows)
    if (found, written.digest()) != (count, expected):
        raise ServerError(f"Table {table.name} was not read back as it was written ({found} rows of {count}).")


def _chunks(table: Table, connection: Connection) -> Iterator[Sequence[Any]]:
    query = select(table).order_by(*table.primary_key.columns).execution_options(yield_per=_ROWS)
    with connection.execute(query) as result:
        yield from result.partitions()


def _add(digest: Any, rows: Sequence[Any]) -> None:
    for row in rows:
        # PostgreSQL keeps no NUL: see `tables.Words`.
        digest.update(repr(tuple(row)).replace("\\x00", "\N{REPLACEMENT CHARACTER}").encode())


def _continue_numbers(table: Table, connection: Connection) -> None:
    """The next row is numbered after those that brought their own numbers."""
    column = table.autoincrement_column
    if column is not None:
        words = f"SELECT setval(pg_get_serial_sequence('{table.name}', '{column.name}'), max({column.name}))"
        connection.execute(text(f"{words} FROM {table.name} HAVING max({column.name}) IS NOT NULL"))


def _name(engine: Engine) -> str:
    return str(engine.url.database) if engine.dialect.name == "sqlite" else shown(engine.url)
