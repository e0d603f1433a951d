"""Counters of all workers in one small file of numbers, and the page that Prometheus reads.

Each worker writes its own part and reads all of them, so any worker can answer for all, and a worker that was
restarted goes on counting where the dead one stopped.
"""

import mmap
import struct
from bisect import bisect_left
from pathlib import Path

ROUTES = ("predict", "infer", "other")
STATUSES = (200, 400, 401, 404, 405, 408, 413, 415, 429, 431, 500, 503, 504, 0)  # 0: any other
LATENCY_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
BATCH = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

_STATUS_AT = {status: number for number, status in enumerate(STATUSES)}
_ROUTE_AT = {route: number * len(STATUSES) for number, route in enumerate(ROUTES)}
_LATENCY = len(ROUTES) * len(STATUSES)
_LATENCY_SUM = _LATENCY + len(LATENCY_S) + 1
_BATCH = _LATENCY_SUM + 1
_BATCH_SUM = _BATCH + len(BATCH) + 1
_QUEUE = _BATCH_SUM + 1
_UP = _QUEUE + 1
_SIZE = _UP + 1


class Metrics:
    """One worker's counters."""

    def __init__(self, path: Path, slot: int) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._all = memoryview(self._map).cast("d")
        self._mine = self._all[slot * _SIZE : (slot + 1) * _SIZE]
        self._mine[_QUEUE] = 0
        self._mine[_UP] = 1

    @staticmethod
    def make(path: Path, *, slots: int) -> None:
        path.write_bytes(struct.pack(f"{slots * _SIZE}d", *[0.0] * slots * _SIZE))

    @staticmethod
    def end(path: Path, slot: int) -> None:
        """The worker of this slot is gone: its counts stay, it is not up, and nothing waits in it."""
        with path.open("r+b") as file:
            file.seek((slot * _SIZE + _QUEUE) * 8)
            file.write(struct.pack("2d", 0.0, 0.0))

    def count_request(self, route: str, status: int, took_s: float) -> None:
        mine = self._mine
        mine[_ROUTE_AT[route] + _STATUS_AT.get(status, len(STATUSES) - 1)] += 1
        if route != "other":
            mine[_LATENCY + bisect_left(LATENCY_S, took_s)] += 1
            mine[_LATENCY_SUM] += took_s

    def count_batch(self, size: int) -> None:
        self._mine[_BATCH + bisect_left(BATCH, size)] += 1
        self._mine[_BATCH_SUM] += size

    def set_queue(self, depth: int) -> None:
        self._mine[_QUEUE] = depth

    def page(self, *, model: str, version: str) -> str:
        """In Prometheus' text format, the sum over all workers."""
        count = len(self._all) // _SIZE
        total = [sum(self._all[slot * _SIZE + at] for slot in range(count)) for at in range(_SIZE)]
        lines = ["# HELP stoker_serve_requests_total Requests answered.", "# TYPE stoker_serve_requests_total counter"]
        for route in ROUTES:
            for status in STATUSES:
                if value := total[_ROUTE_AT[route] + _STATUS_AT[status]]:
                    code = status or "other"
                    lines.append(f'stoker_serve_requests_total{{route="{route}",status="{code}"}} {value:.15g}')
        name = "stoker_serve_latency_seconds"
        lines += _histogram(name, "From a request's first byte to its answer.", LATENCY_S, total[_LATENCY:_BATCH])
        name = "stoker_serve_batch_instances"
        lines += _histogram(name, "Instances in one call of the model.", BATCH, total[_BATCH:_QUEUE])
        lines += _gauge("stoker_serve_queue_requests", "Requests that wait for the model.", total[_QUEUE])
        lines += _gauge("stoker_serve_workers", "Worker processes that serve.", total[_UP])
        lines += ["# HELP stoker_serve_model_info What is served.", "# TYPE stoker_serve_model_info gauge"]
        lines.append(f'stoker_serve_model_info{{model="{_escaped(model)}",version="{_escaped(version)}"}} 1')
        return "\n".join(lines) + "\n"


def _histogram(name: str, text: str, bounds: tuple[float, ...], values: list[float]) -> list[str]:
    """`values` are one count for each bound, one for what is beyond the last, and the sum."""
    lines = [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
    running = 0.0
    for bound, value in zip(bounds, values, strict=False):
        running += value
        lines.append(f'{name}_bucket{{le="{bound:g}"}} {running:.15g}')
    running += values[len(bounds)]
    lines.append(f'{name}_bucket{{le="+Inf"}} {running:.15g}')
    return [*lines, f"{name}_sum {values[len(bounds) + 1]:.15g}", f"{name}_count {running:.15g}"]


def _gauge(name: str, text: str, value: float) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name} {value:g}"]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
