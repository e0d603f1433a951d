"""What ten thousand nodes and a hundred thousand trials ask of one server, by simulation: `python -m bench.scale`.

The scheduler, the searches and the store (SQLite, on disk) are the server's own; nodes, trials and time are simulated
(bench/simulation.py). HTTP is left out: bench/spine.py has its figures.
"""

import argparse
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.measure import write_results
from bench.simulation import Plan, Simulation
from stoker.host.home import Home
from stoker.server.store.store import Store, open_store

_SAY_S = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--slots-a-node", type=int, default=1)
    parser.add_argument("--searches", type=int, default=1)
    parser.add_argument("--trial-s", type=float, default=3600.0, help="of a trial that is not pruned, on average")
    parser.add_argument("--stopping", choices=("asha", "none"), default="asha")
    parser.add_argument("--failures-an-hour", type=float, default=0.01, help="of a node")
    parser.add_argument("--pulse-s", type=float, default=0.0, help="the least time between two ticks")
    parser.add_argument("--most-s", type=float, default=1e9, help="end after so long, with the figures by then")
    parser.add_argument("--folder", type=Path, help="keep the database here")
    parser.add_argument("--results", default="", help="write bench/results/NAME.json")
    words = vars(parser.parse_args())
    folder, results, most_s = words.pop("folder"), words.pop("results"), words.pop("most_s")
    plan = Plan(**words)
    with tempfile.TemporaryDirectory() as temporary:
        figures = measure(plan, folder or Path(temporary), most_s=most_s)
    for name, value in figures.items():
        print(f"{name}: {value}")
    if results:
        print(write_results(results, figures))


class Watched:
    """A store whose methods are timed, by this thread's processor time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds[name] += time.thread_time() - began
                self.calls[name] += 1

        setattr(self, name, timed)  # found at once the next time
        return timed


class Enough(Exception):
    """The time is up; what was seen by then is of use."""


def measure(plan: Plan, folder: Path, *, most_s: float = 1e9) -> dict[str, object]:
    home = Home(folder).make()
    opened = open_store(home.database)
    store = Watched(opened)
    simulation = Simulation(plan, store=store, home=home)  # type: ignore[arg-type]
    began, said = time.thread_time(), [time.monotonic()]
    until = said[0] + most_s

    def watch(now: Simulation) -> None:
        if time.monotonic() > until:
            raise Enough
        if time.monotonic() - said[0] > _SAY_S:
            said[0] = time.monotonic()
            print(_line(now, time.thread_time() - began), flush=True)

    with suppress(Enough):
        simulation.run(watch=watch)
    figures = _figures(simulation, store, home.database, took_s=time.thread_time() - began)
    opened.close()
    return figures


def _line(now: Simulation, cpu_s: float) -> str:
    record = now.record
    return (
        f"at {now.clock() - now.began:.0f} s: {now.engine.trials_begun} trials begun, {len(record.ends)} ended,"
        f" {now.engine.busy} slots busy, {record.node_failures} nodes failed, last tick {record.ticks[-1]:.3f} s,"
        f" {cpu_s:.0f} s of processor"
    )


def _figures(done: Simulation, store: Watched, database: Path, *, took_s: float) -> dict[str, object]:
    record, plan = done.record, done.plan
    full = [gap for at, gap in done.engine.gaps if _is_steady(done, at)]
    most = sorted(store.seconds, key=store.seconds.__getitem__, reverse=True)[:10]
    return {
        "plan": {name: getattr(plan, name) for name in plan.__slots__},
        "trials begun": done.engine.trials_begun,
        "runs ended": len(record.ends),
        "simulated hours": round((done.clock() - done.began) / 3600, 3),
        "node failures": record.node_failures,
        "runs lost": record.lost_runs,
        "filled after, s": None if record.filled_at is None else round(record.filled_at - done.began, 1),
        "slots busy until the queue was empty": _ratio(record.busy_s, record.up_s),
        "slots busy from full to empty queue": _ratio(record.full_busy_s, record.full_up_s),
        "s a slot is free before its next trial": _percentiles(full),
        "s from a report to the order it causes": _percentiles(record.orders),
        "processor s a tick": _percentiles(record.ticks),
        "ticks": len(record.ticks),
        "processor s": {
            "ticks": round(sum(record.ticks), 1),
            "taking in events": round(record.taking_in_s, 1),
            "in all, with the simulation": round(took_s, 1),
        },
        "server's processor ms a run": _ratio(1000 * (sum(record.ticks) + record.taking_in_s), len(record.ends)),
        "store, processor s": {name: [round(store.seconds[name], 1), store.calls[name]] for name in most},
        "database, MB": round(sum(path.stat().st_size for path in database.parent.glob(database.name + "*")) / 1e6),
        "memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _is_steady(done: Simulation, at: float) -> bool:
    record = done.record
    return record.filled_at is not None and at >= record.filled_at and (record.drained_at or at) >= at


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    if len(values) < 2:
        return {}
    cut = statistics.quantiles(values, n=100)
    return {"p50": round(cut[49], 4), "p99": round(cut[98], 4), "most": round(max(values), 4)}


if __name__ == "__main__":
    main()
