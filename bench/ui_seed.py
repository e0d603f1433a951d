"""A store as large as the web UI is measured with: 10,000 trials with a checkpoint each, a million points and lines.

Made through the store's own methods, so that it is what runs would have left; but of the search's trials only the first
thousand, ten milliseconds of CPU each: the others are copies of their rows with other hyperparameters and objectives.
Kept in a temporary folder for the next time. `python -m bench.ui_seed` makes it.
"""

import itertools
import json
import math
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from stoker.host.home import Home
from stoker.schema.bundle import ModelCard, Origin
from stoker.schema.event import Checkpoint, Event, EventBatch, Exited, Log, Metric, Phase, PhaseStarted
from stoker.schema.job import JobSpec, Share
from stoker.schema.registry import NewModel, Version
from stoker.schema.state import RunState, StopReason
from stoker.search.base import Asked, Ended, Outcome, Reported, Stop, StopKind, Suggestion
from stoker.server.store.copy import copy_all
from stoker.server.store.store import Store, open_store
from stoker.server.store.values import NewJob, SearchBatch, SearchEntry
from tests.postgres import Cluster, _find

VERSION = 4  # of what is made here: another number, and it is made anew
SEARCH, LONG, MODEL = "hunt", "long", "model_000"
RUNGS = (5, 15, 45)  # reports a trial has when it is stopped there
AT_ONCE = 500
MADE = 1000  # trials that are made one by one


@dataclass(frozen=True, slots=True)
class Size:
    trials: int = 10_000
    points: int = 1_000_000  # of all metrics together
    lines: int = 1_000_000
    jobs: int = 300
    models: int = 100
    versions: int = 50  # of each model

    @property
    def reports_a_trial(self) -> int:
        """Nine tenths of the points are the search's; each report has two."""
        return max(self.points * 9 // 10 // 2 // self.trials, 1)


def seeded(size: Size, *, postgres: bool = False) -> Path:
    """The folder of a database of this size: `stoker.db`, and `pg`, a stopped cluster, if that was asked for."""
    name = f"stoker-bench-ui-{VERSION}-{size.trials}-{size.points}-{size.lines}"
    folder = Path(tempfile.gettempdir()) / name
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o755)
        began = time.monotonic()
        # Forty thousand transactions, each durable: in memory, if there is a place, that takes minutes less.
        memory = Path("/dev/shm")
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as quick:
            fill(Home(Path(quick)).make(), size)
            shutil.move(Home(Path(quick)).database, folder / "stoker.db")
        (folder / "done").write_text(f"{time.monotonic() - began:.0f} s\n")
    if postgres and not (folder / "pg-done").exists():
        _copy_to_postgres(folder)
    return folder


def cluster_of(folder: Path) -> Cluster:
    binaries = _find()
    assert binaries is not None, "PostgreSQL's initdb is not installed (Debian: apt-get install postgresql)"
    return Cluster(binaries, folder / "pg")


def fill(home: Home, size: Size) -> None:
    store = open_store(home.database)
    try:
        now = time.time() - 86_400
        _add_small_jobs(store, size.jobs, now)
        _add_search(store, size, now + 3600)
        _add_long(store, size, now + 7200)
        _add_models(store, size, now + 10_800)
    finally:
        store.close()
    multiply(home.database, made=min(size.trials, MADE), size=size)


def _copy_to_postgres(folder: Path) -> None:
    cluster = cluster_of(folder)
    if cluster.root.exists():
        if cluster.is_running():
            cluster.stop(mode="immediate")
        shutil.rmtree(cluster.root)
    cluster.make()
    cluster.start()
    try:
        cluster.execute("CREATE DATABASE stoker")
        copy_all(folder / "stoker.db", cluster.url("stoker"))
        cluster.execute("ANALYZE", database="stoker")  # as its autovacuum would have, which tests' clusters do without
        (folder / "pg-done").touch()
    finally:
        cluster.stop()


def _add(store: Store, now: float, **fields: object) -> str:
    spec = JobSpec.model_validate(fields)
    store.add_job(NewJob(spec=spec, owner="ada", pool="local", need=Share(cpus=1, memory_gb=1, gpus=0)), now=now)
    return f"{spec.name}.1.1"


