"""What every store must do; subclass it with a `store` fixture."""

import threading
from dataclasses import replace

import pytest

from stoker.errors import ConflictError, NotFoundError, UsageError
from stoker.schema.event import (
    Checkpoint,
    Event,
    EventBatch,
    Exited,
    Log,
    Metric,
    Phase,
    PhaseStarted,
    Progress,
)
from stoker.schema.job import JobSpec, Limits, RestartRules, Share
from stoker.schema.record import LogPage
from stoker.schema.state import Intent, JobState, RunState, StopReason
from stoker.search.base import Asked, Ended, Outcome, Reported, Suggestion
from stoker.server.store.store import Store
from stoker.server.store.values import JobQuery, LogFilter, NewJob, SearchBatch, SearchEntry


def a_spec(name: str = "taxi", **fields: object) -> JobSpec:
    return JobSpec.model_validate({"name": name, "module": "trainer.task", **fields})


def add(store: Store, name: str = "taxi", *, now: float = 100.0, pool: str = "local", **fields: object) -> str:
    new = NewJob(spec=a_spec(name, **fields), owner="ada", pool=pool, need=Share(cpus=2, memory_gb=1, gpus=0))
    store.add_job(new, now=now)
    return f"{name}.1.1"


def say(store: Store, run: str, *events: Event, node: int = 0, now: float = 200.0) -> int:
    return store.append_events(run, EventBatch(node=node, events=events), now=now).acked


def log(seq: int, text: str = "hello", *, time: float = 150.0, line: int = 1, **fields: object) -> Log:
    count = text.count("\n") + 1
    values = {"seq": seq, "time": time, "line": line, "count": count, "text": text, "replica": "chief-0"}
    return Log.model_validate({**values, "stream": "stdout", **fields})


def texts(page: LogPage) -> list[str]:
    return [block.text for block in page.blocks]


def finish(store: Store, run: str, state: RunState = RunState.SUCCEEDED, **how: object) -> None:
    store.move_run(run, RunState.STARTING, now=300.0)
    store.move_run(run, state, now=400.0, **how)  # type: ignore[arg-type]


