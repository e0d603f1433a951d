"""The SQLite store: the contract, and what is its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import insert, text, update

from stoker.errors import ServerError
from stoker.schema.event import EventBatch
from stoker.schema.state import RunState
from stoker.server.store import tables
from stoker.server.store.base import LogFilter, Store
from stoker.server.store.dialect import open_sqlite
from stoker.server.store.sql import SqlStore, open_store
from tests.contracts.store import StoreContract, add, finish, log, say, texts


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "stoker.db")
    yield store
    store.close()


class TestSqliteStore(StoreContract):
    """The contract on a file."""


def test_store_is_the_same_when_it_is_opened_again(tmp_path: Path) -> None:
    first = open_store(tmp_path / "stoker.db")
    run = add(first)
    say(first, run, log(1, "kept"))
    job = first.job("taxi")
    first.close()

    again = open_store(tmp_path / "stoker.db")

    assert again.job("taxi") == job
    assert say(again, run, log(1, "kept"), log(2, "more")) == 2
    assert texts(again.log_page("taxi", LogFilter())) == ["kept", "more"]
    again.close()


def test_store_of_another_version_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path / "stoker.db").close()
    engine = open_sqlite(tmp_path / "stoker.db")
    with engine.begin() as connection:
        connection.execute(update(tables.meta).values(value="99"))

    with pytest.raises(ServerError, match="written by another stoker"):
        SqlStore(engine)

    engine.dispose()


def test_store_from_before_searches_is_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "stoker.db"
    old = open_store(path)
    add(old, "going")
    finish(old, add(old, "gone"))
    jobs = [old.job(name) for name in ("going", "gone")]
    old.close()
    engine = open_sqlite(path)
    with engine.begin() as connection:
        connection.execute(text("DROP INDEX trials_open"))
        connection.execute(text("DROP INDEX trials_to_end"))
        connection.execute(text("DROP TABLE search_records"))
        for column in tables.ADDED_IN_2:
            connection.execute(text(f"ALTER TABLE {column.table.name} DROP COLUMN {column.name}"))
        connection.execute(update(tables.meta).values(value="1"))
    engine.dispose()

    new = open_store(path)

    assert [new.job(name) for name in ("going", "gone")] == jobs
    assert [(job.id, len(job.trials)) for job in new.unfinished()] == [("going", 1)]
    new.move_run("going.1.1", RunState.STARTING, now=500.0)
    new.move_run("going.1.1", RunState.SUCCEEDED, now=501.0)
    assert new.unfinished() == ()
    new.close()
    open_store(path).close()  # and once is enough


def test_batch_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    engine = open_sqlite(tmp_path / "stoker.db")
    store = SqlStore(engine)
    run = add(store)
    with engine.begin() as connection:  # the second insert of a batch hits a wall
        connection.execute(
            text("CREATE TRIGGER wall BEFORE INSERT ON nodes BEGIN SELECT RAISE(ABORT, 'the disk is full'); END")
        )

    with pytest.raises(Exception, match="the disk is full"):
        store.append_events(run, EventBatch(events=(log(1, "half"),)), now=1.0)

    assert store.log_page("taxi", LogFilter()).blocks == ()
    store.close()


def test_database_survives_foreign_keys_and_uses_wal(tmp_path: Path) -> None:
    engine = open_sqlite(tmp_path / "stoker.db")
    SqlStore(engine)

    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        with pytest.raises(Exception, match="FOREIGN KEY"):
            connection.execute(insert(tables.nodes).values(run=12345, node=0, acked=0))
    engine.dispose()
