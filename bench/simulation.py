"""A cluster that is not there, around the real scheduler, searches and store: nodes fail, trials report, obey and end.

The clock is the cluster's: it jumps from one happening to the next. What the server itself computes (ticks, taking in
events) is added to it by the processor time it took here, so a scheduler that is too slow leaves slots idle in the
simulation as it would in life.
"""

import heapq
import itertools
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stoker.engines.base import Liveness
from stoker.host.home import Home
from stoker.schema.event import Checkpoint, Event, EventBatch, Exited, Metric, Phase, PhaseStarted
from stoker.schema.job import JobSpec, Share
from stoker.schema.launch import Launch
from stoker.schema.pool import Pool, RayPool
from stoker.server.live.wakeups import Wakeups
from stoker.server.scheduling.placement import replicas_for
from stoker.server.scheduling.scheduler import Scheduler, rest_after
from stoker.server.store.store import Store
from stoker.server.store.values import NewJob
from tests.server.fakes import AtOnce

POOL = "cluster"
MAX_STEPS = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """What there is, what is asked of it, and how it goes wrong. Times in seconds."""

    nodes: int
    trials: int
    slots_a_node: int = 1
    searches: int = 1
    trial_s: float = 300.0  # of a trial that is not pruned, on average
    stopping: str = "asha"
    failures_an_hour: float = 0.01  # of a node
    repair_s: float = 600.0
    notice_s: float = 10.0  # until the cluster itself knows that a node is gone
    ask_s: float = 5.0  # how often the server asks what the cluster has
    start_s: float = 1.0  # from a run's place to its user code
    obey_s: float = 1.0  # from an order to the end
    pulse_s: float = 0.0  # the least time between two ticks
    seed: int = 1

    @property
    def slots(self) -> int:
        return self.nodes * self.slots_a_node


class Clock:
    """Seconds since the epoch; while `charged`, the processor time of this thread is added."""

    def __init__(self, cost: Callable[[], float] = time.thread_time) -> None:
        self._now = 1_000_000.0
        self._cost = cost
        self._since: float | None = None

    def __call__(self) -> float:
        return self._now + (0.0 if self._since is None else self._cost() - self._since)

    def jump(self, to: float) -> None:
        self._now = max(self._now, to)

    @contextmanager
    def charged(self) -> Iterator[None]:
        self._since = self._cost()
        try:
            yield
        finally:
            self._now, self._since = self(), None


@dataclass(slots=True)
class Place:
    """A run on its cluster. `node` is None while it waits for a slot there."""

    launch: Launch
    since: float
    node: int | None = None
    step: int = 0
    seq: int = 0
    is_gone: bool = False  # its supervisor has ended, or its node has failed
    is_noticed: bool = False  # ... and the cluster knows
    is_stopping: bool = False


