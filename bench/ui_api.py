"""Every route that the pages ask, against a large store: how long an answer takes, and how much of the processor."""

import http.client
import os
import random
import statistics
import sys
import time
from typing import Any, Protocol

from bench.ui_seed import LONG, MODEL, SEARCH, Size
from stoker.client.client import Client

API = "/api/v1"


class Site(Protocol):
    """A server that answers."""

    port: int
    token: str

    def client(self) -> Client: ...

    def cpu_s(self) -> float:
        """Of its process so far."""
        ...


def measure_api(site: Site, size: Size, *, requests: int) -> dict[str, Any]:
    """One after the other, with other arguments each time; columns after a change each time.

    The first round finds nothing prepared, and is told apart.
    """
    dice = random.Random(1)
    times: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    with site.client() as client:
        for at in range(requests + 1):
            for name, path in _questions(dice, size).items():
                if name == "columns":
                    client.update(SEARCH, priority=at)
                cpu_before = site.cpu_s()
                times.setdefault(name, []).append(_ask(site, path))
                cpu.setdefault(name, []).append(max(site.cpu_s() - cpu_before, 0.0))
            sys.stderr.write(f"round {at} of {requests}\n")
    every = sorted(value for found in times.values() for value in found[1:])
    every_cpu = sorted(value for found in cpu.values() for value in found[1:])
    return {
        "p50_ms": _ms(percentile(every, 0.5)),
        "p95_ms": _ms(percentile(every, 0.95)),
        "cpu_p95_ms": _ms(percentile(every_cpu, 0.95)),
        "requests": len(every),
        "p95_ms_by_route": {name: _ms(percentile(sorted(found[1:]), 0.95)) for name, found in times.items()},
        "cpu_ms_by_route": {name: _ms(statistics.median(found[1:])) for name, found in cpu.items()},
        "first_cpu_ms_by_route": {name: _ms(found[0]) for name, found in cpu.items()},
        "load_1m": os.getloadavg()[0],
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def _questions(dice: random.Random, size: Size) -> dict[str, str]:
    hunt, long = f"/jobs/{SEARCH}", f"/jobs/{LONG}"
    trial = dice.randint(1, size.trials)
    twenty = ",".join(str(dice.randint(1, size.trials)) for _ in range(20))
    steps = size.points // 20
    begin = dice.randint(0, steps // 2)
    return {
        "jobs": "/jobs?limit=100",
        "jobs found": "/jobs?q=vision&counts=true&sort=-priority",
        "job": hunt,
        "columns": f"{hunt}/trials/columns",
        "series of 20 trials": f"{hunt}/series?trial={twenty}&points=400",
        "search": f"{hunt}/search?best=1",
        "rungs": f"{hunt}/rungs",
        "trial": f"{hunt}/trials?trial={trial}",
        "best trials": f"{hunt}/trials?sort=best",
        "checkpoints": f"{hunt}/checkpoints",
        "checkpoints of a trial": f"{hunt}/checkpoints?trial={trial}",
        "long series": f"{long}/series?points=1200",
        "long series, zoomed": f"{long}/series?points=1200&start={begin}&end={begin + steps // 10}",
        "log window": f"{long}/logs/lines?from={dice.randint(0, max(size.lines - 500, 0))}&count=500",
        "log end": f"{long}/logs/lines?from=-500",
        "log text": f"{long}/logs/lines?text=needle%20{dice.randint(1, 9)}&count=500",
        "log regex": f"{long}/logs/lines?regex=needle.*{dice.randint(1, 9)}:&count=500",
        "log errors": f"{long}/logs/lines?level=ERROR&count=500",
        "pools": "/pools",
        "pool history": "/pools/history",
        "environment": f"{long}/environment",
        "models": "/models",
        "versions": f"/models/{MODEL}/versions",
    }


def _ask(site: Site, path: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=120)
    try:
        began = time.perf_counter()
        headers = {"Authorization": f"Bearer {site.token}", "Accept-Encoding": "gzip"}
        connection.request("GET", API + path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, f"{path}: {answer.status} {body[:300]!r}"
        return time.perf_counter() - began
    finally:
        connection.close()


def percentile(ordered: list[float], part: float) -> float:
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]
