"""A cluster of make-believe trials around a real scheduler and store: they report, obey, fail and end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stoker.schema.event import Checkpoint, Event, EventBatch, Exited, InvalidHp, Metric, Phase, PhaseStarted
from stoker.schema.job import JobSpec, Share
from stoker.schema.launch import Launch
from stoker.schema.pool import Pool
from stoker.schema.state import StopReason
from stoker.search.base import Asked, Ended, Reported
from stoker.search.searcher import build_searcher
from stoker.server.scheduling.placement import replicas_for
from stoker.server.scheduling.scheduler import Scheduler
from stoker.server.store.store import Store
from stoker.server.store.values import NewJob
from tests.server.fakes import FakeClock, FakeEngine

Loss = Callable[[Mapping[str, Any], int], float]


def parabola(hparams: Mapping[str, Any], step: int) -> float:
    return float((hparams["x"] - 0.3) ** 2 + 1.0 / step)


@dataclass
class Behaviour:
    """What trials do, by their launch: how long they take, what they report, how they go wrong."""

    length: int = 16
    loss: Loss = parabola
    metric: str = "loss"
    group: str = "validation"
    crashes: Callable[[Launch], bool] = lambda launch: False
    refuses: Callable[[Launch], bool] = lambda launch: False


@dataclass
class Cluster:
    store: Store
    scheduler: Scheduler
    engine: FakeEngine
    clock: FakeClock
    pool: Pool
    behaviour: Behaviour = field(default_factory=Behaviour)
    steps: dict[str, int] = field(default_factory=dict)  # of each run that is going
    ended: dict[str, int] = field(default_factory=dict)  # runs that ended, and how far they got
    most: int = 0  # runs at once
    _seq: dict[str, int] = field(default_factory=dict)

    def submit(self, search: dict[str, Any], name: str = "job", **fields: Any) -> None:
        space = search.setdefault("space", {"x": {"type": "double", "min": 0, "max": 1}})
        assert space
        spec = JobSpec.model_validate({"name": name, "module": "trainer.task", "search": search, **fields})
        need = Share.total(replicas_for(spec.resources, self.pool))
        self.store.add_job(NewJob(spec=spec, owner="ada", pool="local", need=need), now=self.clock())

    def settle(self) -> None:
        for _ in range(200):
            if not self.scheduler.tick():
                return
        raise AssertionError("the scheduler does not come to rest")

    def run(self, job: str = "job", *, rounds: int = 10_000) -> None:
        """Until the job has ended, or for so many rounds; each lets every run take a step."""
        for _ in range(rounds):
            self.settle()
            if self.store.summary(job).state.is_final:
                return
            self.take_a_step()
        assert rounds < 10_000, "the search does not end"

    def take_a_step(self) -> None:
        going = [launch for launch in self.engine.launches if launch.run not in self.ended]
        self.most = max(self.most, len(going))
        for launch in going:
            self._step(launch)

    def _step(self, launch: Launch) -> None:
        run, how = launch.run, self.behaviour
        stop = self.store.stop_order(run)
        if stop is not None:
            self._end(run, Exited(seq=0, time=0, phase=Phase.USER_CODE, code=0, stop=stop))
            return
        step = self.steps.get(run, 0) + 1
        self.steps[run] = step
        if step == 1:
            self.say(run, PhaseStarted(seq=0, time=0, phase=Phase.USER_CODE))
        if how.refuses(launch):
            self.say(run, InvalidHp(seq=0, time=0, reason="too wide"))
            self._end(run, Exited(seq=0, time=0, phase=Phase.USER_CODE, code=0))
            return
        values = {how.metric: how.loss(launch.hparams, step), "other": 1.0}
        self.say(
            run,
            Metric(seq=0, time=0, group=how.group, step=step, values=values),
            Checkpoint(seq=0, time=float(step), step=step, path=f"/checkpoints/{launch.run}/{step}"),
        )
        if how.crashes(launch) and step >= 3:
            self._end(run, Exited(seq=0, time=0, phase=Phase.USER_CODE, code=1, message="it broke"))
        elif step >= how.length:
            self._end(run, Exited(seq=0, time=0, phase=Phase.USER_CODE, code=0))

    def say(self, run: str, *events: Event) -> None:
        seq = self._seq.get(run, 0)
        numbered = tuple(event.with_(seq=seq + at) for at, event in enumerate(events, 1))
        self._seq[run] = seq + len(events)
        self.store.append_events(run, EventBatch(events=numbered), now=self.clock())

    def _end(self, run: str, exit: Exited) -> None:
        self.ended[run] = self.steps.get(run, 0)
        self.say(run, exit)
        self.engine.dies(run)

    def launch(self, trial: int, job: str = "job") -> Launch:
        return next(found for found in self.engine.launches if found.job == job and found.trial == trial)


def check_history(store: Store, job: str = "job") -> None:
    """Every decision follows from the store alone: a fresh searcher, told the same, decides the same."""
    spec = store.job(job).spec.search
    assert spec is not None
    searcher = build_searcher(spec)
    asked: set[int] = set()
    ended: set[int] = set()
    for record in store.search_past(job).records:
        match record:
            case Asked():
                assert searcher.ask() == record.suggestion
                assert record.suggestion.trial not in asked, "a trial was asked for twice"
                asked.add(record.suggestion.trial)
            case Reported():
                assert searcher.report(record.trial, step=record.step, values=record.values) == record.stop
            case Ended():
                assert record.trial not in ended, "a trial ended twice"
                ended.add(record.trial)
                searcher.ended(record.trial, record.outcome, reported=record.reported)
    trials = store.trials(job, limit=100_000).trials
    assert {trial.number for trial in trials} == asked
    for trial in trials:
        fulfilled = [run for run in trial.runs if run.state == "SUCCEEDED" or run.stop is StopReason.PRUNE]
        assert len(fulfilled) <= 1, f"trial {trial.number} ran twice to its end"
        assert (trial.outcome is not None) == (trial.number in ended)
