"""A store and runs on disk as stoker 0.1.0 wrote them: jobs of both platforms, finished and queued, and our own."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import MetaData, create_engine, insert, select, text

from stoker.client.client import Client
from stoker.compat.commands.determined.experiment_create import forked
from stoker.compat.commands.determined.experiment_keeping import document_of
from stoker.context import Context
from stoker.host.home import Home
from stoker.origin import Platform, TrainerSettings
from stoker.run_dir import RunDir
from stoker.schema.job import JobSpec, Share
from stoker.schema.launch import Launch
from stoker.schema.state import JobState
from stoker.server.scheduling.launch import build_launch
from stoker.server.store.dialect import open_database, open_sqlite
from stoker.server.store.migrate import MIGRATIONS, revision_of
from stoker.server.store.migrations.versions import v0006_origin
from stoker.server.store.store import Store, open_store
from stoker.server.store.values import JobQuery, NewJob
from stoker.supervisor.variables import command as words_of
from tests.postgres import Cluster

FIXTURES = Path(__file__).parents[1] / "fixtures" / "store"


def a_file(path: Path) -> Path:
    database = sqlite3.connect(path)
    database.executescript((FIXTURES / "stoker_0_1_0.sql").read_text())
    database.close()
    return path


def in_postgres(url: str, file: Path) -> str:
    """The same rows in a database that 0.1.0's own steps have made."""
    known = MetaData()
    source, target = create_engine(f"sqlite:///{file}"), open_database(url)
    known.reflect(source)
    with source.connect() as reading, target.begin() as writing:
        config = Config(attributes={"connection": writing})
        config.set_main_option("script_location", str(MIGRATIONS))
        command.upgrade(config, "0005")
        assert revision_of(writing) == "0005"
        for table in known.sorted_tables:
            rows = [dict(row._mapping) for row in reading.execute(select(table))]
            if rows and table.name != "alembic_version":
                writing.execute(insert(table), rows)
    source.dispose()
    target.dispose()
    return url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """0.1.0's store, opened."""
    file = a_file(tmp_path / "old.db")
    if request.param == "sqlite":
        store = open_store(file)
        yield store
        store.close()
        return
    postgres: Cluster = request.getfixturevalue("postgres")
    name = postgres.create(template="template0")
    store = open_store(in_postgres(postgres.url(name), file))
    yield store
    store.close()
    postgres.drop(name)


def test_store_opens_with_every_job_as_it_was(old: Store) -> None:
    states = {job.id: job.state for job in old.pages.find_jobs(JobQuery()).jobs}

    ended = dict.fromkeys(("digits_1", "aip_done", "aip_plain"), JobState.SUCCEEDED)
    waiting = dict.fromkeys(("digits_2", "digits_3", "aip_queued"), JobState.QUEUED)
    assert states == {**ended, **waiting, "own_hold": JobState.RUNNING}


@pytest.mark.parametrize("name", ["digits_1", "digits_2"])
def test_job_of_determined_has_its_origin_and_its_own_data(old: Store, name: str) -> None:
    spec = old.job(name).spec

    assert spec.data == {"url": "gs://rides/train.csv", "rows": 8}
    assert spec.origin is not None
    assert (spec.origin.platform, spec.origin.slots, spec.origin.container) == (Platform.DETERMINED, 1, False)
    assert spec.origin.trainer == TrainerSettings(max_length={"batches": 40}, validation_period={"batches": 10})
    assert spec.origin.document["searcher"] == {"name": "single", "metric": "loss", "max_length": {"batches": 40}}


@pytest.mark.parametrize("name", ["aip_done", "aip_queued"])
def test_job_of_an_image_has_its_origin(old: Store, name: str) -> None:
    spec = old.job(name).spec

    assert spec.data == {}
    assert spec.origin is not None
    assert (spec.origin.platform, spec.origin.container) == (Platform.AI_PLATFORM, True)
    assert spec.origin.image == "python:3.11-slim"


def test_jobs_of_our_own_are_left_alone(old: Store) -> None:
    assert (old.job("own_hold").spec.data, old.job("own_hold").spec.origin) == ({"stoker": {"mine": 1}}, None)
    assert (old.job("aip_plain").spec.data, old.job("aip_plain").spec.origin) == ({}, None)


