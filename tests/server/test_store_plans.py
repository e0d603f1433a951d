"""What is asked often is found by an index, on both databases: no table is read from end to end."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, text

from stoker.schema.state import JobState
from stoker.server.store.dialect import open_database
from stoker.server.store.store import Store
from stoker.server.store.values import JobQuery, LogFilter
from tests.contracts.store import add, hear, hunt, log, say

Ask = Callable[[Store], object]

ASKED: dict[str, Ask] = {
    "jobs, newest first": lambda store: store.pages.find_jobs(JobQuery(limit=5)),
    "jobs after a page": lambda store: store.pages.find_jobs(JobQuery(after=(9, 9), limit=5)),
    "jobs before one": lambda store: store.pages.find_jobs(JobQuery(before=9, limit=5)),
    "jobs by prefix": lambda store: store.pages.find_jobs(JobQuery(name="hunt", limit=5)),
    "jobs by prefix and name": lambda store: store.pages.find_jobs(JobQuery(name="hunt", sort="name", limit=5)),
    "jobs of a pool": lambda store: store.pages.find_jobs(JobQuery(pool="other", limit=5)),
    "jobs of an owner": lambda store: store.pages.find_jobs(JobQuery(owner="ada", limit=5)),
    "jobs that run": lambda store: store.pages.find_jobs(JobQuery(states=frozenset({JobState.RUNNING}), limit=5)),
    "how many jobs are in each state": lambda store: store.pages.job_counts(JobQuery()),
    "how many jobs of a pool": lambda store: store.pages.job_counts(JobQuery(pool="other")),
    "how many jobs by prefix": lambda store: store.pages.job_counts(JobQuery(name="hunt")),
    "a job": lambda store: store.job("hunt"),
    "a trial": lambda store: store.trials("hunt", only=3),
    "the best trials": lambda store: store.trials("hunt", sort="best", limit=3),
    "the newest trials": lambda store: store.trials("hunt", sort="newest", limit=3),
    "trials that an id names": lambda store: store.trial(1),
    "logs": lambda store: store.log_page("hunt", LogFilter(), after=1, limit=5),
    "logs of a trial": lambda store: store.log_page("hunt", LogFilter(trial=2), after=1, limit=5),
    "the log's end": lambda store: store.log_tail("hunt", LogFilter(), lines=3),
    "metrics": lambda store: store.metric_page("hunt", after=1, limit=5),
    "checkpoints": lambda store: store.checkpoints("hunt"),
    "the scheduler's snapshot": lambda store: store.unfinished(),
    "news of a search": lambda store: store.search_news("hunt", after=1),
    "results of a search": lambda store: store.search_results("hunt", after=1),
}


def fill(store: Store) -> None:
    hunt(store, trials=20)
    hear(store, {number: 1.0 / number for number in range(1, 10)})
    for number in range(20):
        run = add(store, f"job_{number}", pool="other" if number % 5 == 0 else "local")
        say(store, run, log(1), log(2))


def statements_of(engine: Engine, ask: Callable[[], object]) -> list[tuple[str, object]]:
    said: list[tuple[str, object]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: object, *_: object) -> None:
        said.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    ask()
    event.remove(engine, "before_cursor_execute", note)
    assert said
    return [item for item in said if item[0].startswith("SELECT")]


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[tuple[Store, Engine]]:
    engine = open_database(tmp_path / "stoker.db")
    store = Store(engine)
    fill(store)
    yield store, engine
    store.close()


def test_sqlite_finds_by_index(sqlite: tuple[Store, Engine]) -> None:
    store, engine = sqlite
    bad = []
    for what, ask in ASKED.items():
        for statement, parameters in statements_of(engine, lambda ask=ask: ask(store)):
            with engine.connect() as connection:
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()  # type: ignore[arg-type]
            steps = [row[3] for row in plan]
            # In the order of its own number a table is read from the end, and only as far as the limit.
            whole = [step for step in steps if step.startswith("SCAN") and " USING " not in step]
            if whole and not re.search(r"ORDER BY jobs.number DESC\s+LIMIT", statement):
                bad.append((what, steps))

    assert bad == []


@pytest.mark.slow
def test_postgres_finds_by_index(database: str) -> None:
    engine = open_database(database)
    store = Store(engine)
    fill(store)
    bad = []
    for what, ask in ASKED.items():
        for statement, parameters in statements_of(engine, lambda ask=ask: ask(store)):
            with engine.connect() as connection:
                # Of twenty rows a scan is the cheapest: what matters is whether there is another way.
                connection.execute(text("SET LOCAL enable_seqscan = off"))
                plan = [row[0] for row in connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)]  # type: ignore[arg-type]
            if any("Seq Scan" in step for step in plan):
                bad.append((what, plan))

    assert bad == []
    store.close()