def _finish(store: Store, run: str, state: RunState, *, now: float, stop: StopReason | None = None) -> None:
    store.move_run(run, RunState.STARTING, now=now - 60)
    store.move_run(run, state, now=now, stop=stop)


def _add_small_jobs(store: Store, count: int, now: float) -> None:
    for at in range(count):
        labels = {"team": random.Random(at).choice(["vision", "text", "ads"])}
        began = now + at * 10
        run = _add(store, began, name=f"nightly_{at:04}", module="trainer.task", labels=labels)
        events = (
            PhaseStarted(seq=1, time=began, phase=Phase.USER_CODE),
            Metric(seq=2, time=began + 1, step=100, values={"loss": 1 / (at + 1), "accuracy": 1 - 1 / (at + 2)}),
            Exited(seq=3, time=began + 9, phase=Phase.USER_CODE, code=0 if at % 7 else 1),
        )
        store.append_events(run, EventBatch(events=events), now=began + 9)
        _finish(store, run, RunState.SUCCEEDED if at % 7 else RunState.FAILED, now=began + 9)


def _add_search(store: Store, size: Size, now: float) -> None:
    space = {
        "lr": {"type": "double", "min": 1e-5, "max": 1e-1, "scale": "log"},
        "layers": {"type": "int", "min": 1, "max": 12},
        "dropout": {"type": "double", "min": 0.0, "max": 0.6},
        "width": {"type": "categorical", "values": [64, 128, 256, 512]},
        "optimizer": {"type": "categorical", "values": ["adam", "adamw", "sgd"]},
        "decay": {"type": "double", "min": 1e-6, "max": 1e-2, "scale": "log"},
    }
    stopping = {"name": "asha", "max_time": RUNGS[-1], "divisor": 3, "max_rungs": 3}
    search = {"sampler": "random", "metric": "loss", "space": space, "stopping": stopping, "max_trials": size.trials}
    _add(store, now, name=SEARCH, module="trainer.task", search=search, labels={"team": "vision"})
    made = min(size.trials, MADE)
    for first in range(1, made + 1, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, made + 1))
        _add_trials(store, numbers, size, now + first)
        store.record_search(SEARCH, SearchBatch(progress=numbers[-1] / size.trials), now=now + first)
    store.record_search(SEARCH, SearchBatch(progress=1.0, state="done"), now=now + size.trials)


def _add_trials(store: Store, numbers: range, size: Size, now: float) -> None:
    tried = {number: _Trial(number, size.reports_a_trial) for number in numbers}
    asked = [
        SearchEntry(Asked(suggestion=Suggestion(trial=n, hparams=t.hparams, seed=n)), hparams=t.hparams)
        for n, t in tried.items()
    ]
    store.record_search(SEARCH, SearchBatch(entries=asked), now=now)
    for trial in tried.values():
        store.append_events(trial.run, EventBatch(events=tuple(trial.events(now))), now=now + 60)
    reported = [SearchEntry(trial.reported()) for trial in tried.values()]
    values = {number: {"loss": trial.best} for number, trial in tried.items()}
    store.record_search(SEARCH, SearchBatch(entries=reported, values=values), now=now + 60)
    for trial in tried.values():
        if trial.is_whole:
            _finish(store, trial.run, RunState.SUCCEEDED, now=now + 61)
        else:
            _finish(store, trial.run, RunState.STOPPED, now=now + 61, stop=StopReason.PRUNE)
    ended = [
        SearchEntry(Ended(trial=number, outcome=Outcome.COMPLETED if trial.is_whole else Outcome.STOPPED))
        for number, trial in tried.items()
    ]
    store.record_search(SEARCH, SearchBatch(entries=ended), now=now + 62)


# What belongs to a trial: each table, the columns that are keys (and of which table), and which rows are meant.
_OF_TRIAL = "trial IN (SELECT id FROM part)"
_OF_RUN = "run IN (SELECT number FROM runs WHERE trial IN (SELECT id FROM part))"
_ROWS = (
    ("runs", {"number": "runs", "trial": "trials"}, _OF_TRIAL),
    ("nodes", {"run": "runs"}, _OF_RUN),
    ("metrics", {"number": "metrics", "run": "runs"}, _OF_RUN),
    ("series", {"number": "series", "trial": "trials"}, _OF_TRIAL),
    ("checkpoints", {"number": "checkpoints", "run": "runs"}, _OF_RUN),
)