class SimulatedEngine:
    """The engine's port over nodes that are numbers: a run takes a slot, or waits for one as a placement group does."""

    def __init__(self, plan: Plan, clock: Clock) -> None:
        self._plan, self._clock = plan, clock
        self.free = deque((node, clock()) for _ in range(plan.slots_a_node) for node in range(plan.nodes))
        self.down: set[int] = set()
        self.on_node: list[set[str]] = [set() for _ in range(plan.nodes)]
        self.places: dict[str, Place] = {}
        self.submitted: set[str] = set()
        self.trials_begun = 0
        self.line: deque[str] = deque()
        self.gaps: list[tuple[float, float]] = []  # when a slot was taken, and how long it had been free
        self.placed: list[str] = []  # runs that have got a slot since somebody looked

    def submit(self, launch: Launch) -> str:
        assert launch.run not in self.submitted, f"{launch.run} was started twice"
        self.submitted.add(launch.run)
        self.trials_begun += launch.attempt == 1
        self.places[launch.run] = Place(launch, self._clock())
        self.line.append(launch.run)
        self._fill()
        return launch.run

    def find(self, launch: Launch) -> str | None:
        return launch.run if launch.run in self.places else None

    def poll(self, handles: Sequence[str]) -> Mapping[str, Liveness]:
        return {handle: self._liveness(handle) for handle in handles}

    def cancel(self, handle: str) -> None:
        if handle in self.places:
            self.leave(handle)

    def diagnose(self, handle: str) -> str:
        return "Its node is gone."

    def drain(self, handle: str) -> str | None:
        return None  # what a failed node had not sent is lost with it

    def leave(self, run: str) -> None:
        """Its processes have ended: its slot is free."""
        place = self.places[run]
        place.is_gone = place.is_noticed = True
        if place.node is not None:
            self.on_node[place.node].remove(run)
            if place.node not in self.down:
                self._give_back(place.node)
        del self.places[run]

    def fail(self, node: int) -> None:
        """The node and all that ran on it, at once; nobody knows yet."""
        self.down.add(node)
        for run in self.on_node[node]:
            self.places[run].is_gone = True
        self.free = deque(slot for slot in self.free if slot[0] != node)

    def notice(self, node: int) -> None:
        for run in self.on_node[node]:
            self.places[run].is_noticed = True

    def mend(self, node: int) -> None:
        for run in list(self.on_node[node]):
            self.leave(run)
        self.down.discard(node)
        for _ in range(self._plan.slots_a_node):
            self._give_back(node)

    @property
    def busy(self) -> int:
        """Slots with a run on a living node."""
        return (self._plan.nodes - len(self.down)) * self._plan.slots_a_node - len(self.free)

    def _give_back(self, node: int) -> None:
        self.free.append((node, self._clock()))
        self._fill()

    def _fill(self) -> None:
        while self.line and self.free:
            run = self.line.popleft()
            place = self.places.get(run)
            if place is None or place.is_gone:
                continue
            node, since = self.free.popleft()
            assert len(self.on_node[node]) < self._plan.slots_a_node, f"a slot of node {node} was given twice"
            assert node not in self.down
            self.on_node[node].add(run)
            place.node, place.since = node, self._clock()
            self.gaps.append((place.since, place.since - since))
            self.placed.append(run)

    def _liveness(self, run: str) -> Liveness:
        place = self.places.get(run)
        if place is None or place.is_noticed:
            return Liveness.GONE
        return Liveness.WAITING if place.node is None else Liveness.ALIVE