class JobContract:
    """Jobs, trials, runs and their states."""

    def test_new_job_has_a_trial_and_a_queued_run(self, store: Store) -> None:
        new = NewJob(spec=a_spec(hparams={"lr": 0.1}), owner="ada", pool="local", need=Share())

        job, is_new = store.add_job(new, now=100.0)

        assert is_new
        assert (job.id, job.owner, job.pool, job.state, job.created) == ("taxi", "ada", "local", JobState.QUEUED, 100.0)
        assert job.spec == new.spec
        assert job.intent is Intent.RUN
        (trial,) = job.trials
        assert (trial.number, trial.hparams) == (1, {"lr": 0.1})
        assert [(run.id, run.attempt, run.state) for run in trial.runs] == [("taxi.1.1", 1, RunState.QUEUED)]
        assert store.job("taxi") == job

    def test_same_spec_again_is_the_same_job(self, store: Store) -> None:
        new = NewJob(spec=a_spec(), owner="ada", pool="local", need=Share())
        first, _ = store.add_job(new, now=100.0)

        again, is_new = store.add_job(new, now=101.0)

        assert not is_new
        assert again == first

    def test_same_name_with_another_spec_is_a_conflict_and_changes_nothing(self, store: Store) -> None:
        add(store)

        with pytest.raises(ConflictError, match="exists already"):
            add(store, priority=7)

        assert store.job("taxi").priority == 0
        assert len(store.pages.find_jobs(JobQuery()).jobs) == 1

    def test_same_spec_is_still_the_same_job_when_its_priority_was_changed(self, store: Store) -> None:
        add(store)
        store.change_job("taxi", priority=9, labels={"team": "fares"})

        add(store)

        job = store.job("taxi")
        assert (job.priority, job.labels) == (9, {"team": "fares"})

    @pytest.mark.parametrize(
        "ask", ["job", "summary", "checkpoints", "log_page", "metric_page", "change_job", "log_tail"]
    )
    def test_unknown_job_is_not_found(self, store: Store, ask: str) -> None:
        more = {"log_page": {"which": LogFilter()}, "log_tail": {"which": LogFilter(), "lines": 3}}.get(ask, {})

        with pytest.raises(NotFoundError, match="No job 'nope'"):
            getattr(store, ask)("nope", **more)

    @pytest.mark.parametrize("ask", ["run", "stop_order", "job_of", "place_run"])
    def test_unknown_run_is_not_found(self, store: Store, ask: str) -> None:
        with pytest.raises(NotFoundError, match="No run 'nope.1.1'"):
            getattr(store, ask)("nope.1.1")

    def test_job_of_a_run_is_found(self, store: Store) -> None:
        run = add(store)

        assert store.job_of(run) == store.job("taxi")

    def test_jobs_are_listed_newest_first_a_page_at_a_time(self, store: Store) -> None:
        for number in range(5):
            add(store, f"job_{number}")

        first = store.pages.find_jobs(JobQuery(limit=2)).jobs
        rest = store.pages.find_jobs(JobQuery(limit=10, before=first[-1].number)).jobs

        assert [job.id for job in first] == ["job_4", "job_3"]
        assert [job.id for job in rest] == ["job_2", "job_1", "job_0"]

    @pytest.mark.parametrize("sort", ["created", "name", "priority", "owner", "started"])
    @pytest.mark.parametrize("falling", [True, False])
    def test_pages_of_jobs_in_any_order_hold_each_job_once(self, store: Store, sort: str, falling: bool) -> None:
        for number in range(7):
            add(store, f"job_{number}", priority=number % 2)
        query = JobQuery(sort=sort, falling=falling, limit=2)
        pages = [store.pages.find_jobs(query)]
        while (after := pages[-1].after) is not None:
            pages.append(store.pages.find_jobs(replace(query, after=after)))

        whole = store.pages.find_jobs(replace(query, limit=100)).jobs
        assert [len(page.jobs) for page in pages] == [2, 2, 2, 1]
        assert tuple(job for page in pages for job in page.jobs) == whole
        assert len({job.id for job in whole}) == 7

    def test_jobs_are_counted_by_state_whatever_page_and_state_are_asked_for(self, store: Store) -> None:
        for number in range(4):
            add(store, f"job_{number}", pool="big" if number else "local")
        finish(store, "job_1.1.1")
        finish(store, "job_2.1.1", RunState.FAILED)
        hunt(store, trials=2)

        everywhere = store.pages.job_counts(JobQuery(states=frozenset({JobState.FAILED}), before=2, limit=1))
        assert everywhere == {JobState.QUEUED: 3, JobState.SUCCEEDED: 1, JobState.FAILED: 1}
        assert store.pages.job_counts(JobQuery(pool="local")) == {JobState.QUEUED: 2}
        assert store.pages.job_counts(JobQuery(name="job_?")) == {
            JobState.QUEUED: 2,
            JobState.SUCCEEDED: 1,
            JobState.FAILED: 1,
        }

    def test_jobs_are_filtered_by_name_label_pool_and_state(self, store: Store) -> None:
        add(store, "taxi_1", labels={"team": "a_b"})
        add(store, "taxi_2", labels={"team": "axb"}, pool="big")
        add(store, "Taxi_3")
        finish(store, "Taxi_3.1.1")

        def names(**which: object) -> list[str]:
            return [job.id for job in store.pages.find_jobs(JobQuery(**which)).jobs]  # type: ignore[arg-type]

        assert names(name="taxi") == ["taxi_2", "taxi_1"]
        assert names(name="?axi_*") == ["Taxi_3", "taxi_2", "taxi_1"]
        assert names(name="taxi_?") == ["taxi_2", "taxi_1"]
        assert names(name="axi") == []
        assert names(labels=(("team", "a_b"),)) == ["taxi_1"]
        assert names(labels=(("team", "b"),)) == []
        assert names(pool="big") == ["taxi_2"]
        assert names(states=frozenset({JobState.QUEUED})) == ["taxi_2", "taxi_1"]
        assert names(states=frozenset({JobState.SUCCEEDED, JobState.FAILED})) == ["Taxi_3"]

    def test_page_is_full_though_most_jobs_are_in_another_state(self, store: Store) -> None:
        for number in range(30):
            add(store, f"job_{number}")
        for number in (1, 3, 5):
            finish(store, f"job_{number}.1.1")

        found = store.pages.find_jobs(JobQuery(states=frozenset({JobState.SUCCEEDED}), limit=2)).jobs

        assert [job.id for job in found] == ["job_5", "job_3"]

    def test_summary_is_the_jobs_line(self, store: Store) -> None:
        run = add(store)
        say(store, run, Progress(seq=1, time=1.0, fraction=0.25))

        line = store.summary("taxi")

        assert line == store.pages.find_jobs(JobQuery()).jobs[0]
        assert line.progress == 0.25

    # --- states

    def test_run_goes_through_its_states_and_the_job_follows(self, store: Store) -> None:
        run = add(store)
        states = [store.job("taxi").state]
        for state in (RunState.STARTING, RunState.RUNNING, RunState.SUCCEEDED):
            store.move_run(run, state, now=300.0)
            states.append(store.job("taxi").state)

        assert states == [JobState.QUEUED, JobState.PREPARING, JobState.RUNNING, JobState.SUCCEEDED]
        assert store.run(run).ended == 300.0
        assert store.job("taxi").ended == 300.0

    def test_move_that_the_state_machine_forbids_changes_nothing(self, store: Store) -> None:
        run = add(store)

        with pytest.raises(ConflictError, match="QUEUED cannot become RUNNING"):
            store.move_run(run, RunState.RUNNING, now=300.0, message="nope")

        assert store.run(run).state is RunState.QUEUED
        assert store.run(run).message == ""

    def test_final_run_cannot_be_moved(self, store: Store) -> None:
        run = add(store)
        finish(store, run)

        for state in RunState:
            with pytest.raises(ConflictError):
                store.move_run(run, state, now=500.0)

    def test_restart_adds_the_next_run_with_the_end_of_the_last(self, store: Store) -> None:
        run = add(store)

        finish(store, run, RunState.FAILED, message="boom", restart=True)

        job = store.job("taxi")
        assert job.state is JobState.QUEUED
        assert job.ended is None
        assert [(r.id, r.state, r.message) for r in job.trials[0].runs] == [
            ("taxi.1.1", RunState.FAILED, "boom"),
            ("taxi.1.2", RunState.QUEUED, ""),
        ]

    def test_restart_of_a_run_that_is_not_over_is_refused(self, store: Store) -> None:
        run = add(store)

        with pytest.raises(ConflictError, match="not over"):
            store.move_run(run, RunState.STARTING, now=1.0, restart=True)

        assert store.run(run).state is RunState.QUEUED

    def test_failed_jobs_reason_names_phase_and_message(self, store: Store) -> None:
        run = add(store)
        say(store, run, PhaseStarted(seq=1, time=1.0, phase=Phase.ENVIRONMENT))

        finish(store, run, RunState.FAILED, message="no matching torch")

        assert store.job("taxi").reason == "environment: no matching torch"

    def test_next_run_is_added_only_after_the_end_of_the_last(self, store: Store) -> None:
        run = add(store)
        trial = store.job("taxi").trials[0].id
        with pytest.raises(ConflictError, match="has to wait"):
            store.add_run(trial, now=1.0)
        store.move_run(run, RunState.STOPPED, now=2.0, stop=StopReason.PAUSE)

        added = store.add_run(trial, now=3.0)

        assert (added.id, added.attempt, added.state, added.created) == ("taxi.1.2", 2, RunState.QUEUED, 3.0)

    # --- intent and orders

    def test_intent_is_set_again_and_again(self, store: Store) -> None:
        add(store)

        for intent in (Intent.PAUSE, Intent.PAUSE, Intent.RUN, Intent.STOP, Intent.STOP):
            assert store.set_intent("taxi", intent, by="ada", now=1.0).intent is intent

    def test_cancelled_job_cannot_be_resumed(self, store: Store) -> None:
        add(store)
        store.set_intent("taxi", Intent.STOP, by="ada", now=1.0)

        with pytest.raises(ConflictError, match="being cancelled"):
            store.set_intent("taxi", Intent.RUN, by="ada", now=2.0)

    def test_finished_job_can_be_cancelled_without_effect_and_not_paused(self, store: Store) -> None:
        finish(store, add(store))

        job = store.set_intent("taxi", Intent.STOP, by="ada", now=500.0)
        with pytest.raises(ConflictError, match="has ended"):
            store.set_intent("taxi", Intent.PAUSE, by="ada", now=500.0)

        assert job.state is JobState.SUCCEEDED
        assert job.intent is Intent.RUN

    def test_paused_job_is_unfinished_until_it_is_cancelled(self, store: Store) -> None:
        run = add(store)
        store.set_intent("taxi", Intent.PAUSE, by="ada", now=1.0)
        store.move_run(run, RunState.STOPPED, now=2.0, stop=StopReason.PAUSE)
        assert store.job("taxi").state is JobState.PAUSED
        assert store.job("taxi").reason.startswith("paused by ada")
        assert [job.id for job in store.unfinished()] == ["taxi"]
        assert not store.has_work()

        store.set_intent("taxi", Intent.STOP, by="eve", now=3.0)

        job = store.job("taxi")
        assert (job.state, job.ended, job.reason) == (JobState.CANCELLED, 3.0, "cancelled by eve")
        assert store.unfinished() == ()

    def test_first_stop_order_stays(self, store: Store) -> None:
        run = add(store)
        store.move_run(run, RunState.STARTING, now=1.0)
        assert store.stop_order(run) is None

        store.order_stop(run, StopReason.PAUSE, now=2.0)
        store.order_stop(run, StopReason.CANCEL, now=3.0)

        assert store.stop_order(run) is StopReason.PAUSE
        (job,) = store.unfinished()
        assert (job.trials[0].run.stop, job.trials[0].run.stop_time) == (StopReason.PAUSE, 2.0)

    def test_supervisor_of_a_run_that_is_over_is_told_to_go(self, store: Store) -> None:
        run = add(store)
        finish(store, run, RunState.LOST, restart=True)

        assert store.stop_order(run) is StopReason.CANCEL
        assert store.append_events(run, EventBatch(events=()), now=1.0).stop is StopReason.CANCEL
        with pytest.raises(ConflictError, match="is over"):
            store.order_stop(run, StopReason.PAUSE, now=2.0)

    # --- what the scheduler sees

    def test_unfinished_jobs_say_all_that_scheduling_takes(self, store: Store) -> None:
        fields = {
            "priority": 5,
            "restarts": RestartRules(max_restarts=2, exit_codes=(1, 137)),
            "limits": Limits(max_waiting_s=60, grace_s=7),
        }
        run = add(store, **fields)
        add(store, "done")
        finish(store, "done.1.1")
        finish(store, run, RunState.FAILED, restart=True)
        finish(store, "taxi.1.2", RunState.LOST, restart=True)
        store.move_run("taxi.1.3", RunState.STARTING, now=500.0)
        store.place_run("taxi.1.3", directory="/runs/taxi/1/3")
        store.place_run("taxi.1.3", handle="h3")
        end = Exited(seq=2, time=9.0, phase=Phase.USER_CODE, code=1, message="boom")
        say(store, "taxi.1.3", PhaseStarted(seq=1, time=8.0, phase=Phase.USER_CODE), end)

        (job,) = store.unfinished()

        assert (job.id, job.pool, job.priority, job.intent) == ("taxi", "local", 5, Intent.RUN)
        assert job.need == Share(cpus=2, memory_gb=1, gpus=0)
        assert (job.max_restarts, job.exit_codes, job.max_waiting_s, job.grace_s) == (2, (1, 137), 60.0, 7.0)
        (trial,) = job.trials
        assert (trial.number, trial.failures, trial.losses) == (1, 1, 1)
        now = trial.run
        assert (now.id, now.state, now.handle, now.phase) == ("taxi.1.3", RunState.STARTING, "h3", Phase.USER_CODE)
        assert now.exit == end
        assert store.run("taxi.1.3").directory == "/runs/taxi/1/3"
        assert store.has_work()