def multiply(database: Path, *, made: int, size: Size) -> None:
    """Copy the first trials' rows until there are as many as wanted."""
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA synchronous = OFF")
    (job,) = connection.execute("SELECT number FROM jobs WHERE id = ?", (SEARCH,)).fetchone()
    keys = {"trials": "id", "runs": "number", "metrics": "number", "series": "number", "checkpoints": "number"}
    tops = {table: connection.execute(f"SELECT max({key}) FROM {table}").fetchone()[0] for table, key in keys.items()}
    for copy, first in enumerate(range(made, size.trials, made), start=1):
        most = min(made, size.trials - first)
        connection.execute("DROP TABLE IF EXISTS part")
        connection.execute("CREATE TEMP TABLE part AS SELECT id FROM trials WHERE job = ? AND number <= ?", (job, most))
        shifts = {table: copy * ((top or 0) + 1) for table, top in tops.items()}
        moved = {"id": shifts["trials"], "number": first, "packed": shifts["metrics"]}
        _copy_rows(connection, "trials", moved, "id IN (SELECT id FROM part)")
        for table, columns, which in _ROWS:
            _copy_rows(connection, table, {name: shifts[of] for name, of in columns.items()}, which, first=first)
        _give_values(connection, job, range(first + 1, first + most + 1), size)
    _count(connection, job)
    connection.commit()
    connection.close()


def _copy_rows(
    connection: sqlite3.Connection, table: str, moved: dict[str, int], which: str, *, first: int | None = None
) -> None:
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    words = {name: f'"{name}" + {moved[name]}' if name in moved else f'"{name}"' for name in columns}
    if table == "runs":  # its name: JOB.TRIAL.ATTEMPT
        number = f"(SELECT number + {first} FROM trials WHERE trials.id = runs.trial)"
        words["id"] = f"'{SEARCH}.' || {number} || '.1'"
    names = ", ".join(f'"{name}"' for name in columns)
    connection.execute(f"INSERT INTO {table} ({names}) SELECT {', '.join(words.values())} FROM {table} WHERE {which}")


def _give_values(connection: sqlite3.Connection, job: int, numbers: range, size: Size) -> None:
    trials = [_Trial(number, size.reports_a_trial) for number in numbers]
    connection.executemany(
        "UPDATE trials SET hparams = ?, objective = ?, objectives = ? WHERE job = ? AND number = ?",
        [(json.dumps(t.hparams), t.best, json.dumps({"loss": t.best}), job, t.number) for t in trials],
    )


def _count(connection: sqlite3.Connection, job: int) -> None:
    """What the job's row says of all its trials."""
    counted = connection.execute("SELECT outcome, count(*) FROM trials WHERE job = ? GROUP BY outcome", (job,))
    outcomes = dict(counted.fetchall())
    best = connection.execute(
        "SELECT objective, number FROM trials WHERE job = ? ORDER BY objective LIMIT 1", (job,)
    ).fetchone()
    connection.execute(
        "UPDATE jobs SET trials_made = ?, outcomes = ?, best = ?, best_trial = ? WHERE number = ?",
        (sum(outcomes.values()), json.dumps(outcomes), *best, job),
    )


