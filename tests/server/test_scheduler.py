"""Ticks over a real store and an engine without processes."""

import pytest

from stoker.errors import StokerError
from stoker.host.home import Home
from stoker.schema.event import Checkpoint, Event, EventBatch, Exited, Log, Phase, PhaseStarted
from stoker.schema.job import JobSpec, Limits, Resources, RestartRules, Share
from stoker.schema.pool import Pool
from stoker.schema.record import Run
from stoker.schema.state import Intent, JobState, RunState, StopReason
from stoker.server.live.wakeups import Wakeups
from stoker.server.scheduling.placement import replicas_for
from stoker.server.scheduling.scheduler import Scheduler
from stoker.server.store.store import Store
from stoker.server.store.values import LogFilter, NewJob
from tests.server.fakes import FakeClock, FakeEngine


@pytest.fixture
def world(store: Store, scheduler: Scheduler, engine: FakeEngine, clock: FakeClock, pool: Pool) -> "World":
    return World(store, scheduler, engine, clock, pool)


class World:
    """Says in a line what a user, a supervisor or time does."""

    def __init__(self, store: Store, scheduler: Scheduler, engine: FakeEngine, clock: FakeClock, pool: Pool) -> None:
        self.store, self.scheduler, self.engine, self.clock, self.pool = store, scheduler, engine, clock, pool
        self._seq: dict[str, int] = {}

    def submit(self, name: str = "taxi", **fields: object) -> None:
        spec = JobSpec.model_validate({"name": name, "module": "trainer.task", **fields})
        need = Share.total(replicas_for(spec.resources, self.pool))
        self.store.add_job(NewJob(spec=spec, owner="ada", pool="local", need=need), now=self.clock())

    def settle(self) -> None:
        for _ in range(20):
            if not self.scheduler.tick():
                return
        raise AssertionError("the scheduler does not come to rest")

    def pass_time(self, seconds: float) -> None:
        self.settle()
        self.clock.advance(seconds)
        self.settle()

    def say(self, run: str, *events: Event) -> None:
        seq = self._seq.get(run, 0)
        numbered = [event.with_(seq=seq + at) for at, event in enumerate(events, 1)]
        self._seq[run] = seq + len(events)
        self.store.append_events(run, EventBatch(events=tuple(numbered)), now=self.clock())

    def begin(self, run: str) -> None:
        self.settle()
        self.say(run, PhaseStarted(seq=0, time=self.clock(), phase=Phase.USER_CODE))
        self.settle()

    def end(self, run: str, *, lingers: bool = False, **how: object) -> None:
        values = {"seq": 0, "time": self.clock(), "phase": "user code", "code": 0, **how}
        self.say(run, Exited.model_validate(values))
        if not lingers:
            self.engine.dies(run)
        self.settle()

    def want(self, intent: Intent, job: str = "taxi") -> None:
        self.store.set_intent(job, intent, by="ada", now=self.clock())
        self.settle()

    def state(self, job: str = "taxi") -> JobState:
        return self.store.job(job).state

    def runs(self, job: str = "taxi") -> list[Run]:
        return list(self.store.job(job).trials[0].runs)

    def run_states(self, job: str = "taxi") -> list[RunState]:
        return [run.state for run in self.runs(job)]


def test_job_runs_from_submission_to_success(world: World, home: Home) -> None:
    world.submit(args=["--epochs", "3"], hparams={"lr": 0.1}, job_dir="/out", seed=7)

    world.settle()
    assert world.state() is JobState.PREPARING
    (launch,) = world.engine.launches
    assert (launch.run, launch.job, launch.trial, launch.attempt) == ("taxi.1.1", "taxi", 1, 1)
    assert (launch.module, launch.args, launch.hparams) == ("trainer.task", ("--epochs", "3"), {"lr": 0.1})
    assert (launch.job_dir, launch.seed, launch.latest_checkpoint) == ("/out", 7, None)
    assert launch.trial_id == world.store.job("taxi").trials[0].id
    assert world.runs()[0].directory == str(home.run_dir("taxi", 1, 1))

    world.begin("taxi.1.1")
    assert world.state() is JobState.RUNNING

    world.end("taxi.1.1")
    assert world.state() is JobState.SUCCEEDED


def test_pool_is_never_given_more_than_it_holds(world: World) -> None:
    for number in range(5):
        world.submit(f"job_{number}")
    world.settle()
    assert world.engine.runs == ["job_0.1.1", "job_1.1.1"]

    world.end("job_0.1.1")
    assert world.engine.runs == ["job_0.1.1", "job_1.1.1", "job_2.1.1"]


