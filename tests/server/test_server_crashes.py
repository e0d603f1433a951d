"""The server killed between any two statements of the scheduler, every one of them in turn."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.engines.base import Engine
from stoker.host.home import Home
from stoker.schema.event import EventBatch, Exited, Phase, PhaseStarted
from stoker.schema.job import JobSpec, RestartRules, Share
from stoker.schema.pool import Pool
from stoker.schema.state import Intent, RunState
from stoker.server.live.wakeups import Wakeups
from stoker.server.scheduling.scheduler import Scheduler
from stoker.server.store.store import Store, open_store
from stoker.server.store.values import NewJob
from tests.server.fakes import FakeClock, FakeEngine

POOL = Pool(name="local", capacity=Share(cpus=4))


class Killed(BaseException):
    """kill -9: nothing may catch it."""


class Fuse:
    """Burns through at the n-th thing the scheduler does to the world: before it is done, or just after."""

    def __init__(self, at: int | None, *, after: bool) -> None:
        self.left, self.after = at, after

    def around(self, what: Any) -> Any:
        return _Fused(what, self)

    def call(self, act: Callable[..., Any], *args: Any, **more: Any) -> Any:
        blown = self.left == 0
        if self.left is not None:
            self.left -= 1
        if blown and not self.after:
            raise Killed
        result = act(*args, **more)
        if blown:
            raise Killed
        return result


class _Fused:
    def __init__(self, what: Any, fuse: Fuse) -> None:
        self._what, self._fuse = what, fuse

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._what, name)
        return (lambda *args, **more: self._fuse.call(act, *args, **more)) if callable(act) else act


class FusedEngine(_Fused):
    """Spelled out, so that `isinstance` sees what the engine can do."""

    def find(self, *args: Any) -> Any:
        return self._fuse.call(self._what.find, *args)

    def drain(self, *args: Any) -> Any:
        return self._fuse.call(self._what.drain, *args)


class Supervisors:
    """Say what runs do: begin, then end as the plan says for that attempt; or vanish."""

    def __init__(self, store: Store, engine: FakeEngine, plan: dict[int, str]) -> None:
        self._store, self._engine, self._plan = store, engine, plan
        self._begun: set[str] = set()

    def work(self) -> None:
        for launch in list(self._engine.launches):
            handle = f"[{launch.run}]"
            if handle not in self._engine.alive:
                continue
            if launch.run not in self._begun:
                self._begun.add(launch.run)
                self._say(launch.run, PhaseStarted(seq=1, time=1.0, phase=Phase.USER_CODE))
                continue
            self._finish(launch.run, self._plan[launch.attempt])

    def _finish(self, run: str, how: str) -> None:
        if how == "stops" and self._store.stop_order(run) is None:
            return
        if how != "vanishes":
            codes = {"fails": 1, "succeeds": 0, "stops": 143}
            stop = self._store.stop_order(run) if how == "stops" else None
            self._say(run, Exited(seq=2, time=2.0, phase=Phase.USER_CODE, code=codes[how], stop=stop))
        self._engine.dies(run)

    def _say(self, run: str, *events: Any) -> None:
        self._store.append_events(run, EventBatch(events=events), now=1.0)


def play(home: Home, plan: dict[int, str], fuse: Fuse, wants: Intent = Intent.RUN) -> list[RunState]:
    """One job to its end, with a server that is killed when the fuse burns through, and then another."""
    store = open_store(home.database)
    engine, clock = FakeEngine(), FakeClock()
    spec = JobSpec(name="taxi", module="trainer.task", restarts=RestartRules(max_restarts=1))
    store.add_job(NewJob(spec=spec, owner="ada", pool="local", need=Share()), now=clock())
    supervisors = Supervisors(store, engine, plan)

    def a_server(fuse: Fuse) -> Scheduler:
        engines: dict[str, Engine] = {"local": FusedEngine(engine, fuse)}  # type: ignore[dict-item]
        return Scheduler(
            fuse.around(store), engines=engines, pools={"local": POOL}, home=home, wakeups=Wakeups(), now=clock
        )

    server = a_server(fuse)
    for round in range(60):
        if round == 3 and wants is not Intent.RUN:
            store.set_intent("taxi", wants, by="ada", now=clock())
        try:
            server.tick()
        except Killed:
            server = a_server(Fuse(None, after=False))
        supervisors.work()
        clock.advance(1.0)
        if store.summary("taxi").state.is_final:
            break
    states = [run.state for run in store.job("taxi").trials[0].runs]
    assert [launch.attempt for launch in engine.launches] == list(range(1, len(states) + 1)), "each run started once"
    store.close()
    return states


STORIES = {
    "success": ({1: "succeeds"}, Intent.RUN, [RunState.SUCCEEDED]),
    "restart": ({1: "fails", 2: "succeeds"}, Intent.RUN, [RunState.FAILED, RunState.SUCCEEDED]),
    "loss": ({1: "vanishes", 2: "succeeds"}, Intent.RUN, [RunState.LOST, RunState.SUCCEEDED]),
    "cancel": ({1: "stops"}, Intent.STOP, [RunState.STOPPED]),
}


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_next_server_carries_on_wherever_the_last_was_killed(
    tmp_path_factory: Any, empty_database: Path, story: str, after: bool
) -> None:
    plan, wants, expected = STORIES[story]
    for at in range(1000):
        fuse = Fuse(at, after=after)
        home = Home(tmp_path_factory.mktemp(f"kill_{at}")).make()
        shutil.copyfile(empty_database, home.database)

        assert play(home, plan, fuse, wants) == expected, f"killed {'after' if after else 'before'} call {at}"

        if fuse.left is not None and fuse.left >= 0:
            assert at > 10, "the scheduler was killed at each of its calls"
            return
    raise AssertionError("the story does not end")