class _Trial:
    """One of the search's: a made-up loss with the shape of a real one."""

    def __init__(self, number: int, reports: int) -> None:
        noise = random.Random(number)
        self.number, self.reports, self.noise = number, reports, noise
        self.run = f"{SEARCH}.{number}.1"
        self.hparams = {
            "lr": 10 ** noise.uniform(-5, -1),
            "layers": noise.randint(1, 12),
            "dropout": noise.uniform(0, 0.6),
            "width": noise.choice([64, 128, 256, 512]),
            "optimizer": noise.choice(["adam", "adamw", "sgd"]),
            "decay": 10 ** noise.uniform(-6, -2),
        }
        self.floor = 0.1 + 0.05 * (math.log10(self.hparams["lr"]) + 3) ** 2 + 0.01 * abs(self.hparams["layers"] - 5)
        self.rung = noise.choices(RUNGS, weights=[6, 3, 1])[0]
        self.is_whole = self.rung == RUNGS[-1]
        self.best = self._loss(self.reports)

    def _loss(self, step: int) -> float:
        return self.floor + 2 * math.exp(-step / 12) + self.noise.gauss(0, 0.01)

    def events(self, now: float) -> Iterator[Event]:
        yield PhaseStarted(seq=1, time=now, phase=Phase.USER_CODE)
        for step in range(1, self.reports + 1):
            loss = self._loss(step)
            yield Metric(seq=1 + step, time=now + step, step=step, values={"loss": loss, "accuracy": 1 - loss / 4})
        seq = self.reports + 2
        path = f"/checkpoints/{self.run}"
        yield Checkpoint(seq=seq, time=now + 60, step=self.reports, path=path, size_bytes=1 << 20)
        yield Exited(seq=seq + 1, time=now + 60, phase=Phase.USER_CODE, code=0)

    def reported(self) -> Reported:
        words = f"not among the best third at rung {self.rung}"
        stop = None if self.is_whole else Stop(kind=StopKind.PRUNED, message=words)
        return Reported(trial=self.number, step=self.reports, values={"loss": self.best}, stop=stop)


def _add_long(store: Store, size: Size, now: float) -> None:
    """A run of one trial with the rest of the points, and all lines."""
    run = _add(store, now, name=LONG, module="trainer.task", labels={"team": "text"})
    seq = 1
    store.append_events(run, EventBatch(events=(PhaseStarted(seq=seq, time=now, phase=Phase.USER_CODE),)), now=now)
    reports = (size.points - size.trials * size.reports_a_trial * 2) // 2
    noise = random.Random(7)
    for first in range(0, reports, AT_ONCE):
        events = []
        for step in range(first, min(first + AT_ONCE, reports)):
            seq += 1
            loss = 2 * math.exp(-3 * step / reports) + noise.gauss(0, 0.05)
            events.append(Metric(seq=seq, time=now + step, step=step, values={"loss": loss, "accuracy": 1 - loss / 4}))
        store.append_events(run, EventBatch(events=tuple(events)), now=now)
    blocks = _blocks(size.lines, now, seq)
    while several := tuple(itertools.islice(blocks, 50)):
        seq = several[-1].seq
        store.append_events(run, EventBatch(events=several), now=now)
    end = Exited(seq=seq + 1, time=now + 3600, phase=Phase.USER_CODE, code=0)
    store.append_events(run, EventBatch(events=(end,)), now=now + 3600)
    _finish(store, run, RunState.SUCCEEDED, now=now + 3600)


def _add_models(store: Store, size: Size, now: float) -> None:
    for number in range(size.models):
        name = f"model_{number:03}"
        store.models.add_model(NewModel(name=name, description=f"Number {number} of many."), now=now)
        for version in range(1, size.versions + 1):
            origin = Origin(job=SEARCH, trial=version)
            made = datetime.fromtimestamp(now + version, tz=UTC)
            card = ModelCard(name=name, framework="torch", metrics={"loss": 1 / version}, created=made, origin=origin)
            place = {"url": f"/models/{name}/{version}", "source": f"/checkpoints/{SEARCH}.{version}.1"}
            store.models.add_version(
                Version(model=name, name=f"v{version}", number=version, created=now + version, card=card, **place)
            )


def _blocks(lines: int, now: float, seq: int) -> Iterator[Log]:
    for first in range(1, lines + 1, 200):
        numbers = range(first, min(first + 200, lines + 1))
        texts, levels = [], {}
        for number in numbers:
            if number % 1000 == 0:
                levels[number - first] = "ERROR"
                texts.append(f"ERROR needle {number // 1000}: a batch could not be read, it is left out")
            else:
                texts.append(f"step {number} loss {2 / (1 + number / 1000):.6f} images/s {900 + number % 97} lr 0.0003")
        seq += 1
        place = {"seq": seq, "time": now + first / 300, "replica": "chief-0", "stream": "stdout"}
        yield Log.model_validate(
            {**place, "line": first, "count": len(numbers), "text": "\n".join(texts), "levels": levels}
        )


if __name__ == "__main__":
    found = seeded(Size(), postgres=True)
    print(found, (found / "done").read_text().strip())  # noqa: T201