def test_run_of_several_replicas_waits_until_all_have_a_place(world: World) -> None:
    world.submit("small")
    world.submit("wide", resources=Resources(slots=2))
    world.settle()
    assert world.engine.runs == ["small.1.1"]
    assert world.scheduler.reasons() == {"wide": "waits for 2 CPUs of pool 'local': 1 is free"}

    world.end("small.1.1")

    assert [replica.name for replica in world.engine.launches[-1].replicas] == ["chief-0", "worker-0"]
    assert world.scheduler.reasons() == {}


def test_run_fails_with_the_engines_words_when_it_cannot_be_started(world: World) -> None:
    world.engine.refuses = StokerError("The machine is on fire.")
    world.submit(restarts=RestartRules(max_restarts=3))

    world.settle()

    assert world.run_states() == [RunState.FAILED]
    assert world.store.job("taxi").reason == "The machine is on fire."


def test_failed_run_is_restarted_from_its_latest_checkpoint(world: World) -> None:
    world.submit(restarts=RestartRules(max_restarts=1))
    world.begin("taxi.1.1")
    world.say("taxi.1.1", Checkpoint(seq=0, time=5.0, step=5, path="/c/5"))

    world.end("taxi.1.1", code=1, message="ValueError: boom")
    assert world.engine.launches[-1].latest_checkpoint == "/c/5"
    assert world.engine.launches[-1].attempt == 2
    world.begin("taxi.1.2")
    world.end("taxi.1.2", code=1, message="ValueError: boom again")

    assert world.run_states() == [RunState.FAILED, RunState.FAILED]
    assert world.store.job("taxi").reason == "user code: ValueError: boom again"


def test_restarted_run_has_only_the_running_time_that_is_left(world: World) -> None:
    world.submit(restarts=RestartRules(max_restarts=2), limits=Limits(max_running_s=100))
    world.begin("taxi.1.1")
    world.clock.advance(30)
    world.end("taxi.1.1", code=1)
    world.clock.advance(500)  # waiting is not running
    world.begin("taxi.1.2")
    world.clock.advance(90)
    world.end("taxi.1.2", code=1)

    assert [launch.max_running_s for launch in world.engine.launches] == [100.0, 70.0, 1.0]


def test_supervisor_of_an_ended_run_is_asked_after_until_it_is_gone(world: World) -> None:
    world.submit()
    world.begin("taxi.1.1")
    world.end("taxi.1.1", lingers=True)
    assert world.state() is JobState.SUCCEEDED
    asked: list[str] = []
    poll = world.engine.poll
    world.engine.poll = lambda handles: asked.extend(handles) or poll(handles)  # type: ignore[method-assign, func-returns-value]

    world.settle()
    world.engine.dies("taxi.1.1")
    world.settle()
    world.settle()

    assert asked == ["[taxi.1.1]"] * 2, "a child that nobody waits for stays in the process table"


# --- lost


def test_lost_run_is_ended_drained_and_restarted(world: World) -> None:
    world.submit()
    world.begin("taxi.1.1")
    world.engine.on_drain = lambda _: world.say(
        "taxi.1.1",
        Log(seq=0, time=1.0, replica="chief-0", stream="stdout", line=1, count=1, text="last words"),
        Checkpoint(seq=0, time=5.0, step=5, path="/c/5"),
    )

    world.engine.dies("taxi.1.1")
    world.pass_time(1.0)

    assert world.run_states() == [RunState.LOST, RunState.STARTING]
    assert world.engine.cancelled == ["[taxi.1.1]"]
    assert world.engine.launches[-1].latest_checkpoint == "/c/5", "the drain came first"
    assert world.runs()[0].message == "Its supervisor vanished. It was seen falling."
    assert [b.text for b in world.store.log_page("taxi", LogFilter()).blocks] == ["last words"]


def test_next_run_waits_for_a_slow_drain(world: World) -> None:
    world.engine.drains_slowly = True
    world.submit()
    world.begin("taxi.1.1")
    world.engine.dies("taxi.1.1")

    world.pass_time(1.0)
    assert world.run_states() == [RunState.RUNNING]
    world.say("taxi.1.1", Checkpoint(seq=0, time=5.0, step=5, path="/c/5"))
    world.engine.alive.discard("drain [taxi.1.1]")
    world.settle()

    assert world.run_states() == [RunState.LOST, RunState.STARTING]
    assert world.engine.launches[-1].latest_checkpoint == "/c/5"
    assert world.engine.drained == ["[taxi.1.1]"]


def test_next_run_does_not_wait_for_a_drain_for_ever(world: World) -> None:
    world.engine.drains_slowly = True
    world.submit()
    world.begin("taxi.1.1")
    world.engine.dies("taxi.1.1")
    world.pass_time(1.0)

    world.pass_time(31.0)

    assert world.run_states() == [RunState.LOST, RunState.STARTING]


