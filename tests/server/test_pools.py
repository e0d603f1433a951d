"""What of a cluster is a pool's, and who holds what of it."""

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from stoker.engines.base import ClusterNode, Liveness
from stoker.engines.ray.engine import RayEngine
from stoker.host.home import Home
from stoker.schema.event import Phase, PhaseStarted
from stoker.schema.job import JobSpec, Share
from stoker.schema.launch import Launch
from stoker.schema.pool import RayPool
from stoker.schema.record import Held
from stoker.schema.state import RunState
from stoker.server.scheduling.pools import Engines, Pools, usable
from stoker.server.scheduling.scheduler import Scheduler
from stoker.server.settings import Settings, load_settings
from stoker.server.store.store import Store
from stoker.server.store.values import NewJob
from stoker.server.views.pools import PoolViews
from tests.contracts.store import add, say
from tests.processes import DEADLINE_S
from tests.server.fakes import FakeClock, FakeEngine


def a_node(name: str, **resources: float) -> ClusterNode:
    return ClusterNode(
        id=name, host=name, address="10.0.0.1", has=Share(cpus=8), free=Share(cpus=8), resources=resources
    )


def test_pool_with_custom_resources_counts_the_nodes_that_have_them() -> None:
    nodes = [a_node("plain"), a_node("small", a100=1), a_node("large", a100=4, nvme=1)]

    def names(**wanted: float) -> list[str]:
        return [node.id for node in usable(nodes, wanted)]

    assert names() == ["plain", "small", "large"]
    assert names(a100=1) == ["small", "large"]
    assert names(a100=2) == ["large"]
    assert names(a100=1, nvme=1) == ["large"]
    assert names(tpu=1) == []


class LateCluster(RayEngine):
    """Answers when it is allowed to."""

    def __init__(self, home: Home, pool: RayPool) -> None:
        super().__init__(home, "cluster", pool)
        self.may_answer = threading.Event()

    def nodes(self) -> tuple[ClusterNode, ...]:
        assert self.may_answer.wait(DEADLINE_S)
        return (a_node("n1"),)