class Orders(Wakeups):
    """Hears which runs were told to stop, as their supervisors do by their long polls."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def run_ordered(self, run: str) -> None:
        self.heard.append(run)


@dataclass(slots=True)
class Record:
    """What is seen of a simulation."""

    ticks: list[float] = field(default_factory=list)  # processor seconds of each
    orders: list[float] = field(default_factory=list)  # from a report to the order that it caused
    ends: dict[str, int] = field(default_factory=dict)  # runs that ended by themselves, and the step they came to
    begins: dict[str, tuple[int, int]] = field(default_factory=dict)  # a later run's first step, the last one saved
    busy_s: float = 0.0  # slot-seconds while more trials were to come, and those that there were
    up_s: float = 0.0
    full_busy_s: float = 0.0  # the same from when the cluster was first filled
    full_up_s: float = 0.0
    node_failures: int = 0
    lost_runs: int = 0
    taking_in_s: float = 0.0
    batches: int = 0
    filled_at: float | None = None
    drained_at: float | None = None


class Simulation:
    """One cluster, one server, and some searches; `run` until all of them have ended."""

    def __init__(self, plan: Plan, *, store: Store, home: Home, cost: Callable[[], float] = time.thread_time) -> None:
        self.plan, self.store = plan, store
        self.clock = Clock(cost)
        self.began = self.clock()
        self.engine = SimulatedEngine(plan, self.clock)
        self.record = Record()
        self._cost = cost
        self._random = random.Random(plan.seed)
        self._wakeups = Orders()
        self._pools = {POOL: self._pool()}
        self.scheduler = Scheduler(
            store,
            engines={f"ray:{POOL}": self.engine},
            pools=self._pools,
            home=home,
            wakeups=self._wakeups,
            now=self.clock,
            background=AtOnce(),
        )
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._saved: dict[tuple[str, int], int] = {}  # the newest checkpoint's step that the server has heard of
        self._reported: dict[str, float] = {}
        self._seen_at = self.clock()
        self.names = [f"search_{number}" for number in range(1, plan.searches + 1)]

    def run(self, *, watch: Callable[["Simulation"], None] = lambda simulation: None) -> Record:
        self._submit()
        self._at(self.clock() + self.plan.ask_s, self._ask)
        self._next_failure()
        while self._unfinished():
            self._happen()
            wait_s = self._tick()
            self._hear()
            self._measure()
            watch(self)
            upcoming = self._agenda[0][0] if self._agenda else self.clock()
            soonest = self.clock() + (1e9 if wait_s is None else wait_s)
            self.clock.jump(min(max(upcoming, self.clock() + self.plan.pulse_s), soonest))
        self.scheduler.stop()
        return self.record

    # --- the server

    def _submit(self) -> None:
        plan = self.plan
        search = {
            "sampler": "random",
            "metric": "loss",
            "max_trials": plan.trials // plan.searches,
            "space": {"x": {"type": "double", "min": 0, "max": 1}},
        }
        if plan.stopping == "asha":
            at_once = 4 * max(plan.slots // plan.searches, 1)  # so that a bracket can fill the cluster alone
            search |= {"stopping": {"name": "asha", "max_time": MAX_STEPS}, "max_concurrent_trials": at_once}
        for name in self.names:
            spec = JobSpec.model_validate({"name": name, "module": "trainer.task", "search": search})
            need = Share.total(replicas_for(spec.resources, self._pools[POOL]))
            self.store.add_job(NewJob(spec=spec, owner="ada", pool=POOL, need=need), now=self.clock())

    def _tick(self) -> float | None:
        before = self._cost()
        with self.clock.charged():
            wait_s = self.scheduler._tick_and_plan()
        took_s = self._cost() - before
        self.record.ticks.append(took_s)
        self.clock.jump(self.clock() + rest_after(took_s))
        return wait_s

    def _unfinished(self) -> bool:
        return any(not self.store.summary(name).state.is_final for name in self.names) if self._may_be_over() else True

    def _may_be_over(self) -> bool:
        return not self.engine.places

    def _say(self, run: str, *events: Event) -> None:
        place = self.engine.places[run]
        numbered = tuple(event.with_(seq=place.seq + at) for at, event in enumerate(events, 1))
        place.seq += len(events)
        before = self._cost()
        with self.clock.charged():
            done = self.store.append_events(run, EventBatch(events=numbered), now=self.clock())
        self.record.taking_in_s += self._cost() - before
        self.record.batches += 1
        if done.stop is not None:
            self._obey(run)

    # --- the cluster

    def _at(self, when: float, what: Callable[..., None], *words: Any) -> None:
        heapq.heappush(self._agenda, (when, next(self._order), what, words))

    def _happen(self) -> None:
        """All that is due, and what becomes due while the server takes that in, but for at most a second."""
        until = self.clock() + 1.0
        while self._agenda and self._agenda[0][0] <= min(self.clock(), until):
            _, _, what, words = heapq.heappop(self._agenda)
            what(*words)

    def _hear(self) -> None:
        """Runs that have got a slot begin; those that were told to stop obey."""
        for run in self.engine.placed:
            if run in self.engine.places:
                self._at(self.engine.places[run].since + self.plan.start_s, self._begin, run)
        self.engine.placed.clear()
        for run in self._wakeups.heard:
            if run in self._reported and self._there(run) is not None:  # who is lost is told to stop, too
                self.record.orders.append(self.clock() - self._reported.pop(run))
            self._obey(run)
        self._wakeups.heard.clear()

    def _obey(self, run: str) -> None:
        place = self._there(run)
        if place is not None and place.node is not None and not place.is_stopping:
            place.is_stopping = True
            self._at(self.clock() + self.plan.obey_s, self._stop, run)

    def _there(self, run: str) -> Place | None:
        place = self.engine.places.get(run)
        return None if place is None or place.is_gone else place

    def _begin(self, run: str) -> None:
        place = self._there(run)
        if place is None:
            return
        saved = place.launch.latest_checkpoint
        place.step = int(saved.rpartition("/")[2]) if saved else 0
        if place.launch.attempt > 1:
            known = self._saved.get((place.launch.job, place.launch.trial), 0)
            self.record.begins[run] = (place.step, known)
        self._say(run, PhaseStarted(seq=0, time=self.clock(), phase=Phase.USER_CODE))
        self._plan_report(run, place)

    def _plan_report(self, run: str, place: Place) -> None:
        following = max(place.step * 4, 1)
        trial_s = self.plan.trial_s * random.Random(place.launch.trial).uniform(0.5, 1.5)
        self._at(self.clock() + trial_s * (following - place.step) / MAX_STEPS, self._report, run, following)

    def _report(self, run: str, step: int) -> None:
        place = self._there(run)
        if place is None or place.is_stopping:
            return
        place.step = step
        now, launch = self.clock(), place.launch
        loss = (launch.hparams["x"] - 0.3) ** 2 + 1.0 / step
        path = f"/checkpoints/{launch.job}/{launch.trial}/{step}"
        self._reported[run] = now
        self._say(
            run,
            Metric(seq=0, time=now, step=step, values={"loss": loss}),
            Checkpoint(seq=0, time=now, step=step, path=path),
        )
        self._saved[launch.job, launch.trial] = step
        if step >= MAX_STEPS:
            self._end(run, place, Exited(seq=0, time=now, phase=Phase.USER_CODE, code=0))
        else:
            self._plan_report(run, place)

    def _stop(self, run: str) -> None:
        place = self._there(run)
        if place is not None:
            stop = self.store.stop_order(run)
            self._end(run, place, Exited(seq=0, time=self.clock(), phase=Phase.USER_CODE, code=0, stop=stop))

    def _end(self, run: str, place: Place, end: Exited) -> None:
        place.is_stopping = True
        self._say(run, end)
        self._reported.pop(run, None)
        self.record.ends[run] = place.step
        self.engine.leave(run)

    # --- nodes

    def _next_failure(self) -> None:
        rate = self.plan.nodes * self.plan.failures_an_hour / 3600.0
        if rate > 0:
            self._at(self.clock() + self._random.expovariate(rate), self._fail, self._random.randrange(self.plan.nodes))

    def _fail(self, node: int) -> None:
        self._next_failure()
        if node in self.engine.down:
            return
        self.record.node_failures += 1
        self.record.lost_runs += len(self.engine.on_node[node])
        self.engine.fail(node)
        self._at(self.clock() + self.plan.notice_s, self.engine.notice, node)
        self._at(self.clock() + self.plan.repair_s, self.engine.mend, node)

    def _ask(self) -> None:
        """What the thread of `server/scheduling/pools.py` does."""
        self._pools[POOL] = self._pool()
        self._at(self.clock() + self.plan.ask_s, self._ask)

    def _pool(self) -> Pool:
        up = self.plan.nodes - len(self.engine.down)
        each = Share(cpus=self.plan.slots_a_node)
        known = self._pools[POOL] if hasattr(self, "_pools") else None
        if known is not None and len(known.nodes) == up:
            return known
        capacity = Share(cpus=up * self.plan.slots_a_node)
        settings = RayPool(address="simulated:0")
        return Pool(name=POOL, engine="ray", capacity=capacity, nodes=(each,) * up, ray=settings)

    # --- what is seen

    def _measure(self) -> None:
        """Slots in use since the last look; as they are now, which is near enough for looks that are seconds apart."""
        now, record, engine = self.clock(), self.record, self.engine
        passed_s, self._seen_at = now - self._seen_at, now
        up = (self.plan.nodes - len(engine.down)) * self.plan.slots_a_node
        if record.filled_at is None and engine.busy >= 0.99 * up:
            record.filled_at = now
        if engine.trials_begun >= self.plan.trials // self.plan.searches * self.plan.searches:
            record.drained_at = record.drained_at or now
            return
        record.busy_s += passed_s * engine.busy
        record.up_s += passed_s * up
        if record.filled_at is not None:
            record.full_busy_s += passed_s * engine.busy
            record.full_up_s += passed_s * up