def test_run_whose_drained_words_say_how_it_ended_is_not_lost(world: World) -> None:
    world.submit()
    world.begin("taxi.1.1")
    world.engine.on_drain = lambda _: world.say("taxi.1.1", Exited(seq=0, time=1.0, phase=Phase.USER_CODE, code=0))

    world.engine.dies("taxi.1.1")
    world.pass_time(1.0)

    assert world.run_states() == [RunState.SUCCEEDED]


def test_supervisor_that_ends_after_saying_so_is_not_lost(world: World) -> None:
    world.submit()
    world.begin("taxi.1.1")
    world.engine.dies("taxi.1.1")  # seen gone a moment before its last event is read
    world.settle()

    world.end("taxi.1.1")

    assert world.run_states() == [RunState.SUCCEEDED]
    assert world.engine.cancelled == []


def test_trial_is_given_up_after_three_losses(world: World) -> None:
    world.submit(restarts=RestartRules(max_restarts=0))
    for attempt in (1, 2, 3, 4):
        world.begin(f"taxi.1.{attempt}")
        world.engine.dies(f"taxi.1.{attempt}")
        world.pass_time(1.0)

    assert world.run_states() == [RunState.LOST] * 4
    assert world.state() is JobState.FAILED


def test_losses_do_not_use_up_restarts(world: World) -> None:
    world.submit(restarts=RestartRules(max_restarts=1))
    world.begin("taxi.1.1")
    world.engine.dies("taxi.1.1")
    world.pass_time(1.0)
    world.begin("taxi.1.2")
    world.end("taxi.1.2", code=1)

    assert world.run_states() == [RunState.LOST, RunState.FAILED, RunState.STARTING]


# --- stop, pause, resume


def test_cancelled_run_is_told_and_stops(world: World) -> None:
    world.submit()
    world.begin("taxi.1.1")

    world.want(Intent.STOP)
    assert world.store.stop_order("taxi.1.1") is StopReason.CANCEL
    assert world.state() is JobState.CANCELLING

    world.end("taxi.1.1", code=143, stop="cancel")
    assert world.state() is JobState.CANCELLED
    assert world.store.job("taxi").reason == "cancelled by ada"


def test_queued_job_is_cancelled_at_once(world: World) -> None:
    world.submit(resources=Resources(slots=2))
    world.submit("blocker", priority=9)
    world.settle()

    world.want(Intent.STOP)

    assert world.state() is JobState.CANCELLED
    assert world.engine.runs == ["blocker.1.1"]


def test_run_that_does_not_obey_is_ended_after_its_grace(world: World) -> None:
    world.submit(limits=Limits(grace_s=10))
    world.begin("taxi.1.1")
    world.want(Intent.STOP)

    world.pass_time(24.0)
    assert world.state() is JobState.CANCELLING
    world.pass_time(2.0)

    assert world.engine.cancelled == ["[taxi.1.1]"]
    assert world.state() is JobState.CANCELLED


def test_paused_job_gives_up_its_place_and_goes_on_from_its_checkpoint(world: World) -> None:
    world.submit("taxi", resources=Resources(slots=2))
    world.begin("taxi.1.1")
    world.submit("other")
    world.say("taxi.1.1", Checkpoint(seq=0, time=5.0, step=5, path="/c/5"))

    world.want(Intent.PAUSE)
    assert world.state() is JobState.PAUSING
    world.end("taxi.1.1", stop="pause")
    assert world.state() is JobState.PAUSED
    assert world.engine.runs[-1] == "other.1.1"

    world.want(Intent.RUN)
    assert world.state() is JobState.QUEUED
    world.end("other.1.1")
    assert world.engine.launches[-1].run == "taxi.1.2"
    assert world.engine.launches[-1].latest_checkpoint == "/c/5"


def test_job_resumed_while_it_stops_goes_on_without_being_paused(world: World) -> None:
    world.submit()
    world.begin("taxi.1.1")
    world.want(Intent.PAUSE)
    world.want(Intent.RUN)

    world.end("taxi.1.1", stop="pause")

    assert world.run_states() == [RunState.STOPPED, RunState.STARTING]


def test_timed_out_run_fails_its_job(world: World) -> None:
    world.submit(limits=Limits(max_running_s=5), restarts=RestartRules(max_restarts=3))
    world.begin("taxi.1.1")

    world.end("taxi.1.1", code=143, stop="timeout", message="It ran for longer than 5 s.")

    assert world.state() is JobState.FAILED
    assert world.store.job("taxi").reason == "It ran for longer than 5 s."