class EventContract:
    """Each event once, in order."""

    def test_events_become_what_they_say(self, store: Store) -> None:
        run = add(store)
        end = Exited(seq=8, time=9.0, phase=Phase.USER_CODE, code=0)

        acked = say(
            store,
            run,
            PhaseStarted(seq=1, time=1.0, phase=Phase.PACKAGE),
            PhaseStarted(seq=2, time=2.0, phase=Phase.USER_CODE),
            log(3, "a\nb"),
            Metric(seq=4, time=4.0, step=1, values={"loss": 0.5}),
            Metric(seq=5, time=5.0, step=1, group="validation", values={"loss": 0.7}),
            Checkpoint(seq=6, time=6.0, step=1, path="/c/1", size_bytes=5, metadata={"best": True}),
            Progress(seq=7, time=7.0, fraction=0.5),
            end,
        )

        assert acked == 8
        job = store.job("taxi")
        (trial,) = job.trials
        assert trial.metrics == {"loss": 0.5, "validation/loss": 0.7}
        assert (trial.progress, trial.latest_checkpoint) == (0.5, "/c/1")
        (found,) = trial.runs
        assert (found.phase, found.started, found.exit) == (Phase.USER_CODE, 2.0, end)
        assert found.state is RunState.QUEUED, "only move_run changes a state"
        assert job.started == 2.0
        assert texts(store.log_page("taxi", LogFilter())) == ["a\nb"]
        points = store.metric_page("taxi").points
        assert [(p.run, p.trial, p.group, p.step, p.values) for p in points] == [
            (run, 1, "training", 1, {"loss": 0.5}),
            (run, 1, "validation", 1, {"loss": 0.7}),
        ]
        (checkpoint,) = store.checkpoints("taxi")
        assert (checkpoint.run, checkpoint.step, checkpoint.path, checkpoint.size_bytes) == (run, 1, "/c/1", 5)
        assert checkpoint.metadata == {"best": True}

    def test_batch_sent_twice_is_taken_once(self, store: Store) -> None:
        run = add(store)
        batch = (log(1, "one"), log(2, "two"))

        assert say(store, run, *batch) == 2
        assert say(store, run, *batch) == 2

        assert texts(store.log_page("taxi", LogFilter())) == ["one", "two"]

    def test_overlapping_batches_are_taken_once_each(self, store: Store) -> None:
        run = add(store)
        say(store, run, log(1, "one"), log(2, "two"))

        assert say(store, run, log(2, "two"), log(3, "three")) == 3
        assert say(store, run, log(1, "one")) == 3

        assert texts(store.log_page("taxi", LogFilter())) == ["one", "two", "three"]

    def test_nothing_is_taken_beyond_a_gap(self, store: Store) -> None:
        run = add(store)

        assert say(store, run, log(1, "one"), log(3, "three")) == 1
        assert say(store, run, log(5, "five")) == 1
        assert texts(store.log_page("taxi", LogFilter())) == ["one"]

        assert say(store, run, log(2, "two"), log(3, "three")) == 3
        assert texts(store.log_page("taxi", LogFilter())) == ["one", "two", "three"]

    def test_empty_batch_asks_how_far_it_is(self, store: Store) -> None:
        run = add(store)

        assert say(store, run) == 0
        say(store, run, log(1))
        assert say(store, run) == 1

    def test_nodes_and_runs_are_numbered_apart(self, store: Store) -> None:
        run, other = add(store), add(store, "bus")
        say(store, run, log(1, "node 0"))

        assert say(store, run, log(1, "node 1"), node=1) == 1
        assert say(store, other, log(1, "other")) == 1

        assert [(b.node, b.text) for b in store.log_page("taxi", LogFilter()).blocks] == [(0, "node 0"), (1, "node 1")]

    def test_events_of_a_final_run_are_still_taken(self, store: Store) -> None:
        run = add(store)
        finish(store, run, RunState.LOST, restart=True)

        say(store, run, log(1, "last words"), Checkpoint(seq=2, time=50.0, step=9, path="/c/9"))

        assert texts(store.log_page("taxi", LogFilter())) == ["last words"]
        assert store.job("taxi").trials[0].latest_checkpoint == "/c/9"

    def test_checkpoint_heard_of_late_does_not_replace_a_newer_one(self, store: Store) -> None:
        run = add(store)
        finish(store, run, RunState.LOST, restart=True)
        say(store, "taxi.1.2", Checkpoint(seq=1, time=80.0, step=20, path="/c/20"))

        say(store, run, Checkpoint(seq=1, time=50.0, step=9, path="/c/9"))

        assert store.job("taxi").trials[0].latest_checkpoint == "/c/20"
        assert [found.step for found in store.checkpoints("taxi")] == [20, 9]

    def test_first_exit_stays(self, store: Store) -> None:
        run = add(store)
        say(store, run, Exited(seq=1, time=1.0, phase=Phase.USER_CODE, code=3))

        say(store, run, Exited(seq=1, time=2.0, phase=Phase.USER_CODE, code=0), node=1)

        found = store.run(run).exit
        assert found is not None
        assert found.code == 3

    def test_odd_numbers_are_kept_or_made_bearable_but_never_refused(self, store: Store) -> None:
        run = add(store)
        nan, inf = float("nan"), float("inf")

        acked = say(
            store,
            run,
            Metric(seq=1, time=inf, step=10**30, values={"loss": nan, "best": -inf}),
            Progress(seq=2, time=nan, fraction=nan),
            Progress(seq=3, time=1.0, fraction=7.5),
            Checkpoint(seq=4, time=nan, step=-(10**30), path="/c", size_bytes=10**40),
            log(5, time=inf, line=10**30),
        )

        assert acked == 5
        (point,) = store.metric_page("taxi").points
        assert point.values["loss"] != point.values["loss"]
        assert point.values["best"] == -inf
        assert store.job("taxi").trials[0].progress == 1.0
        assert store.job("taxi").trials[0].latest_checkpoint == "/c"
        assert len(store.log_page("taxi", LogFilter()).blocks) == 1

    def test_moved_says_whether_the_scheduler_should_look(self, store: Store) -> None:
        run = add(store)

        def moved(*events: Event) -> bool:
            return store.append_events(run, EventBatch(events=events), now=1.0).moved

        assert not moved(log(1), Progress(seq=2, time=1.0, fraction=0.1))
        assert moved(PhaseStarted(seq=3, time=1.0, phase=Phase.START))
        assert not moved(PhaseStarted(seq=3, time=1.0, phase=Phase.START))
        assert moved(Exited(seq=4, time=1.0, phase=Phase.START, code=1))

    def test_metrics_are_paged(self, store: Store) -> None:
        run = add(store)
        say(store, run, *(Metric(seq=n, time=1.0, step=n, values={"loss": 1.0}) for n in range(1, 8)))

        steps: list[int] = []
        cursor = 0
        while points := (page := store.metric_page("taxi", after=cursor, limit=3)).points:
            assert len(points) <= 3
            steps += [point.step for point in points]
            cursor = page.cursor

        assert steps == list(range(1, 8))

    def test_writers_at_the_same_time_lose_nothing(self, store: Store) -> None:
        runs = [add(store, f"job_{number}") for number in range(4)]

        def speak(run: str) -> None:
            for seq in range(1, 26):
                say(store, run, log(seq, f"line {seq}"))
                say(store, run, log(seq, f"line {seq}"))

        threads = [threading.Thread(target=speak, args=(run,)) for run in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        for number in range(4):
            expected = [f"line {seq}" for seq in range(1, 26)]
            assert texts(store.log_page(f"job_{number}", LogFilter())) == expected


class LogContract:
    """Pages, tails and filters."""

    def test_log_is_paged_by_lines_without_loss(self, store: Store) -> None:
        run = add(store)
        say(store, run, *(log(n, f"{n} a\n{n} b\n{n} c", line=3 * n - 2) for n in range(1, 201)))

        told: list[str] = []
        cursor, pages = 0, 0
        while blocks := (page := store.log_page("taxi", LogFilter(), after=cursor, limit=10)).blocks:
            assert len(blocks) == 4, "a page ends with the block that reaches the limit"
            told += [line for block in blocks for line in block.text.split("\n")]
            cursor, pages = page.cursor, pages + 1

        assert told == [f"{n} {letter}" for n in range(1, 201) for letter in "abc"]
        assert pages == 50

    def test_cursor_stays_where_it_is_when_there_is_no_more(self, store: Store) -> None:
        run = add(store)
        say(store, run, log(1), log(2))
        cursor = store.log_page("taxi", LogFilter()).cursor

        page = store.log_page("taxi", LogFilter(), after=cursor)
        assert (page.blocks, page.cursor) == ((), cursor)

        say(store, run, log(3, "new"))
        assert texts(store.log_page("taxi", LogFilter(), after=cursor)) == ["new"]

    def test_block_says_whose_lines_it_holds(self, store: Store) -> None:
        run = add(store)
        say(store, run, log(1, "x\ny", replica="worker-1", stream="stderr", line=41, time=7.5, levels={1: "ERROR"}))

        (block,) = store.log_page("taxi", LogFilter()).blocks

        assert (block.run, block.trial, block.attempt, block.node) == (run, 1, 1, 0)
        assert (block.replica, block.stream, block.line, block.time) == ("worker-1", "stderr", 41, 7.5)
        assert block.levels == {1: "ERROR"}

    @pytest.fixture
    def spoken(self, store: Store) -> Store:
        run = add(store)
        say(
            store,
            run,
            log(1, "Begin\nstep 1\nstep 2", time=10.0, line=1),
            log(
                2, "warn: hot\nplain\nTraceback", time=20.0, line=1, stream="stderr", levels={0: "WARNING", 2: "ERROR"}
            ),
            log(3, "STEP 3\ndebugging", time=30.0, line=4, replica="worker-0", levels={1: "DEBUG"}),
        )
        return store

    @pytest.mark.parametrize(
        ("which", "found"),
        [
            ({"replica": "worker-0"}, ["STEP 3\ndebugging"]),
            ({"replica": "nobody"}, []),
            ({"level": "WARNING"}, ["warn: hot\nTraceback"]),
            ({"level": "error"}, ["Traceback"]),
            ({"level": "INFO"}, ["Begin\nstep 1\nstep 2", "warn: hot\nplain\nTraceback", "STEP 3"]),
            ({"level": "DEBUG"}, ["Begin\nstep 1\nstep 2", "warn: hot\nplain\nTraceback", "STEP 3\ndebugging"]),
            ({"text": "step"}, ["step 1\nstep 2", "STEP 3"]),
            ({"text": "nowhere"}, []),
            ({"regex": r"^step \d$"}, ["step 1\nstep 2"]),
            ({"since": 20.0}, ["warn: hot\nplain\nTraceback", "STEP 3\ndebugging"]),
            ({"until": 20.0}, ["Begin\nstep 1\nstep 2", "warn: hot\nplain\nTraceback"]),
            ({"text": "step", "regex": "3", "replica": "worker-0"}, ["STEP 3"]),
        ],
    )
    def test_log_is_filtered_by_line(self, spoken: Store, which: dict[str, object], found: list[str]) -> None:
        assert texts(spoken.log_page("taxi", LogFilter(**which))) == found  # type: ignore[arg-type]

    def test_filtered_block_says_where_its_first_line_was_and_keeps_levels(self, spoken: Store) -> None:
        (block,) = spoken.log_page("taxi", LogFilter(regex="plain|Trace")).blocks

        assert (block.text, block.line, block.levels) == ("plain\nTraceback", 2, {1: "ERROR"})

    def test_bad_regular_expression_is_a_usage_error(self, spoken: Store) -> None:
        with pytest.raises(UsageError, match="not a regular expression"):
            spoken.log_page("taxi", LogFilter(regex="("))

    def test_regular_expression_that_never_ends_is_refused_and_the_next_is_answered(self, store: Store) -> None:
        say(store, add(store), log(1, "a" * 60 + "!"))

        with pytest.raises(UsageError, match="takes too long on this log"):
            store.log_page("taxi", LogFilter(regex="(a+)+$"))

        assert len(store.log_tail("taxi", LogFilter(regex="a+!"), lines=1).blocks) == 1

    @pytest.mark.parametrize(
        ("lines", "which", "found"),
        [
            (1, {}, ["debugging"]),
            (3, {}, ["Traceback", "STEP 3\ndebugging"]),
            (100, {}, ["Begin\nstep 1\nstep 2", "warn: hot\nplain\nTraceback", "STEP 3\ndebugging"]),
            (2, {"text": "step"}, ["step 2", "STEP 3"]),
            (0, {}, []),
        ],
    )
    def test_tail_is_the_last_lines(
        self, spoken: Store, lines: int, which: dict[str, object], found: list[str]
    ) -> None:
        page = spoken.log_tail("taxi", LogFilter(**which), lines=lines)  # type: ignore[arg-type]

        assert texts(page) == found
        assert page.cursor == spoken.log_page("taxi", LogFilter()).cursor

    def test_tail_keeps_levels_and_line_numbers(self, spoken: Store) -> None:
        page = spoken.log_tail("taxi", LogFilter(until=20.0), lines=2)

        (block,) = page.blocks
        assert (block.text, block.line, block.levels) == ("plain\nTraceback", 2, {1: "ERROR"})

    def test_tail_reaches_back_over_many_blocks(self, store: Store) -> None:
        run = add(store)
        say(store, run, *(log(n, f"line {n}", line=n) for n in range(1, 301)))

        assert texts(store.log_tail("taxi", LogFilter(), lines=200)) == [f"line {n}" for n in range(101, 301)]

    def test_any_text_comes_back_as_it_was(self, store: Store) -> None:
        run = add(store)
        text = "tab\tnul\x00 bell\x07 ümläut 語 🚕 \u2028 \x85 end"

        say(store, run, log(1, text))

        assert texts(store.log_page("taxi", LogFilter())) == [text]

    def test_log_of_one_trial_is_read_by_its_number(self, store: Store) -> None:
        hunt(store, trials=3)
        for trial in (2, 1, 3, 1):
            run = store.trials("hunt", only=trial).trials[0].runs[-1].id
            acked = say(store, run)
            say(store, run, log(acked + 1, f"from {trial}"))
        store.move_run("hunt.1.1", RunState.STARTING, now=1.0)
        store.move_run("hunt.1.1", RunState.LOST, now=2.0, restart=True)
        say(store, "hunt.1.2", log(1, "from 1 again"))

        of_1 = LogFilter(trial=1)

        assert texts(store.log_page("hunt", of_1)) == ["from 1", "from 1", "from 1 again"]
        assert texts(store.log_tail("hunt", of_1, lines=2)) == ["from 1", "from 1 again"]
        assert texts(store.log_page("hunt", LogFilter(trial=3))) == ["from 3"]
        assert texts(store.log_page("hunt", LogFilter(trial=9))) == []


SPACE = {"lr": {"type": "double", "min": 0, "max": 1}}


def hunt(store: Store, *, trials: int, goal: str = "minimize", name: str = "hunt", **fields: object) -> None:
    """A job with a search, and its first trials."""
    search = {"space": SPACE, "metric": "loss", "goal": goal, "max_trials": 20}
    new = NewJob(spec=a_spec(name, search=search, **fields), owner="ada", pool="local", need=Share(cpus=1))
    store.add_job(new, now=100.0)
    store.record_search(name, SearchBatch([asked(number) for number in range(1, trials + 1)]), now=101.0)


def asked(number: int) -> SearchEntry:
    hparams = {"lr": number / 100}
    return SearchEntry(Asked(suggestion=Suggestion(trial=number, hparams=hparams, seed=number)), hparams=hparams)


def over(number: int, outcome: Outcome) -> SearchEntry:
    return SearchEntry(Ended(trial=number, outcome=outcome))


def hear(store: Store, losses: dict[int, float], *ended: SearchEntry, name: str = "hunt") -> None:
    told = [Reported(trial=number, step=1, values={"loss": loss}) for number, loss in losses.items()]
    entries = [SearchEntry(record) for record in told]
    values = {number: {"loss": loss} for number, loss in losses.items()}
    store.record_search(name, SearchBatch([*entries, *ended], values=values), now=200.0)


class SearchContract:
    """What a search comes to, told without reading its trials."""

    def test_job_says_what_its_search_has_come_to(self, store: Store) -> None:
        hunt(store, trials=4)
        add(store, "plain")
        hear(store, {1: 0.5, 2: 0.25, 3: 0.75}, over(1, Outcome.COMPLETED), over(3, Outcome.STOPPED))

        found = {job.id: job.search for job in store.pages.find_jobs(JobQuery()).jobs}

        assert found["plain"] is None
        summary = found["hunt"]
        assert summary == store.summary("hunt").search == store.job("hunt").search
        assert summary is not None
        assert (summary.metric, summary.trials, summary.best, summary.best_trial) == ("loss", 4, 0.25, 2)
        assert summary.outcomes == {"completed": 1, "stopped": 1}

    def test_best_is_never_a_trial_that_failed_and_the_older_of_equals(self, store: Store) -> None:
        hunt(store, trials=4, goal="maximize")
        hear(store, {1: 0.5, 2: 0.9, 3: 0.5}, over(1, Outcome.COMPLETED))
        assert best_of(store) == (0.9, 2)

        hear(store, {}, over(2, Outcome.FAILED))
        assert best_of(store) == (0.5, 1)

        hear(store, {1: 0.1, 3: 0.1})
        hear(store, {}, over(1, Outcome.INVALID_HP), over(3, Outcome.FAILED))
        assert best_of(store) == (None, None)

    def test_results_are_read_once_and_then_what_is_new(self, store: Store) -> None:
        hunt(store, trials=3)
        first = store.search_results("hunt", after=0)
        assert [result.number for result in first.results] == [1, 2, 3]
        assert store.search_results("hunt", after=first.cursor).results == ()

        hear(store, {2: 0.5}, over(3, Outcome.COMPLETED))

        second = store.search_results("hunt", after=first.cursor)
        assert [(r.number, r.objectives, r.outcome) for r in sorted(second.results, key=lambda r: r.number)] == [
            (2, {"loss": 0.5}, None),
            (3, {}, "completed"),
        ]
        assert store.search_results("hunt", after=second.cursor).results == ()

    def test_trials_are_counted_by_state_and_found_by_number_and_by_id(self, store: Store) -> None:
        hunt(store, trials=4)
        store.move_run("hunt.1.1", RunState.STARTING, now=1.0)
        finish(store, "hunt.2.1")
        finish(store, "hunt.3.1", RunState.STOPPED, stop=StopReason.PRUNE)

        assert store.trial_states("hunt") == {JobState.QUEUED: 1, JobState.PREPARING: 1, JobState.SUCCEEDED: 2}
        assert [trial.number for trial in store.trials_numbered("hunt", [3, 1, 9])] == [3, 1]
        known = store.trials("hunt", only=3).trials[0]
        found = store.trial(known.id)
        assert (found.job, found.number, found.runs) == ("hunt", 3, known.runs)
        with pytest.raises(NotFoundError, match="No trial has the id 123456"):
            store.trial(123456)

    def test_max_slots_are_changed_of_a_search_alone(self, store: Store) -> None:
        hunt(store, trials=1, resources={"slots": 2})
        add(store, "plain")

        changed = store.change_job("hunt", max_slots=5)

        assert changed.search is not None
        assert changed.search.max_slots == 5
        assert {job.id: job.max_live for job in store.unfinished()} == {"hunt": 2, "plain": None}
        with pytest.raises(ConflictError, match="'plain' has no search"):
            store.change_job("plain", priority=3, max_slots=5)
        assert store.job("plain").priority == 0

    def test_kill_is_a_stop_that_the_scheduler_hears_of_as_such(self, store: Store) -> None:
        add(store)
        store.set_intent("taxi", Intent.STOP, by="ada", now=1.0)
        assert [(job.intent, job.is_killed) for job in store.unfinished()] == [(Intent.STOP, False)]

        store.set_intent("taxi", Intent.STOP, by="ada", now=2.0, kill=True)

        assert [(job.intent, job.is_killed) for job in store.unfinished()] == [(Intent.STOP, True)]


def best_of(store: Store) -> tuple[float | None, int | None]:
    summary = store.summary("hunt").search
    assert summary is not None
    return summary.best, summary.best_trial


class StoreContract(JobContract, EventContract, LogContract, SearchContract):
    """All of it."""
