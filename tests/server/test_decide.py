"""What is decided, case by case: no store, no engine, no time but what is given."""

from dataclasses import replace

import pytest

from stoker.schema.event import Exited, Phase
from stoker.schema.job import Share
from stoker.schema.pool import Pool
from stoker.schema.state import Intent, RunState, StopReason
from stoker.server.scheduling.decide import (
    PATIENCE_S,
    Abandon,
    Action,
    Collect,
    Continue,
    Find,
    Move,
    Snapshot,
    Start,
    StopOrder,
    decide,
    explain,
    used,
)
from stoker.server.store.values import JobNow, RunNow, TrialNow

NOW = 1000.0
LIVE = (RunState.STARTING, RunState.RUNNING)


def a_job(
    number: int = 1, *, run: RunNow | None = None, failures: int = 0, losses: int = 0, **fields: object
) -> JobNow:
    name = f"job_{number}"
    run = run or a_run(f"{name}.1.1")
    trial = TrialNow(id=number, number=1, failures=failures, losses=losses, run=run)
    job = JobNow(
        id=name,
        number=number,
        pool="local",
        priority=0,
        intent=Intent.RUN,
        intent_by="ada",
        need=Share(cpus=1),
        max_restarts=0,
        exit_codes=None,
        max_waiting_s=None,
        grace_s=30.0,
        trials=(trial,),
    )
    return replace(job, **fields)  # type: ignore[arg-type]


def a_run(id: str = "job_1.1.1", state: RunState = RunState.QUEUED, **fields: object) -> RunNow:
    return replace(RunNow(id=id, state=state, created=NOW), **fields)  # type: ignore[arg-type]


def a_live_run(state: RunState = RunState.RUNNING, **fields: object) -> RunNow:
    return a_run(state=state, **{"handle": "h", "phase": Phase.USER_CODE, **fields})


def an_exit(**fields: object) -> Exited:
    return Exited.model_validate({"seq": 1, "time": NOW, "phase": "user code", "code": 0, **fields})


def a_snapshot(*jobs: JobNow, cpus: float = 4, gone: dict[str, float] | None = None, **more: object) -> Snapshot:
    pools = {"local": Pool(name="local", capacity=Share(cpus=cpus, memory_gb=8, gpus=0))}
    values = {"jobs": jobs, "pools": pools, "gone": gone or {}, "collected": {}, **more}
    return Snapshot(**values)  # type: ignore[arg-type]


def decided(job: JobNow, **more: object) -> Action | None:
    actions = decide(a_snapshot(job, **more), NOW)  # type: ignore[arg-type]
    assert len(actions) <= 1
    return actions[0] if actions else None


# --- queued


def test_no_more_trials_start_than_the_job_may_have_at_once() -> None:
    runs = [a_live_run(), a_run("job_1.2.1"), a_run("job_1.3.1"), a_run("job_1.4.1")]
    trials = tuple(TrialNow(id=n, number=n, failures=0, losses=0, run=run) for n, run in enumerate(runs, 1))
    job = a_job(search="open", trials=trials, max_live=2)

    assert decide(a_snapshot(job, cpus=9), NOW) == (Start("job_1.2.1"),)
    assert decide(a_snapshot(replace(job, max_live=1), cpus=9), NOW) == ()
    assert len(decide(a_snapshot(replace(job, max_live=None), cpus=9), NOW)) == 3


@pytest.mark.parametrize("stop", [None, StopReason.CANCEL])
def test_killed_run_is_ended_at_once_whether_it_was_told_to_stop_or_not(stop: StopReason | None) -> None:
    job = a_job(intent=Intent.STOP, is_killed=True, run=a_live_run(stop=stop, stop_time=NOW))

    assert decided(job) == Collect("job_1.1.1")
    ended = decided(job, collected={"job_1.1.1": True})
    assert ended == Abandon("job_1.1.1", RunState.STOPPED, "It was killed.", stop=StopReason.CANCEL)


def test_queued_run_starts_when_it_fits() -> None:
    assert decided(a_job()) == Start("job_1.1.1")


