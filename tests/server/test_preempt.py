"""On a cluster, a job of higher priority takes its place from those of lower: case by case, as in test_decide."""

from dataclasses import replace

from stoker.schema.job import Share
from stoker.schema.pool import Pool, RayPool
from stoker.schema.state import Intent, RunState, StopReason
from stoker.server.scheduling.decide import Action, Snapshot, Start, StopOrder, Withdraw, decide, explain
from stoker.server.store.values import JobNow, RunNow, TrialNow

NOW = 1000.0
POOL = Pool(name="big", engine="ray", capacity=Share(cpus=4, memory_gb=8, gpus=0), ray=RayPool(address="head:6379"))


def a_job(number: int, *, priority: int = 0, cpus: float = 1, **run: object) -> JobNow:
    values = {"id": f"job_{number}.1.1", "state": RunState.QUEUED, "created": NOW, **run}
    return JobNow(
        id=f"job_{number}",
        number=number,
        pool="big",
        priority=priority,
        intent=Intent.RUN,
        intent_by="ada",
        need=Share(cpus=cpus),
        max_restarts=0,
        exit_codes=None,
        max_waiting_s=None,
        grace_s=30.0,
        trials=(TrialNow(id=number, number=1, failures=0, losses=0, run=RunNow(**values)),),  # type: ignore[arg-type]
    )


def running(number: int, *, priority: int = 0, cpus: float = 1, stop: StopReason | None = None) -> JobNow:
    stop_time = None if stop is None else NOW
    return a_job(
        number, priority=priority, cpus=cpus, state=RunState.RUNNING, handle="h", stop=stop, stop_time=stop_time
    )


def a_snapshot(*jobs: JobNow, pool: Pool = POOL, waiting: dict[str, str] | None = None) -> Snapshot:
    return Snapshot(jobs=jobs, pools={pool.name: pool}, gone={}, collected={}, waiting=waiting or {})


def decided(*jobs: JobNow, **more: object) -> tuple[Action, ...]:
    return decide(a_snapshot(*jobs, **more), NOW)  # type: ignore[arg-type]


def preempted(number: int) -> StopOrder:
    return StopOrder(f"job_{number}.1.1", StopReason.PREEMPT)


def test_job_takes_the_place_of_the_least_urgent_and_then_the_newest() -> None:
    jobs = [running(1, priority=5, cpus=1), running(2, cpus=1), running(3, cpus=2)]

    assert decided(*jobs, a_job(4, priority=9, cpus=2)) == (preempted(3),)
    assert decided(*jobs, a_job(4, priority=9, cpus=3)) == (preempted(3), preempted(2))
    assert decided(*jobs, a_job(4, priority=9, cpus=4)) == (preempted(3), preempted(2), preempted(1))


def test_nobody_stops_for_a_job_of_equal_priority_or_when_it_would_be_of_no_use() -> None:
    assert decided(running(1, cpus=4), a_job(2, cpus=1)) == ()
    assert decided(running(1, priority=5, cpus=3), running(2, cpus=1), a_job(3, priority=5, cpus=2)) == ()


def test_nobody_more_stops_while_those_who_make_room_are_ending() -> None:
    ending = running(2, cpus=2, stop=StopReason.PREEMPT)

    assert decided(running(1, cpus=2), ending, a_job(3, priority=9, cpus=2)) == ()


def test_what_is_freed_goes_to_the_job_it_was_freed_for() -> None:
    """Those who made room wait again, and would fit into the half of it that is free already."""
    ending, again = running(1, cpus=2, stop=StopReason.PREEMPT), a_job(2, cpus=2)
    urgent = a_job(3, priority=9, cpus=4)

    assert decided(ending, again, urgent) == ()
    reasons = explain(a_snapshot(ending, again, urgent), NOW)
    assert reasons["job_2"] == "waits behind job 'job_3', which is to have the next place in pool 'big'"
    assert decided(again, urgent) == (Start("job_3.1.1"),)


def test_run_that_has_no_place_yet_is_not_told_to_stop() -> None:
    assert decided(running(1, cpus=4), a_job(2, priority=9), waiting={"job_1.1.1": "waits for 4 CPU"}) == ()


def test_on_one_machine_nobody_stops_for_another() -> None:
    pool = Pool(name="big", capacity=Share(cpus=4, memory_gb=8, gpus=0))

    assert decided(running(1, cpus=4), a_job(2, priority=9), pool=pool) == ()


def test_job_that_takes_a_place_says_so() -> None:
    assert explain(a_snapshot(running(1, cpus=4), a_job(2, priority=9)), NOW)["job_2"] == (
        "takes the place of 1 run of lower priority in pool 'big'"
    )


GROWING = POOL.with_(capacity=Share(cpus=0), autoscale=True, max_nodes=2)


def test_cluster_that_has_no_node_yet_is_asked_for_as_many_runs_as_it_may_have_nodes() -> None:
    jobs = [a_job(number) for number in range(1, 5)]

    assert decided(*jobs, pool=GROWING) == (Start("job_1.1.1"), Start("job_2.1.1"))
    reasons = explain(a_snapshot(*jobs, pool=GROWING), NOW)
    words = "waits for the first node of pool 'big': what its nodes hold is not known yet"
    assert reasons == {"job_3": words, "job_4": f"{words}; behind 1 older job"}
    assert decided(running(1), running(2), a_job(3, priority=9), pool=GROWING) == (), "nobody makes room for nothing"


def test_run_that_waited_too_long_for_its_cluster_says_for_what() -> None:
    late = a_job(1, state=RunState.STARTING, handle="h", created=NOW - 60)
    late = replace(late, max_waiting_s=20)

    (action,) = decided(late, waiting={"job_1.1.1": "waits for 64 CPU; its autoscaler can start no node for it"})

    assert isinstance(action, Withdraw)
    assert action.state is RunState.FAILED
    assert action.message == (
        "It waited for pool 'big' for longer than max_waiting_s = 20 allows."
        " At last it waits for 64 CPU; its autoscaler can start no node for it."
    )


def test_run_whose_cluster_does_not_answer_is_not_said_to_be_starting() -> None:
    lost = POOL.with_(trouble="Nothing answers at head:6379.")
    jobs = [a_job(1, state=RunState.STARTING, handle="h"), running(2)]

    assert explain(a_snapshot(*jobs, pool=lost), NOW) == {"job_1": "waits: Nothing answers at head:6379."}
