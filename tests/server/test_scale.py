"""The scheduler on a simulated cluster whose nodes fail, and what the store reads for it when little has changed."""

from collections.abc import Callable

import pytest
from sqlalchemy import event

from bench.simulation import Plan, Record, Simulation
from stoker.host.home import Home
from stoker.schema.event import Exited, Log, Metric, Phase, PhaseStarted
from stoker.schema.state import Intent, JobState, RunState, StopReason
from stoker.search.base import Outcome
from stoker.server.scheduling.decide import MAX_LOSSES
from stoker.server.store.store import Store
from stoker.server.store.unfinished import Unfinished
from tests.contracts.store import add, hunt, say
from tests.server.searching import check_history

PLAN = Plan(nodes=50, trials=300, trial_s=900, failures_an_hour=1.0, repair_s=120, pulse_s=5.0)


@pytest.fixture
def sql(store: Store) -> Store:
    assert isinstance(store, Store)
    return store


def simulate(plan: Plan, store: Store, home: Home) -> Record:
    """Without the server's own time, so that it is the same on any machine."""
    looks = [0]

    def compare(simulation: Simulation) -> None:
        looks[0] += 1
        if looks[0] % 40 == 0:
            is_same = store.unfinished() == Unfinished().look(store._engine)
            assert is_same, "what is in memory is what is stored"

    return Simulation(plan, store=store, home=home, cost=lambda: 0.0).run(watch=compare)


def test_search_on_a_cluster_whose_nodes_fail_loses_no_trial_and_leaves_no_slot_idle(sql: Store, home: Home) -> None:
    record = simulate(PLAN, sql, home)  # the engine refuses to give a slot or to start a run twice

    assert record.node_failures > 5
    assert record.lost_runs > 5
    assert sql.summary("search_1").state is JobState.SUCCEEDED
    trials = sql.trials("search_1", limit=1000).trials
    assert [trial.number for trial in trials] == list(range(1, PLAN.trials + 1))
    assert all(run.state.is_final for trial in trials for run in trial.runs)
    losses = [sum(run.state is RunState.LOST for run in trial.runs) for trial in trials]
    assert 5 < sum(losses) <= record.lost_runs, "some had been told to stop when they were lost"
    ended_well = [trial.outcome in (Outcome.COMPLETED, Outcome.STOPPED) for trial in trials]
    assert ended_well == [lost <= MAX_LOSSES for lost in losses], "all do, but for who was lost too often"
    assert sum(ended_well) >= PLAN.trials - 3
    begins = list(record.begins.values())
    assert len(begins) > 5
    assert [first for first, _ in begins] == [saved for _, saved in begins], "it goes on from the newest checkpoint"
    assert max(begins) > (0, 0)
    utilisation = record.full_busy_s / record.full_up_s
    assert utilisation > 0.95
    check_history(sql, "search_1")


def statements(store: Store, ask: Callable[[], object]) -> list[str]:
    said: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        said.append(statement)

    event.listen(store._engine, "before_cursor_execute", note)
    ask()
    event.remove(store._engine, "before_cursor_execute", note)
    return [text for text in said if not text.startswith("BEGIN")]


def test_store_reads_what_has_changed_alone_when_the_scheduler_looks(sql: Store) -> None:
    hunt(sql, trials=20)
    sql.unfinished()

    assert statements(sql, sql.unfinished) == []
    sql.move_run("hunt.3.1", RunState.STARTING, now=1.0)
    sql.move_run("hunt.7.1", RunState.STARTING, now=1.0)
    (query,) = statements(sql, sql.unfinished)

    assert "trials.number IN" in query
    (job,) = sql.unfinished()
    assert [trial.number for trial in job.trials if trial.run.state is RunState.STARTING] == [3, 7]
    assert len(job.trials) == 20


def test_scheduler_sees_every_kind_of_change(sql: Store) -> None:
    run = add(sql, "one")
    other = add(sql, "two")

    def same() -> bool:
        return sql.unfinished() == Unfinished().look(sql._engine)

    assert same()
    for change in (
        lambda: sql.place_run(run, directory="/here"),
        lambda: sql.move_run(run, RunState.STARTING, now=2.0),
        lambda: sql.place_run(run, handle="17"),
        lambda: say(sql, run, PhaseStarted(seq=1, time=2.0, phase=Phase.USER_CODE)),
        lambda: sql.move_run(run, RunState.RUNNING, now=3.0),
        lambda: say(sql, run, Metric(seq=2, time=3.0, step=1, values={"loss": 1.0})),
        lambda: say(sql, run, Log(seq=3, time=3.0, replica="chief-0", stream="stdout", line=1, count=1, text="hi")),
        lambda: sql.order_stop(run, StopReason.PAUSE, now=4.0),
        lambda: sql.change_job("two", priority=7),
        lambda: sql.set_intent("two", Intent.PAUSE, by="ada", now=4.0),
        lambda: say(sql, run, Exited(seq=4, time=5.0, phase=Phase.USER_CODE, code=0, stop=StopReason.PAUSE)),
        lambda: sql.move_run(run, RunState.STOPPED, now=5.0, stop=StopReason.PAUSE),
        lambda: sql.add_run(sql.job("one").trials[0].id, now=6.0),
        lambda: sql.move_run("one.1.2", RunState.STARTING, now=7.0),
        lambda: sql.move_run("one.1.2", RunState.LOST, now=8.0, restart=True),
        lambda: sql.set_intent("one", Intent.STOP, by="ada", now=9.0, kill=True),
        lambda: sql.move_run("one.1.3", RunState.STOPPED, now=9.0, stop=StopReason.CANCEL),
        lambda: sql.move_run(other, RunState.STOPPED, now=9.0, stop=StopReason.PAUSE),
    ):
        change()
        assert same()

    assert [job.id for job in sql.unfinished()] == ["two"]