def test_queued_run_of_a_cancelled_job_is_stopped() -> None:
    assert decided(a_job(intent=Intent.STOP)) == Move("job_1.1.1", RunState.STOPPED, stop=StopReason.CANCEL)


def test_queued_run_of_a_paused_job_is_stopped() -> None:
    assert decided(a_job(intent=Intent.PAUSE)) == Move("job_1.1.1", RunState.STOPPED, stop=StopReason.PAUSE)


def test_run_that_waits_longer_than_its_job_allows_fails() -> None:
    job = a_job(max_waiting_s=60.0, run=a_run(created=NOW - 61), need=Share(cpus=99))

    action = decided(job)

    assert isinstance(action, Move)
    assert action.state is RunState.FAILED
    assert "max_waiting_s = 60" in action.message


def test_run_that_has_waited_as_long_as_allowed_still_waits() -> None:
    assert decided(a_job(max_waiting_s=60.0, run=a_run(created=NOW - 60), need=Share(cpus=99))) is None


# --- live


def test_run_begins_when_user_code_does() -> None:
    job = a_job(run=a_live_run(RunState.STARTING, phase=Phase.USER_CODE))

    assert decided(job) == Move("job_1.1.1", RunState.RUNNING)


@pytest.mark.parametrize("phase", [None, Phase.PACKAGE, Phase.ENVIRONMENT, Phase.START])
def test_run_is_left_alone_while_it_prepares(phase: Phase | None) -> None:
    assert decided(a_job(run=a_live_run(RunState.STARTING, phase=phase))) is None


def test_running_run_is_left_alone() -> None:
    assert decided(a_job(run=a_live_run())) is None


@pytest.mark.parametrize("state", LIVE)
@pytest.mark.parametrize(("intent", "reason"), [(Intent.STOP, StopReason.CANCEL), (Intent.PAUSE, StopReason.PAUSE)])
def test_live_run_is_told_to_stop_when_the_user_wants_it(state: RunState, intent: Intent, reason: StopReason) -> None:
    assert decided(a_job(run=a_live_run(state), intent=intent)) == StopOrder("job_1.1.1", reason)


@pytest.mark.parametrize("intent", list(Intent))
def test_run_is_told_to_stop_only_once(intent: Intent) -> None:
    run = a_live_run(stop=StopReason.PAUSE, stop_time=NOW - 1)

    assert decided(a_job(run=run, intent=intent)) is None


def test_run_that_does_not_stop_in_time_is_collected() -> None:
    def after(seconds: float) -> Action | None:
        run = a_live_run(stop=StopReason.CANCEL, stop_time=NOW - seconds)
        return decided(a_job(run=run, intent=Intent.STOP, grace_s=10.0))

    assert after(25.0) is None
    assert after(25.1) == Collect("job_1.1.1")


@pytest.mark.parametrize("state", LIVE)
def test_run_whose_supervisor_is_gone_is_collected_after_a_moment(state: RunState) -> None:
    job = a_job(run=a_live_run(state))

    assert decided(job, gone={"job_1.1.1": NOW - 0.1}) is None
    assert decided(job, gone={"job_1.1.1": NOW - 0.6}) == Collect("job_1.1.1")


def test_run_whose_supervisor_is_gone_is_not_told_anything() -> None:
    assert decided(a_job(run=a_live_run(), intent=Intent.STOP), gone={"job_1.1.1": NOW}) is None


def test_run_without_a_handle_is_looked_for() -> None:
    assert decided(a_job(run=a_live_run(RunState.STARTING, handle=None))) == Find("job_1.1.1")


def test_run_without_a_handle_that_has_ended_is_not_looked_for() -> None:
    run = a_live_run(RunState.STARTING, handle=None, exit=an_exit())

    assert decided(a_job(run=run)) == Move("job_1.1.1", RunState.SUCCEEDED)


def test_collected_run_waits_for_its_last_words() -> None:
    job = a_job(run=a_live_run())

    assert decided(job, gone={"job_1.1.1": NOW - 9}, collected={"job_1.1.1": False}) is None


