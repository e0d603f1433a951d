"""A store copied into another database is the same store."""

import fcntl
from pathlib import Path

import pytest

from stoker.errors import ConflictError, ServerError, UsageError
from stoker.schema.event import Checkpoint, Metric
from stoker.search.base import Asked, Suggestion
from stoker.server.store.copy import copy_all
from stoker.server.store.dialect import open_database
from stoker.server.store.store import Store, open_store
from stoker.server.store.values import LogFilter, NewJob, SearchBatch, SearchEntry
from tests.contracts.store import JobQuery, Share, a_spec, add, finish, log, say
from tests.postgres import Cluster
from tests.server.test_store_migrations import a_file_of_schema

pytestmark = pytest.mark.slow

SEARCH = {"space": {"lr": {"type": "double", "min": 0, "max": 1}}, "metric": "acc", "max_trials": 3}


def a_full_store(path: Path) -> Path:
    store = open_store(path)
    finish(store, add(store, "gone"))
    run = add(store, "going", labels={"team": "fares"})
    say(store, run, *(log(seq, f"line {seq} é") for seq in range(1, 2501)))
    say(
        store,
        run,
        Metric(seq=2501, time=1.0, replica="chief-0", step=3, values={"loss": float("nan")}),
        Checkpoint(seq=2502, time=2.0, step=2**40, path="/c/\0odd", size_bytes=2**40),
    )
    store.add_job(NewJob(spec=a_spec("hunt", search=SEARCH), owner="ada", pool="local", need=Share()), now=1.0)
    asked = SearchEntry(Asked(suggestion=Suggestion(trial=1, hparams={"lr": 0.1}, seed=2**31 + 5)), hparams={"lr": 0.1})
    store.record_search("hunt", SearchBatch([asked], values={1: {"acc": 0.1 + 0.2}}), now=2.0)
    store.close()
    return path


def everything(store: Store) -> list[object]:
    said = [
        (store.job(line.id), store.log_page(line.id, LogFilter()), store.checkpoints(line.id))
        for line in store.pages.find_jobs(JobQuery()).jobs
    ]
    past = store.search_past("hunt")
    return [said, repr(store.metric_page("going")), past, store.unfinished()]


def test_copy_is_the_same_there_and_back_again_and_goes_on(tmp_path: Path, postgres: Cluster) -> None:
    path = a_full_store(tmp_path / "stoker.db")
    name = postgres.create(template="template0")
    steps: list[tuple[str, int, int]] = []

    copied = copy_all(path, postgres.url(name), step=lambda *step: steps.append(step))
    copy_all(postgres.url(name), f"sqlite:///{tmp_path / 'back.db'}")

    old, there, back = open_store(path), open_store(postgres.url(name)), open_store(tmp_path / "back.db")
    assert everything(there) == everything(back) == everything(old)
    assert (copied["jobs"], copied["logs"]) == (3, 2500)
    assert ("logs", 2000, 2500) in steps
    # Numbers go on after those that were copied.
    assert add(there, "next") == "next.1.1"
    assert there.job("next").number == 4
    assert say(there, "going.1.1", log(2503)) == 2503
    for store in (old, there, back):
        store.close()
    postgres.drop(name)


def test_copy_into_a_database_that_is_not_empty_is_refused(tmp_path: Path, database: str) -> None:
    path = a_full_store(tmp_path / "stoker.db")
    there = open_store(database)
    add(there, "mine")
    there.close()

    with pytest.raises(UsageError, match="is not empty: jobs, trials, runs have rows"):
        copy_all(path, database)

    again = open_store(database)
    assert [job.id for job in again.pages.find_jobs(JobQuery()).jobs] == ["mine"]
    again.close()


def test_copy_that_fails_leaves_nothing(tmp_path: Path, postgres: Cluster) -> None:
    path = a_full_store(tmp_path / "stoker.db")
    name = postgres.create(template="template0")
    engine = open_database(path)
    with engine.begin() as connection:  # the disk of the source has a hole
        connection.exec_driver_sql("UPDATE search_records SET record = CAST(x'00' AS TEXT)")
    engine.dispose()

    with pytest.raises(ServerError, match="Table search_records cannot be copied"):
        copy_all(path, postgres.url(name))

    assert postgres.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", database=name) == [(0,)]
    postgres.drop(name)


def test_copy_of_a_store_in_use_or_not_there_or_too_old_is_refused(tmp_path: Path, database: str) -> None:
    path = a_full_store(tmp_path / "stoker.db")
    with (tmp_path / "server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConflictError, match="A server uses .*stoker.db"):
            copy_all(path, database)
    with pytest.raises(UsageError, match="There is no database .*nope.db"):
        copy_all(f"sqlite:///{tmp_path}/nope.db", database)
    with pytest.raises(UsageError, match="Start this stoker's server on it once"):
        copy_all(a_file_of_schema(2, tmp_path / "old.db"), database)
    assert not (tmp_path / "nope.db").exists()
