"""Whole searches over a real scheduler and store, and trials without processes."""

from typing import Any

import pytest

from stoker.errors import ConflictError, NotFoundError, StoreError, UsageError
from stoker.host.home import Home
from stoker.schema.event import Metric
from stoker.schema.pool import Pool
from stoker.schema.search import SearchSpec
from stoker.schema.state import Intent, JobState, RunState, StopReason
from stoker.server.live.wakeups import Wakeups
from stoker.server.scheduling.scheduler import Scheduler
from stoker.server.searches.search import check_search
from stoker.server.searches.status import search_status
from stoker.server.store.store import Store
from stoker.server.store.values import SearchBatch
from tests.server.fakes import AtOnce, FakeClock, FakeEngine
from tests.server.searching import Behaviour, Cluster, check_history

ASHA = {"name": "asha", "max_time": 16, "divisor": 4}


@pytest.fixture
def cluster(store: Store, scheduler: Scheduler, engine: FakeEngine, clock: FakeClock, pool: Pool) -> Cluster:
    return Cluster(store, scheduler, engine, clock, pool)


def test_random_search_runs_all_its_trials_and_finds_the_best(cluster: Cluster) -> None:
    cluster.submit({"sampler": "random", "metric": "loss", "max_trials": 12})

    cluster.run()

    job = cluster.store.job("job")
    assert (job.state, job.reason, job.progress) == (JobState.SUCCEEDED, "", 1.0)
    assert [trial.number for trial in job.trials] == list(range(1, 13))
    assert {trial.outcome for trial in job.trials} == {"completed"}
    assert cluster.most == 2  # as many as the pool holds
    status = search_status(cluster.store, "job", best=3)
    best = min(job.trials, key=lambda trial: trial.objective or 0.0)
    assert status.best[0].number == best.number
    assert best.objective == pytest.approx((best.hparams["x"] - 0.3) ** 2 + 1 / 16)
    assert status.curve[-1] == (12, best.objective)
    assert (status.finished, status.outcomes, status.states) == (True, {"completed": 12}, {"SUCCEEDED": 12})
    check_history(cluster.store)


def test_grid_makes_every_point_once_and_each_trial_its_own_launch(cluster: Cluster) -> None:
    space = {
        "x": {"type": "double", "min": 0, "max": 1, "count": 3},
        "net": {"kind": {"type": "categorical", "values": ["a", "b"]}},
    }
    cluster.submit({"sampler": "grid", "space": space}, job_dir="/out/", hparams={"epochs": 5}, seed=3)

    cluster.run()

    launches = sorted(cluster.engine.launches, key=lambda launch: launch.trial)
    points = sorted((launch.hparams["x"], launch.hparams["net"]["kind"]) for launch in launches)
    assert points == [(x, kind) for x in (0.0, 0.5, 1.0) for kind in "ab"]
    assert {launch.hparams["epochs"] for launch in launches} == {5}
    assert all(launch.in_search for launch in launches)
    assert [launch.job_dir for launch in launches] == [f"/out/{number}" for number in range(1, 7)]
    assert len({launch.seed for launch in launches}) == 6
    assert cluster.store.job("job").state is JobState.SUCCEEDED


@pytest.mark.parametrize("sampler", ["random", {"name": "tpe", "startup_trials": 4}])
def test_asha_stops_most_trials_early_with_any_sampler(cluster: Cluster, sampler: Any) -> None:
    if sampler != "random":
        pytest.importorskip("optuna")
    cluster.submit({"sampler": sampler, "stopping": ASHA, "metric": "loss", "max_trials": 20})

    cluster.run()

    job = cluster.store.job("job")
    assert job.state is JobState.SUCCEEDED
    pruned = [trial for trial in job.trials if trial.stopped.startswith("pruned")]
    assert len(pruned) >= 8
    assert {trial.outcome for trial in pruned} == {"stopped"}
    assert {(trial.runs[-1].state, trial.runs[-1].stop) for trial in pruned} == {(RunState.STOPPED, StopReason.PRUNE)}
    assert all(cluster.ended[trial.runs[-1].id] < 16 for trial in pruned)
    assert {trial.state for trial in pruned} == {JobState.SUCCEEDED}
    check_history(cluster.store)


