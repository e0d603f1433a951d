"""The SQLite store: the contract, and what is its own."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event, insert, text

from stoker.errors import StoreError
from stoker.schema.event import EventBatch
from stoker.server.store import tables
from stoker.server.store.dialect import open_sqlite
from stoker.server.store.store import Store, open_store
from stoker.server.store.values import LogFilter
from tests.contracts.store import StoreContract, add, log, say, texts


@pytest.fixture
def store(tmp_path: Path, empty_database: Path) -> Iterator[Store]:
    shutil.copyfile(empty_database, tmp_path / "stoker.db")
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


def test_batch_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    engine = open_sqlite(tmp_path / "stoker.db")
    store = Store(engine)
    run = add(store)
    with engine.begin() as connection:  # the second insert of a batch hits a wall
        connection.execute(
            text("CREATE TRIGGER wall BEFORE INSERT ON nodes BEGIN SELECT RAISE(ABORT, 'the disk is full'); END")
        )

    with pytest.raises(Exception, match="the disk is full"):
        store.append_events(run, EventBatch(events=(log(1, "half"),)), now=1.0)

    assert store.log_page("taxi", LogFilter()).blocks == ()
    store.close()


def test_database_that_fails_is_a_store_error_and_nothing_changes(tmp_path: Path) -> None:
    engine = open_sqlite(tmp_path / "stoker.db")
    store = Store(engine)
    run = add(store)
    engine.dispose()
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count=1"))
    noise = "".join(random.Random(1).choices("abcdefgh", k=100_000))

    with pytest.raises(StoreError, match=r"^The database failed: database or disk is full\.$") as caught:
        say(store, run, log(1, noise))

    assert caught.value.http_status == 503
    assert store.log_page("taxi", LogFilter()).blocks == ()
    store.close()


def test_database_survives_foreign_keys_and_uses_wal(tmp_path: Path) -> None:
    engine = open_sqlite(tmp_path / "stoker.db")
    Store(engine)

    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        with pytest.raises(Exception, match="FOREIGN KEY"):
            connection.execute(insert(tables.nodes).values(run=12345, node=0, acked=0))
    engine.dispose()