def test_trial_mode_survives(old: Store) -> None:
    origin = old.job("digits_3").spec.origin

    assert origin is not None
    assert origin.trainer.test_mode is True


def test_queued_jobs_are_started_with_their_origin(old: Store) -> None:
    for name in ("digits_2", "aip_queued"):
        job = old.job(name)
        (run,) = job.trials[0].runs

        launch = build_launch(job, job.trials[0], run, ())

        assert (launch.origin, launch.data) == (job.spec.origin, job.spec.data)


def test_finished_experiment_is_shown_forked_and_continued(tmp_path: Path) -> None:
    store = open_store(a_file(tmp_path / "old.db"))
    job = store.job("digits_1")

    values = forked(job, [])
    spec = JobSpec.parse({**values, "name": "digits_4"}, source="the fork")
    again, is_new = store.add_job(NewJob(spec=spec, owner="ada", pool="local", need=Share()), now=500.0)

    assert document_of(job)["name"] == "digits"
    assert (is_new, again.state) == (True, JobState.QUEUED)
    assert (again.spec.origin, again.spec.data) == (job.spec.origin, job.spec.data)
    store.close()


def test_same_spec_is_still_the_same_job(tmp_path: Path) -> None:
    store = open_store(a_file(tmp_path / "old.db"))
    spec = store.job("digits_2").spec

    again, is_new = store.add_job(NewJob(spec=spec, owner="ada", pool="local", need=Share()), now=500.0)

    assert (again.id, is_new) == ("digits_2", False)
    store.close()


class TestServed:
    """Over HTTP."""

    @pytest.fixture
    def store(self, home: Home) -> Iterator[Store]:
        store = open_store(a_file(home.database))
        yield store
        store.close()

    def test_jobs_are_listed_and_described_with_their_origin(self, client: Client) -> None:
        found = {job.id: client.job(job.id).spec.origin for job in client.jobs()}

        platforms = {name: origin.platform.value for name, origin in found.items() if origin is not None}
        assert platforms == {
            **dict.fromkeys(("digits_1", "digits_2", "digits_3"), "determined"),
            **dict.fromkeys(("aip_done", "aip_queued"), "aiplatform"),
        }


def test_large_table_is_taken_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(v0006_origin, "BATCH", 7)
    file = a_file(tmp_path / "old.db")
    database = sqlite3.connect(file)
    columns = [row[1] for row in database.execute("PRAGMA table_info(jobs)")][2:]
    copied = f"INSERT INTO jobs SELECT ?, ?, {', '.join(columns)} FROM jobs WHERE id = 'digits_1'"
    database.executemany(copied, [(number, f"copy_{number}") for number in range(100, 130)])
    database.commit()
    database.close()

    engine = open_sqlite(file)
    with engine.connect() as connection:
        sizes = [len(batch) for batch in v0006_origin.batches(connection)]

    open_store(file).close()

    assert sizes == [7, 7, 7, 7, 7, 1], "30 copies, and 6 of the jobs that were there"
    with engine.connect() as connection:
        specs = [json.loads(spec) for (spec,) in connection.execute(text("SELECT spec FROM jobs WHERE number >= 100"))]
    engine.dispose()
    assert len(specs) == 30
    assert all("stoker" not in spec["data"] and spec["origin"]["platform"] == "determined" for spec in specs)


def a_run(path: Path, name: str) -> Path:
    (path / "run.json").write_bytes((FIXTURES / f"run_0_1_0_{name}.json").read_bytes())
    return path


def test_run_on_disk_is_read_by_the_supervisor(tmp_path: Path) -> None:
    launch = Launch.read(RunDir(a_run(tmp_path, "container")))

    assert launch.data == {}
    assert words_of(launch, Path("/py")) == ["/py", "main.py", "--epochs", "3", "--job-dir", "/home/ada/out"]


def test_run_on_disk_is_read_by_the_context(tmp_path: Path) -> None:
    run = Context(str(a_run(tmp_path, "determined")), {})

    assert run.config_data == {"url": "gs://rides/train.csv", "rows": 8}
    assert run.origin is not None
    assert run.origin.trainer.given() == {"max_length": {"batches": 40}, "validation_period": {"batches": 10}}
    assert run.origin.document["name"] == "digits"
