"""How long the scheduler takes per finished trial of a large search: all is real but the trials' processes.

python -m bench.search_scheduler [--trials 10000]
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from stoker.host.home import Home
from stoker.schema.event import Exited, Metric, Phase, PhaseStarted
from stoker.schema.job import Share
from stoker.schema.pool import Pool
from stoker.server.live.wakeups import Wakeups
from stoker.server.scheduling.scheduler import Scheduler
from stoker.server.store.store import open_store
from tests.server.fakes import FakeClock, FakeEngine
from tests.server.searching import Cluster, parabola

RUNGS = (1, 4, 16, 64)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=16)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for line in measure(Path(folder), trials=asked.trials, at_once=asked.at_once):
            print(json.dumps(line), flush=True)


class Stopwatch:
    """Processor time of this thread in one function, so that others on the machine do not count."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function):
        def timed():
            began = time.thread_time()
            try:
                return function()
            finally:
                self.seconds += time.thread_time() - began

        return timed


def measure(folder: Path, *, trials: int, at_once: int):
    home = Home(folder).make()
    store = open_store(home.database)
    pool = Pool(name="local", capacity=Share(cpus=at_once, memory_gb=64, gpus=0))
    engine, clock = FakeEngine(), FakeClock()
    scheduler = Scheduler(
        store, engines={"local": engine}, pools={"local": pool}, home=home, wakeups=Wakeups(), now=clock
    )
    cluster = Cluster(store, scheduler, engine, clock, pool)
    search = {"sampler": "random", "stopping": {"name": "asha", "max_time": 64}, "metric": "loss"}
    cluster.submit({**search, "max_trials": trials, "max_concurrent_trials": at_once})
    deciding = Stopwatch()
    scheduler._searches.step = deciding.around(scheduler._searches.step)
    tending_s, done, since = 0.0, 0, 0
    live: dict[str, int] = {}
    hparams: dict[str, dict[str, float]] = {}
    while not store.summary("job").state.is_final:
        began = time.thread_time()
        while scheduler.tick():
            pass
        tending_s += time.thread_time() - began
        for launch in engine.launches:
            live.setdefault(launch.run, 0)
            hparams[launch.run] = launch.hparams
        engine.launches.clear()
        for run, at in list(live.items()):
            cluster.engine.alive.add(f"[{run}]")
            stop = store.stop_order(run)
            if stop is not None or at == len(RUNGS):
                cluster.say(run, Exited(seq=0, time=0, phase=Phase.USER_CODE, code=0, stop=stop))
                engine.dies(run)
                del live[run]
                done += 1
                continue
            if at == 0:
                cluster.say(run, PhaseStarted(seq=0, time=0, phase=Phase.USER_CODE))
            values = {"loss": parabola(hparams[run], RUNGS[at])}
            cluster.say(run, Metric(seq=0, time=0, step=RUNGS[at], values=values))
            live[run] = at + 1
        if done - since >= max(trials // 10, 1):
            search_ms = 1000 * deciding.seconds / (done - since)
            tick_ms = 1000 * tending_s / (done - since)
            yield {
                "trials": done,
                "search_cpu_ms_a_trial": round(search_ms, 2),
                "tick_cpu_ms_a_trial": round(tick_ms, 2),
            }
            tending_s, deciding.seconds, since = 0.0, 0.0, done
    scheduler.stop()
    store.close()


if __name__ == "__main__":
    main()