def test_job_that_waits_too_long_fails(world: World) -> None:
    world.submit("busy", resources=Resources(slots=2))
    world.settle()
    world.submit(limits=Limits(max_waiting_s=60))

    world.pass_time(59)
    assert world.state() is JobState.QUEUED
    world.pass_time(2)

    assert world.state() is JobState.FAILED
    assert "max_waiting_s = 60" in world.store.job("taxi").reason


# --- a server that is killed at the worst moment


def next_server(world: World, home: Home) -> World:
    engines, pools = {"local": world.engine}, {"local": world.pool}
    scheduler = Scheduler(world.store, engines=engines, pools=pools, home=home, wakeups=Wakeups(), now=world.clock)
    return World(world.store, scheduler, world.engine, world.clock, world.pool)


def test_run_whose_start_was_cut_off_after_the_engine_had_it_is_found(world: World, home: Home) -> None:
    world.submit()
    world.engine.lost_answers = True
    with pytest.raises(KeyboardInterrupt):
        world.scheduler.tick()
    world.engine.lost_answers = False

    after = next_server(world, home)
    after.begin("taxi.1.1")
    after.end("taxi.1.1")

    assert after.engine.runs == ["taxi.1.1"], "it was not started twice"
    assert after.run_states() == [RunState.SUCCEEDED]


def test_run_whose_start_was_cut_off_before_the_engine_had_it_is_started(world: World, home: Home) -> None:
    world.submit()
    world.store.move_run("taxi.1.1", RunState.STARTING, now=world.clock())

    after = next_server(world, home)
    after.settle()

    assert after.engine.runs == ["taxi.1.1"]
    assert after.run_states() == [RunState.STARTING]


def test_next_server_takes_over_live_and_lost_runs(world: World, home: Home) -> None:
    for name in ("stays", "vanishes"):
        world.submit(name)
    world.begin("stays.1.1")
    world.begin("vanishes.1.1")
    world.engine.dies("vanishes.1.1")

    after = next_server(world, home)
    after.pass_time(1.0)

    assert after.run_states("stays") == [RunState.RUNNING]
    assert after.run_states("vanishes") == [RunState.LOST, RunState.STARTING]


def test_run_of_a_pool_that_left_the_config_is_still_tended(world: World, home: Home) -> None:
    world.submit()
    world.begin("taxi.1.1")
    other = Pool(name="other", capacity=Share(cpus=1))
    scheduler = Scheduler(
        world.store,
        engines={"local": world.engine},
        pools={"other": other},
        home=home,
        wakeups=Wakeups(),
        now=world.clock,
    )
    after = World(world.store, scheduler, world.engine, world.clock, world.pool)
    after._seq = world._seq

    after.end("taxi.1.1")

    assert after.state() is JobState.SUCCEEDED


def test_one_runs_trouble_does_not_keep_others_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.submit("bad")
    world.submit("good")
    submit = world.engine.submit
    monkeypatch.setattr(world.engine, "submit", lambda launch: 1 / 0 if launch.job == "bad" else submit(launch))

    world.scheduler.tick()

    assert world.engine.runs == ["good.1.1"]
    assert "ZeroDivisionError" in caplog.text
    assert world.store.job("bad").reason.startswith("The engine failed: ZeroDivisionError")


def test_run_is_not_given_up_while_something_of_it_cannot_be_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(handle: str) -> None:
        raise StokerError("It waits in the kernel.")

    world.submit()
    world.begin("taxi.1.1")
    world.engine.dies("taxi.1.1")
    with monkeypatch.context() as patched:
        patched.setattr(world.engine, "cancel", cannot)
        world.pass_time(1.0)
        assert world.run_states() == [RunState.RUNNING]

    world.settle()

    assert world.run_states() == [RunState.LOST, RunState.STARTING]


# --- the thread


def test_thread_ticks_when_it_is_woken(world: World) -> None:
    from tests.processes import wait_until

    world.scheduler.start()
    try:
        world.submit()
        world.scheduler.wake()
        wait_until(lambda: world.engine.runs == ["taxi.1.1"], what="the run to start")
    finally:
        world.scheduler.stop()


def test_pool_status_says_what_is_in_use_and_who_waits(world: World) -> None:
    world.submit("first")
    world.submit("wide", resources=Resources(slots=2))
    world.settle()

    (status,) = world.scheduler.pool_status()

    assert (status.name, status.engine, status.slots) == ("local", "local", 2)
    assert status.used == Share(cpus=1)
    assert (status.running, status.queued) == (("first",), ("wide",))
    assert "STANDARD_1" in status.tiers
