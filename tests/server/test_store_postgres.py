"""The PostgreSQL store: the contract, and what is its own."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from stoker.errors import ConflictError, ServerError, UsageError
from stoker.schema.state import JobState, RunState
from stoker.server.store.dialect import open_database
from stoker.server.store.migrate import known_revisions, revision_of, upgrade
from stoker.server.store.store import Store, open_store
from stoker.server.store.values import LogFilter
from tests.contracts.store import StoreContract, add, finish, log, say, texts
from tests.postgres import Cluster
from tests.server.test_store_migrations import differences

pytestmark = pytest.mark.slow


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    store = open_store(database)
    yield store
    store.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner is known to stay: no need to wait for its end."""
    monkeypatch.setattr("stoker.server.store.postgres._TAKE_WAIT_S", 0.0)


class TestPostgresStore(StoreContract):
    """The contract on a database."""


def test_steps_from_nothing_lead_to_the_tables(postgres: Cluster) -> None:
    name = postgres.create(template="template0")
    engine = open_database(postgres.url(name))

    with engine.begin() as connection:
        upgrade(connection)

    assert differences(engine) == []
    with engine.connect() as connection:
        assert revision_of(connection) == known_revisions()[-1]
    engine.dispose()
    postgres.drop(name)


def test_second_server_is_refused_and_the_next_one_is_not(database: str, impatient: None) -> None:
    first = open_store(database, home="/home/ada")
    add(first)

    with pytest.raises(ConflictError, match=r"is used by a server of /home/ada \(pid \d+ on .*end that first"):
        open_store(database)

    first.close()
    second = open_store(database)
    assert second.job("taxi").state is JobState.QUEUED
    second.close()


def test_server_whose_place_was_taken_writes_no_more(database: str, postgres: Cluster) -> None:
    first = open_store(database)
    run = add(first)
    cut_all_connections(postgres, database)
    second = open_store(database)

    with pytest.raises(ServerError, match="Another server has taken the database"):
        say(first, run, log(1, "too late"))

    assert not first.is_ours()
    assert second.is_ours()
    assert texts(second.log_page("taxi", LogFilter())) == []
    first.close()
    second.close()


def test_server_keeps_its_place_through_a_lost_connection(database: str, postgres: Cluster, impatient: None) -> None:
    store = open_store(database)
    run = add(store)
    cut_all_connections(postgres, database)

    assert store.is_ours()
    assert say(store, run, log(1, "heard")) == 1

    with pytest.raises(ConflictError):
        open_store(database)
    store.close()


def test_what_is_asked_of_a_database_that_restarts_is_done_once(own_postgres: Cluster) -> None:
    store = open_store(own_postgres.url("stoker"))
    run = add(store)
    own_postgres.stop()
    acked: list[int] = []
    writers = [
        threading.Thread(target=lambda: acked.append(say(store, run, log(1, "one"), log(2, "two")))) for _ in range(4)
    ]
    for writer in writers:
        writer.start()

    own_postgres.start()

    for writer in writers:
        writer.join(60)
    assert acked == [2, 2, 2, 2]
    assert texts(store.log_page("taxi", LogFilter())) == ["one", "two"]
    finish(store, run)
    assert store.is_ours()
    store.close()


@pytest.mark.parametrize("came_through", [True, False])
def test_commit_whose_answer_was_lost_is_asked_after(
    database: str, postgres: Cluster, monkeypatch: pytest.MonkeyPatch, came_through: bool
) -> None:
    engine = open_database(database)
    store = Store(engine)
    run = add(store)
    commit = engine.dialect.do_commit
    commits = []

    def lose_the_first(pooled: Any) -> None:
        """The database has it or not, and we hear nothing of it."""
        commits.append(pooled)
        if len(commits) == 1:
            connection = pooled.dbapi_connection
            if came_through:
                connection.commit()
            postgres.execute(f"SELECT pg_terminate_backend({connection.info.backend_pid})")
            connection.execute("SELECT 1")
        commit(pooled)

    monkeypatch.setattr(engine.dialect, "do_commit", lose_the_first)

    # A run that has become STARTING cannot become so again: to do it twice would be seen.
    store.move_run(run, RunState.STARTING, now=1.0)

    assert commits
    assert store.run(run).state is RunState.STARTING
    store.close()


def test_bad_url_is_refused_in_words(postgres: Cluster) -> None:
    with pytest.raises(UsageError, match=r"postgresql://postgres:\*\*\*@/nope.*cannot be opened: .*nope"):
        open_store(f"postgresql://postgres:secret@/nope?host={postgres.root}")
    for url in ("mysql://root@localhost/x", "://", "sqlite://"):
        with pytest.raises(UsageError, match="is not a database: give postgresql://"):
            open_store(url)


def cut_all_connections(cluster: Cluster, url: str) -> None:
    name = url.partition("@/")[2].partition("?")[0]
    cluster.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