@pytest.mark.parametrize(("losses", "again"), [(0, True), (2, True), (3, False)])
def test_collected_run_without_last_words_is_lost_and_restarted_three_times(losses: int, again: bool) -> None:
    job = a_job(run=a_live_run(), losses=losses)

    action = decided(job, gone={"job_1.1.1": NOW - 9}, collected={"job_1.1.1": True})

    assert action == Abandon("job_1.1.1", RunState.LOST, message="Its supervisor vanished.", restart=again)


@pytest.mark.parametrize(("intent", "stop"), [(Intent.STOP, StopReason.CANCEL), (Intent.PAUSE, StopReason.PAUSE)])
def test_lost_run_of_a_job_that_is_to_stop_has_stopped(intent: Intent, stop: StopReason) -> None:
    job = a_job(run=a_live_run(), intent=intent)

    action = decided(job, gone={"job_1.1.1": NOW - 9}, collected={"job_1.1.1": True})

    assert isinstance(action, Abandon)
    assert (action.state, action.stop, action.restart) == (RunState.STOPPED, stop, False)


@pytest.mark.parametrize(
    ("stop", "intent", "again"),
    [
        (StopReason.CANCEL, Intent.STOP, False),
        (StopReason.PAUSE, Intent.PAUSE, False),
        (StopReason.PAUSE, Intent.RUN, True),  # resumed while it was stopping
        (StopReason.PREEMPT, Intent.RUN, True),
    ],
)
def test_collected_run_that_was_told_to_stop_is_stopped(stop: StopReason, intent: Intent, again: bool) -> None:
    job = a_job(run=a_live_run(stop=stop, stop_time=NOW - 99), intent=intent)

    action = decided(job, collected={"job_1.1.1": True})

    assert isinstance(action, Abandon)
    assert (action.state, action.stop, action.restart) == (RunState.STOPPED, stop, again)


# --- ended


@pytest.mark.parametrize("state", LIVE)
@pytest.mark.parametrize("gone", [{}, {"job_1.1.1": NOW - 99}])
def test_exit_is_what_counts_though_the_supervisor_is_gone(state: RunState, gone: dict[str, float]) -> None:
    assert decided(a_job(run=a_live_run(state, exit=an_exit())), gone=gone) == Move("job_1.1.1", RunState.SUCCEEDED)


def test_run_that_ended_well_succeeded_though_it_was_about_to_be_cancelled() -> None:
    run = a_live_run(exit=an_exit(), stop=StopReason.CANCEL, stop_time=NOW)

    assert decided(a_job(run=run, intent=Intent.STOP)) == Move("job_1.1.1", RunState.SUCCEEDED)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ({"code": 3, "replica": "worker-1"}, "worker-1 exited with code 3."),
        ({"code": -9, "signal": "SIGKILL", "replica": "chief-0"}, "chief-0 was ended by SIGKILL."),
        ({"code": 1, "message": "ValueError: no such column"}, "ValueError: no such column"),
        ({"code": None, "phase": "package"}, "It could not be started."),
    ],
)
def test_failed_run_says_how(end: dict[str, object], message: str) -> None:
    action = decided(a_job(run=a_live_run(exit=an_exit(**end))))

    assert action == Move("job_1.1.1", RunState.FAILED, message=message)


