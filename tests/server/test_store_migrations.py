"""Older databases are taken along, and the steps lead to what the tables say."""

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, text

from stoker.errors import ServerError
from stoker.schema.state import JobState, RunState
from stoker.server.store import tables
from stoker.server.store.dialect import open_sqlite
from stoker.server.store.migrate import known_revisions, migrate, revision_of, upgrade
from stoker.server.store.store import Store, open_store
from stoker.server.store.values import LogFilter
from tests.contracts.store import add, texts

OLD = Path(__file__).parents[1] / "fixtures" / "store"  # dumps of what stoker 0.1 itself wrote


def a_file_of_schema(version: int, path: Path) -> Path:
    database = sqlite3.connect(path)
    database.executescript((OLD / f"schema_{version}.sql").read_text())
    database.close()
    return path


def differences(engine: Engine) -> list[object]:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, tables.metadata))


@pytest.mark.parametrize("version", [1, 2])
def test_file_of_an_older_stoker_is_taken_up_without_loss(tmp_path: Path, version: int) -> None:
    path = a_file_of_schema(version, tmp_path / "stoker.db")

    store = open_store(path)

    going, gone = store.job("going"), store.job("gone")
    assert (going.state, gone.state) == (JobState.QUEUED, JobState.SUCCEEDED)
    assert (going.labels, going.trials[0].metrics) == ({"team": "fares"}, {"loss": 0.5})
    assert going.trials[0].latest_checkpoint == store.checkpoints("going")[0].path == "/c/1"
    assert texts(store.log_page("going", LogFilter())) == ["kept"]
    assert "going" in [job.id for job in store.unfinished()]
    assert "gone" not in [job.id for job in store.unfinished()]
    move_to_the_end(store, "going.1.1")
    store.close()
    open_store(path).close()  # and once is enough
    engine = open_sqlite(path)
    assert differences(engine) == []
    engine.dispose()


def test_search_of_an_older_stoker_is_summed_up(tmp_path: Path) -> None:
    store = open_store(a_file_of_schema(2, tmp_path / "stoker.db"))

    summary = store.summary("hunt").search

    assert summary is not None
    assert (summary.metric, summary.trials, summary.outcomes) == ("acc", 3, {"failed": 1})
    assert (summary.best, summary.best_trial) == (0.7, 3), "trial 2 had 0.9, and failed"
    store.close()


def move_to_the_end(store: Store, run: str) -> None:
    store.move_run(run, RunState.STARTING, now=500.0)
    store.move_run(run, RunState.SUCCEEDED, now=501.0)
    assert run.split(".")[0] not in [job.id for job in store.unfinished()]


def test_steps_from_nothing_lead_to_the_tables(tmp_path: Path) -> None:
    engine = open_sqlite(tmp_path / "stoker.db")
    with engine.begin() as connection:
        upgrade(connection)

    assert differences(engine) == []
    with engine.connect() as connection:
        assert revision_of(connection) == known_revisions()[-1]
    add(Store(engine))
    engine.dispose()


def test_new_file_is_at_the_newest_step_at_once(tmp_path: Path) -> None:
    engine = open_sqlite(tmp_path / "stoker.db")
    Store(engine)

    with engine.connect() as connection:
        assert revision_of(connection) == known_revisions()[-1]
    assert differences(engine) == []
    engine.dispose()


def test_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = a_file_of_schema(1, tmp_path / "stoker.db")
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE search_records (surprise INTEGER)")
    before = list(database.iterdump())
    engine = open_sqlite(path)

    with pytest.raises(Exception, match="search_records"), engine.begin() as connection:
        migrate(connection)

    assert list(database.iterdump()) == before
    database.close()
    engine.dispose()


def test_file_of_a_newer_stoker_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path / "stoker.db").close()
    engine = open_sqlite(tmp_path / "stoker.db")
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(ServerError, match="written by another stoker"):
        Store(engine)

    engine.dispose()


def test_older_stoker_keeps_away_from_a_newer_file(tmp_path: Path) -> None:
    """Stoker 0.1 compares this number with its own."""
    a_file_of_schema(2, tmp_path / "stoker.db")
    open_store(tmp_path / "stoker.db").close()

    database = sqlite3.connect(tmp_path / "stoker.db")
    (version,) = database.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    database.close()

    assert int(version) > 2