def test_pruned_trial_is_told_to_stop_once_with_the_record_of_why(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[str] = []
    monkeypatch.setattr(cluster.store, "order_stop", lambda run, reason, *, now: orders.append(run))
    cluster.submit({"sampler": "random", "stopping": ASHA, "metric": "loss", "max_trials": 20})

    cluster.run()

    assert sum(trial.stopped.startswith("pruned") for trial in cluster.store.job("job").trials) >= 8
    assert orders == []


def test_trial_that_fails_is_restarted_from_its_checkpoint_and_given_up_in_the_end(cluster: Cluster) -> None:
    cluster.behaviour = Behaviour(crashes=lambda launch: launch.trial == 2)
    cluster.submit({"sampler": "random", "metric": "loss", "max_trials": 4}, restarts={"max_restarts": 2})

    cluster.run()

    job = cluster.store.job("job")
    assert job.state is JobState.SUCCEEDED
    assert [trial.outcome for trial in job.trials] == ["completed", "failed", "completed", "completed"]
    assert len(job.trials[1].runs) == 3
    again = next(launch for launch in cluster.engine.launches if launch.run == "job.2.2")
    assert again.latest_checkpoint == "/checkpoints/job.2.1/3"
    check_history(cluster.store)


def test_search_fails_when_max_failed_trials_were_given_up_and_stops_the_rest(cluster: Cluster) -> None:
    cluster.behaviour = Behaviour(crashes=lambda launch: launch.trial != 1)
    cluster.submit({"sampler": "random", "metric": "loss", "max_trials": 50, "max_failed_trials": 3})

    cluster.run()

    job = cluster.store.job("job")
    assert job.state is JobState.FAILED
    assert "3 of 3 trials failed, which reaches max_failed_trials (3)" in job.reason
    assert job.trials[0].runs[-1].stop is StopReason.CANCEL
    assert len(job.trials) <= 6
    assert search_status(cluster.store, "job", best=1).failure == job.reason


def test_search_fails_in_words_when_the_metric_never_comes(cluster: Cluster) -> None:
    cluster.behaviour = Behaviour(metric="acc", group="training")
    cluster.submit({"sampler": "random", "metric": "accuracy", "goal": "maximize", "max_trials": 50})

    cluster.run()

    job = cluster.store.job("job")
    assert (job.state, job.reason) == (JobState.FAILED, "no trial reported 'accuracy'; they reported: acc, other")


def test_refused_hyperparameters_are_replaced_and_not_counted(cluster: Cluster) -> None:
    cluster.behaviour = Behaviour(refuses=lambda launch: launch.trial in (1, 3))
    cluster.submit({"sampler": "random", "metric": "loss", "max_trials": 4}, restarts={"max_restarts": 3})

    cluster.run()

    job = cluster.store.job("job")
    assert job.state is JobState.SUCCEEDED
    assert [t.outcome for t in job.trials] == [
        "invalid_hp",
        "completed",
        "invalid_hp",
        "completed",
        "completed",
        "completed",
    ]
    assert job.trials[0].stopped == "invalid hyperparameters: too wide"
    assert len(job.trials[0].runs) == 1
    check_history(cluster.store)


def test_nan_never_wins_and_never_ends_the_search(cluster: Cluster) -> None:
    cluster.behaviour = Behaviour(loss=lambda hparams, step: float("nan") if hparams["x"] < 0.5 else hparams["x"])
    cluster.submit({"sampler": "random", "stopping": ASHA, "metric": "loss", "max_trials": 12})

    cluster.run()

    assert cluster.store.job("job").state is JobState.SUCCEEDED
    status = search_status(cluster.store, "job", best=20)
    assert status.best
    assert all(trial.hparams["x"] >= 0.5 for trial in status.best)
    check_history(cluster.store)


def test_paused_search_asks_for_nothing_and_goes_on_where_it_was(cluster: Cluster) -> None:
    cluster.submit({"sampler": "random", "metric": "loss", "max_trials": 6})
    cluster.run(rounds=5)

    cluster.store.set_intent("job", Intent.PAUSE, by="ada", now=cluster.clock())
    cluster.run(rounds=10)
    paused = cluster.store.job("job")
    cluster.store.set_intent("job", Intent.RUN, by="ada", now=cluster.clock())
    cluster.run()

    assert paused.state is JobState.PAUSED
    job = cluster.store.job("job")
    assert job.state is JobState.SUCCEEDED
    assert len(job.trials) == 6
    resumed = next(launch for launch in cluster.engine.launches if launch.run == "job.1.2")
    assert resumed.latest_checkpoint is not None
    assert cluster.launch(1).latest_checkpoint is None
    check_history(cluster.store)


def test_cancelled_search_stops_its_runs_and_asks_no_more(cluster: Cluster) -> None:
    cluster.submit({"sampler": "random", "metric": "loss", "max_trials": 6})
    cluster.run(rounds=3)

    cluster.store.set_intent("job", Intent.STOP, by="ada", now=cluster.clock())
    cluster.run()

    job = cluster.store.job("job")
    assert (job.state, job.reason) == (JobState.CANCELLED, "cancelled by ada")
    assert len(job.trials) <= 3


@pytest.mark.parametrize(("search", "at_once"), [({"max_concurrent_trials": 1}, 1), ({"max_slots": 1}, 1), ({}, 2)])
def test_no_more_run_at_once_than_search_and_pool_allow(cluster: Cluster, search: dict[str, Any], at_once: int) -> None:
    cluster.submit({"sampler": "random", "metric": "loss", "max_trials": 6, **search})

    cluster.run()

    assert cluster.most == at_once


def test_copies_of_a_population_start_from_the_checkpoint_of_what_they_copy(cluster: Cluster) -> None:
    pbt = {"name": "pbt", "population": 2, "interval": 4, "quantile": 0.5}
    cluster.submit({"sampler": pbt, "metric": "loss", "max_trials": 4})

    cluster.run()

    trials = cluster.store.job("job").trials
    copies = [trial for trial in trials if trial.parent is not None]
    assert copies
    for copy in copies:
        assert f"/job.{copy.parent}." in (cluster.launch(copy.number).latest_checkpoint or "")
    check_history(cluster.store)


def test_search_knows_the_trials_of_the_one_it_resumes(cluster: Cluster) -> None:
    pytest.importorskip("optuna")
    cluster.submit({"sampler": "random", "metric": "loss", "max_trials": 12}, name="first")
    cluster.run("first")
    tpe = {"name": "tpe", "startup_trials": 5}

    cluster.submit({"sampler": tpe, "metric": "loss", "max_trials": 2, "resume_from": "first"}, name="second")
    cluster.submit({"sampler": tpe, "metric": "loss", "max_trials": 2}, name="fresh")
    cluster.run("second")
    cluster.run("fresh")

    assert len(cluster.store.search_prior("first", ["loss"])) == 12
    assert cluster.launch(1, "second").hparams != cluster.launch(1, "fresh").hparams


def test_what_a_search_needs_is_asked_for_at_submission(cluster: Cluster) -> None:
    def search(**fields: Any) -> SearchSpec:
        return SearchSpec.model_validate({"max_trials": 2, "space": {"x": 1}, **fields})

    cluster.submit({"sampler": "random", "metric": "loss", "max_trials": 2}, name="going")
    cluster.run("going", rounds=2)

    with pytest.raises(NotFoundError, match="No job 'gone'"):
        check_search(cluster.store, search(resume_from="gone"))
    with pytest.raises(ConflictError, match="when it has ended"):
        check_search(cluster.store, search(resume_from="going"))
    with pytest.raises(NotFoundError, match="No trial 77"):
        check_search(cluster.store, search(warm_start={"trial": 77}))


def test_every_trial_starts_from_the_warm_start(cluster: Cluster) -> None:
    cluster.submit({"sampler": "random", "metric": "loss", "max_trials": 1}, name="first")
    cluster.run("first")
    (trained,) = cluster.store.job("first").trials

    start = {"trial": trained.id}
    cluster.submit({"sampler": "random", "metric": "loss", "max_trials": 2, "warm_start": start}, name="second")
    cluster.run("second")

    assert {cluster.launch(n, "second").latest_checkpoint for n in (1, 2)} == {"/checkpoints/first.1.1/16"}


def test_searcher_that_cannot_be_built_fails_its_job_in_words(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise UsageError("The tpe sampler needs optuna.")

    monkeypatch.setattr("stoker.server.searches.search.build_searcher", broken)
    cluster.submit({"sampler": "random", "metric": "loss", "max_trials": 2})

    cluster.run()

    assert cluster.store.job("job").reason == "The tpe sampler needs optuna."


def test_search_is_rebuilt_when_its_decisions_could_not_be_stored(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.submit({"sampler": "random", "metric": "loss", "max_trials": 4, "max_concurrent_trials": 2})
    record_search, failures = cluster.store.record_search, iter([True, False, True, True])

    def fails_at_times(*args: Any, **kwargs: Any) -> None:
        if next(failures, False):
            raise StoreError("The database failed: database or disk is full.")
        record_search(*args, **kwargs)

    monkeypatch.setattr(cluster.store, "record_search", fails_at_times)

    cluster.run()

    assert next(failures, None) is None
    job = cluster.store.job("job")
    assert (job.state, [trial.outcome for trial in job.trials]) == (JobState.SUCCEEDED, ["completed"] * 4)


def test_search_that_may_still_ask_does_not_look_finished(cluster: Cluster) -> None:
    cluster.submit({"sampler": "random", "metric": "loss", "max_trials": 5, "max_concurrent_trials": 1})

    looks = 0
    while sum(trial.outcome is not None for trial in cluster.store.job("job").trials) < 5:
        assert not cluster.store.summary("job").state.is_final
        assert cluster.store.has_work()
        cluster.scheduler._tend()  # without the search: trials that are over, and nobody has asked for the next
        assert not cluster.store.summary("job").state.is_final
        cluster.scheduler._searches.step()
        cluster.take_a_step()
        looks += 1

    assert looks > 5
    assert cluster.store.summary("job").state is JobState.SUCCEEDED


class Killed(BaseException):
    """As kill -9: nothing catches it."""


class DyingStore:
    """Calls a store, and dies before or after the nth call that writes."""

    WRITES = ("record_search", "move_run", "place_run", "order_stop", "add_run")

    def __init__(self, store: Store, *, at: int, after: bool) -> None:
        self._store, self._left, self._after = store, at, after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in self.WRITES:
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Killed
            result = method(*args, **kwargs)
            if self._left == 0:
                raise Killed
            return result

        return call


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("at_once", "every"), [(1, 7), (2, 11)])
def test_search_goes_on_after_its_server_was_killed_at_any_write(
    store: Store, engine: FakeEngine, clock: FakeClock, pool: Pool, home: Home, after: bool, at_once: int, every: int
) -> None:
    search = {
        "sampler": "random",
        "stopping": ASHA,
        "metric": "loss",
        "max_trials": 12,
        "max_concurrent_trials": at_once,
    }

    def a_scheduler(over: Any) -> Scheduler:
        pools = {"local": pool}
        return Scheduler(
            over, engines={"local": engine}, pools=pools, home=home, wakeups=Wakeups(), now=clock, background=AtOnce()
        )

    cluster = Cluster(store, a_scheduler(store), engine, clock, pool)
    cluster.submit(dict(search), name="whole")
    cluster.run("whole")
    cluster.submit(dict(search), name="job")
    deaths = 0
    while not store.summary("job").state.is_final:
        cluster.scheduler = a_scheduler(DyingStore(store, at=every + deaths % 3, after=after))
        try:
            cluster.run()
        except Killed:
            deaths += 1

    assert deaths > 5
    assert store.job("job").state is JobState.SUCCEEDED
    check_history(store)
    if at_once == 1:
        records = [store.search_past(name).records for name in ("whole", "job")]
        assert records[0] == records[1]


def test_order_that_a_run_did_not_hear_is_given_to_the_next(cluster: Cluster) -> None:
    """Told to pause, a trial reports what the search stops it for: resumed, it stops before it starts."""
    cluster.submit({"sampler": "random", "stopping": ASHA, "metric": "loss", "max_trials": 4})
    cluster.run(rounds=3)
    cluster.store.set_intent("job", Intent.PAUSE, by="ada", now=cluster.clock())
    cluster.settle()
    cluster.say("job.1.1", Metric(seq=0, time=0, group="validation", step=16, values={"loss": 9.0}))
    cluster.run(rounds=3)
    cluster.store.set_intent("job", Intent.RUN, by="ada", now=cluster.clock())

    cluster.run()

    (trial,) = cluster.store.trials("job", only=1).trials
    assert [run.stop for run in trial.runs] == [StopReason.PAUSE, StopReason.PRUNE]
    assert "job.1.2" not in cluster.engine.runs
    assert trial.outcome == "stopped"


def test_trials_are_listed_by_number_newest_and_best(cluster: Cluster) -> None:
    cluster.submit({"sampler": "random", "metric": "loss", "goal": "maximize", "max_trials": 9})
    cluster.run()

    def numbers(**how: Any) -> list[int]:
        return [trial.number for trial in cluster.store.trials("job", **how).trials]

    values = {trial.number: trial.objective or 0.0 for trial in cluster.store.trials("job").trials}
    assert numbers(limit=3) == [1, 2, 3]
    assert numbers(limit=3, after=3) == [4, 5, 6]
    assert numbers(sort="newest", limit=2) == [9, 8]
    assert numbers(sort="best", limit=2) == sorted(values, key=lambda number: -values[number])[:2]
    assert numbers(only=4) == [4]
    assert cluster.store.trials("job", limit=2).total == 9
    with pytest.raises(NotFoundError, match="no trial 10"):
        cluster.store.trials("job", only=10)
    with pytest.raises(UsageError, match="sorted by"):
        cluster.store.trials("job", sort="luck")


def test_search_that_failed_stays_failed(cluster: Cluster) -> None:
    cluster.submit({"sampler": "random", "metric": "loss", "max_trials": 2})
    cluster.store.record_search("job", SearchBatch(state="failed", failure="so it is"), now=cluster.clock())

    cluster.settle()

    job = cluster.store.job("job")
    assert (job.state, job.reason, job.trials) == (JobState.FAILED, "so it is", ())