@pytest.mark.parametrize(
    ("end", "rules", "failures", "again"),
    [
        ({"code": 1}, {"max_restarts": 0}, 0, False),
        ({"code": 1}, {"max_restarts": 2}, 1, True),
        ({"code": 1}, {"max_restarts": 2}, 2, False),
        ({"code": 1}, {"max_restarts": 1, "exit_codes": (1, 2)}, 0, True),
        ({"code": 3}, {"max_restarts": 1, "exit_codes": (1, 2)}, 0, False),
        ({"code": -9, "signal": "SIGKILL"}, {"max_restarts": 1, "exit_codes": (137,)}, 0, True),
        ({"code": None, "signal": "SIGKILL"}, {"max_restarts": 1, "exit_codes": (-9,)}, 0, True),
        ({"code": None, "signal": "SIGNOVEL"}, {"max_restarts": 1, "exit_codes": (-9,)}, 0, False),
        ({"code": 1}, {"max_restarts": 1, "intent": Intent.STOP}, 0, False),
        ({"code": 1}, {"max_restarts": 1, "intent": Intent.PAUSE}, 0, True),
        ({"code": 1, "phase": "environment"}, {"max_restarts": 5}, 0, False),
        ({"code": None, "phase": "package"}, {"max_restarts": 5}, 0, False),
    ],
)
def test_failed_run_is_restarted_by_its_rules(
    end: dict[str, object], rules: dict[str, object], failures: int, again: bool
) -> None:
    action = decided(a_job(run=a_live_run(exit=an_exit(**end)), failures=failures, **rules))

    assert isinstance(action, Move)
    assert (action.state, action.restart) == (RunState.FAILED, again)


@pytest.mark.parametrize(
    ("stop", "intent", "again"),
    [
        (StopReason.CANCEL, Intent.STOP, False),
        (StopReason.PAUSE, Intent.PAUSE, False),
        (StopReason.PAUSE, Intent.RUN, True),
        (StopReason.PAUSE, Intent.STOP, False),
        (StopReason.PREEMPT, Intent.RUN, True),
        (StopReason.TIMEOUT, Intent.RUN, False),
        (StopReason.PRUNE, Intent.RUN, False),
    ],
)
@pytest.mark.parametrize("code", [0, 143])
def test_run_that_stopped_as_told_is_stopped_whatever_its_code(
    stop: StopReason, intent: Intent, again: bool, code: int
) -> None:
    end = an_exit(stop=stop, code=code, message="told to")

    action = decided(a_job(run=a_live_run(exit=end), intent=intent, max_restarts=5))

    assert action == Move("job_1.1.1", RunState.STOPPED, stop=stop, message="told to", restart=again)


@pytest.mark.parametrize(
    ("state", "stop", "intent", "action"),
    [
        (RunState.STOPPED, StopReason.PAUSE, Intent.RUN, Continue(1)),
        (RunState.STOPPED, StopReason.PAUSE, Intent.PAUSE, None),
        (RunState.STOPPED, StopReason.PAUSE, Intent.STOP, None),
        (RunState.STOPPED, StopReason.CANCEL, Intent.RUN, None),
        (RunState.FAILED, None, Intent.RUN, None),
        (RunState.SUCCEEDED, None, Intent.RUN, None),
    ],
)
def test_only_a_paused_run_goes_on(
    state: RunState, stop: StopReason | None, intent: Intent, action: Action | None
) -> None:
    assert decided(a_job(run=a_run(state=state, stop=stop), intent=intent)) == action


# --- the queue


def starts(*jobs: JobNow, cpus: float = 4, now: float = NOW) -> list[str]:
    actions = decide(a_snapshot(*jobs, cpus=cpus), now)
    return [action.run for action in actions if isinstance(action, Start)]


def test_queue_is_by_priority_then_age() -> None:
    jobs = [a_job(1), a_job(2, priority=5), a_job(3, priority=5), a_job(4)]

    assert starts(*jobs, cpus=3) == ["job_2.1.1", "job_3.1.1", "job_1.1.1"]


def test_live_runs_hold_their_place() -> None:
    running = a_job(1, run=a_live_run(), need=Share(cpus=3))
    starting = a_job(2, run=a_run("job_2.1.1", RunState.STARTING, handle="h2"), need=Share(cpus=1))

    assert used([running, starting], "local") == Share(cpus=4)
    assert starts(running, starting, a_job(3)) == []
    assert starts(running, a_job(3)) == ["job_3.1.1"]


def test_run_starts_whole_or_not_at_all() -> None:
    assert starts(a_job(1, need=Share(cpus=5)), cpus=4) == []


@pytest.mark.parametrize("need", [Share(cpus=1, gpus=1), Share(cpus=1, memory_gb=9), Share(cpus=4.5)])
def test_every_kind_of_capacity_counts(need: Share) -> None:
    assert starts(a_job(1, need=need)) == []