def test_new_job_waits_for_a_cluster_that_was_never_asked(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[pools.cluster]\nengine = "ray"\naddress = "head:6379"\n')

    def settings() -> Settings:
        return load_settings(tmp_path / "config.toml", capacity=lambda: Share(cpus=1))

    engines = Engines(Home(tmp_path), {})
    pools = Pools(settings(), config=tmp_path / "config.toml", engines=engines, load=settings)
    ray = settings().pools["cluster"].ray
    assert ray is not None
    late = engines._engines[pools["cluster"].engine_name] = LateCluster(Home(tmp_path), ray)
    assert "has not answered yet" in pools["cluster"].trouble

    pools.start(lambda: None)
    threading.Timer(0.05, late.may_answer.set).start()
    pools.await_answer("cluster")
    pools.stop()

    assert (pools["cluster"].trouble, pools["cluster"].capacity.cpus) == ("", 8)
    pools.await_answer("no such pool")


def test_pool_that_was_just_written_is_known_at_once_and_says_which_resource_no_node_has(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[pools.local]\n")

    def settings() -> Settings:
        return load_settings(config, capacity=lambda: Share(cpus=1))

    engines = Engines(Home(tmp_path), {})
    pools = Pools(settings(), config=config, engines=engines, load=settings)
    config.write_text('[pools.local]\n[pools.new]\nengine = "ray"\naddress = "head:1"\nresources = { tpu = 2 }\n')

    pools.look_again()

    assert [*pools] == ["local", "new"]
    ray = pools["new"].ray
    assert ray is not None
    engines._engines["ray:new"] = cluster = ShrinkingCluster(Home(tmp_path), ray)
    found = pools._ask(pools["new"])
    assert found.trouble.startswith("Pool 'new': no node of its cluster has 2 tpu, which each node of a job here takes")
    cluster.workers.append(a_node("special", tpu=4))
    assert pools._ask(found).trouble == ""


class ShrinkingCluster(RayEngine):
    """Has a head without CPUs, and at first a node that goes."""

    def __init__(self, home: Home, pool: RayPool) -> None:
        super().__init__(home, "cluster", pool)
        self.workers = [a_node("worker")]

    def nodes(self) -> tuple[ClusterNode, ...]:
        head = ClusterNode(id="head", host="h", address="a", has=Share(cpus=0), free=Share(cpus=0), resources={})
        return (head, *self.workers)


def test_cluster_that_has_shrunk_to_its_head_is_known_by_what_it_had(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[pools.cluster]\nengine = "ray"\naddress = "head:1"\nautoscale = true\nmax_nodes = 2\n')
    settings = load_settings(config, capacity=lambda: Share(cpus=1))
    engines = Engines(Home(tmp_path), {})
    pools = Pools(settings, config=config, engines=engines, load=lambda: settings)
    ray = settings.pools["cluster"].ray
    assert ray is not None
    cluster = engines._engines["ray:cluster"] = ShrinkingCluster(Home(tmp_path), ray)

    whole = pools._ask(pools["cluster"])
    cluster.workers.clear()
    small = pools._ask(whole)

    assert (whole.capacity.cpus, whole.limit.cpus) == (8, 16), "the head is no node that jobs could have"
    assert (small.capacity.cpus, small.limit.cpus, small.nodes) == (0, 16, ())
    assert [node.id for node in pools.nodes_of("cluster")] == ["head"], "it is shown all the same"
    cluster.workers.clear()
    assert pools._ask(pools["cluster"]).is_unsized


class CrowdedEngine(FakeEngine):
    """Has a place for the first run alone."""

    def poll(self, handles: Sequence[str]) -> Mapping[str, Liveness]:
        return {handle: Liveness.ALIVE if handle == "[first.1.1]" else Liveness.WAITING for handle in handles}

    def diagnose(self, handle: str) -> str:
        return "waits for 1 CPU; free on the cluster: 0 CPU of 8"


class OneCluster:
    """Two nodes; the first run is on the second."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def look_again(self) -> None:
        pass

    def nodes_of(self, pool: str) -> Sequence[ClusterNode]:
        return (a_node("n1"), a_node("n2"))

    def places(self, pool: str, handle: str) -> tuple[Held, ...]:
        self.asked.append(handle)
        return (Held(node="n2", share=Share(cpus=1)),) if handle == "[first.1.1]" else ()


@pytest.fixture
def engine() -> FakeEngine:
    return CrowdedEngine()


def test_run_without_a_place_on_its_cluster_waits_and_holds_nothing(
    store: Store, scheduler: Scheduler, clock: FakeClock
) -> None:
    cluster = OneCluster()
    views = PoolViews(store, scheduler, cluster, clock)
    for name in ("first", "second"):
        spec = JobSpec(name=name, kind="command", command=("true",))
        store.add_job(NewJob(spec=spec, owner="ada", pool="local", need=Share(cpus=1)), now=clock())
        clock.advance(1)
    for _ in range(3):
        scheduler.tick()

    (pool,) = views.status()
    views.status()

    assert (pool.used.cpus, pool.running, pool.queued) == (1, ("first",), ("second",))

    assert [(node.host, node.cpus, node.free) for node in pool.nodes] == [
        ("n1", 8, Share(cpus=8)),
        ("n2", 8, Share(cpus=8)),
    ]
    assert [(one.job, one.nodes) for one in pool.holders] == [("first", (Held(node="n2", share=Share(cpus=1)),))]
    assert [(one.job, one.reason) for one in pool.waiting] == [
        ("second", "waits for 1 CPU; free on the cluster: 0 CPU of 8")
    ]
    assert cluster.asked.count("[first.1.1]") == 1  # what is known is not asked again


def test_places_of_a_run_are_what_its_replicas_need_on_each_node(tmp_path: Path) -> None:
    home = Home(tmp_path).make()
    replicas = [
        {"role": "chief", "index": 0, "rank": 0, "cpus": 2, "node": 0},
        {"role": "worker", "index": 0, "rank": 1, "cpus": 1, "gpus": 1, "node": 1},
        {"role": "worker", "index": 1, "rank": 2, "cpus": 1, "gpus": 1, "node": 1},
    ]
    launch = Launch.from_json(
        {"run": "j.1.1", "job": "j", "trial": 1, "trial_id": 1, "attempt": 1, "command": ["true"], "replicas": replicas}
    )
    run_dir = home.run_dir("j", 1, 1)
    launch.write(run_dir)
    handle = json.dumps({"run": "j.1.1", "run_dir": str(run_dir)})
    engine = RayEngine(home, "cluster", RayPool(address="head:6379"))

    assert engine.places(handle) == ()  # it has no place yet
    run_dir.places.write_text(json.dumps([{"id": "a", "host": "h1"}, {"id": "b", "host": "h2"}]))

    assert engine.places(handle) == (
        Held(node="a", share=Share(cpus=2)),
        Held(node="b", share=Share(cpus=2, gpus=2)),
    )
    assert engine.places("none of ours") == ()


def test_use_before_this_server_is_recalled_from_the_runs_that_were(
    store: Store, scheduler: Scheduler, clock: FakeClock
) -> None:
    """A run of two CPUs that waited three minutes and ran for five; then a server begins, and is asked."""
    began = clock()
    run = add(store, now=began)
    clock.advance(180)
    store.move_run(run, RunState.STARTING, now=clock())
    say(store, run, PhaseStarted(seq=1, time=clock(), phase=Phase.USER_CODE), now=clock())
    clock.advance(300)
    store.move_run(run, RunState.SUCCEEDED, now=clock())
    clock.advance(120)
    views = PoolViews(store, scheduler, OneCluster(), clock)
    views.note()

    (history,) = views.history(24)

    seen = [
        (round((time - began) / 60), cpus, running, queued)
        for time, cpus, running, queued in zip(history.time, history.cpus, history.running, history.queued, strict=True)
    ]
    assert seen[:4] == [(0, 0, 0, 1), (1, 0, 0, 1), (2, 0, 0, 1), (3, 2, 1, 0)]
    assert seen[4:] == [*((minute, 2, 1, 0) for minute in range(4, 8)), (8, 0, 0, 0), (9, 0, 0, 0), (10, 0, 0, 0)]