def test_smaller_job_passes_one_that_does_not_fit_yet() -> None:
    running = a_job(1, run=a_live_run(), need=Share(cpus=2))
    big, small = a_job(2, need=Share(cpus=4), priority=9), a_job(3)

    assert starts(running, big, small) == ["job_3.1.1"]


def test_nothing_passes_a_job_that_has_waited_too_long() -> None:
    running = a_job(1, run=a_live_run(), need=Share(cpus=2))
    big = a_job(2, need=Share(cpus=4), run=a_run("job_2.1.1", created=NOW - PATIENCE_S - 1))
    small, urgent = a_job(3), a_job(4, priority=1)

    assert starts(running, big, small, urgent) == ["job_4.1.1"], "what is before it in the queue still may"


def test_job_that_can_never_fit_holds_up_nobody() -> None:
    giant = a_job(1, need=Share(cpus=99), run=a_run(created=NOW - PATIENCE_S - 1))

    assert starts(giant, a_job(2)) == ["job_2.1.1"]


def test_pools_are_apart() -> None:
    pools = {name: Pool(name=name, capacity=Share(cpus=1)) for name in ("local", "big")}
    jobs = (a_job(1), a_job(2), a_job(3, pool="big"), a_job(4, pool="vanished"))

    actions = decide(Snapshot(jobs=jobs, pools=pools, gone={}, collected={}), NOW)

    assert actions == (Start("job_1.1.1"), Start("job_3.1.1"))


def test_what_ends_comes_before_what_starts() -> None:
    ending = a_job(1, run=a_live_run(exit=an_exit()))

    actions = decide(a_snapshot(a_job(2), ending), NOW)

    assert [type(action) for action in actions] == [Move, Start]


# --- why


def why(*jobs: JobNow, cpus: float = 4) -> dict[str, str]:
    return explain(a_snapshot(*jobs, cpus=cpus), NOW)


def test_waiting_job_says_what_it_lacks() -> None:
    running = a_job(1, run=a_live_run(), need=Share(cpus=3))

    assert why(running, a_job(2, need=Share(cpus=2))) == {
        "job_2": "waits for 2 CPUs of pool 'local': 1 is free",
    }


def test_waiting_job_says_who_is_before_it() -> None:
    running = a_job(1, run=a_live_run(), need=Share(cpus=4))
    jobs = [a_job(n, priority=1) for n in (2, 3)] + [a_job(4), a_job(5)]

    found = why(running, *jobs)

    assert found["job_2"] == "waits for 1 CPU of pool 'local': none is free"
    assert found["job_3"] == "waits for 1 CPU of pool 'local': none is free; behind 1 older job"
    assert found["job_4"] == "waits for 1 CPU of pool 'local': none is free; behind 2 jobs of higher priority"
    assert found["job_5"].endswith("behind 2 jobs of higher priority and 1 older job")


def test_waiting_job_says_all_that_it_lacks() -> None:
    running = a_job(1, run=a_live_run(), need=Share(cpus=3, memory_gb=6))

    found = why(running, a_job(2, need=Share(cpus=2, memory_gb=4)))

    assert found["job_2"] == "waits for 2 CPUs and 4 GB of memory of pool 'local': 1 and 2 are free"


def test_job_that_can_never_run_says_so() -> None:
    found = why(a_job(1, need=Share(cpus=9)), a_job(2, pool="vanished"))

    assert "can never hold it" in found["job_1"]
    assert "not in config.toml any more" in found["job_2"]


def test_job_behind_one_that_has_waited_too_long_names_it() -> None:
    running = a_job(1, run=a_live_run(), need=Share(cpus=2))
    big = a_job(2, need=Share(cpus=4), run=a_run("job_2.1.1", created=NOW - PATIENCE_S - 1))

    assert why(running, big, a_job(3))["job_3"] == (
        "waits behind job 'job_2', which has waited long for a place in pool 'local'"
    )


def test_job_that_starts_now_does_not_wait() -> None:
    assert why(a_job(1)) == {}
