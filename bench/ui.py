"""The web UI, every page of it, in real Chromium: 10,000 trials, a million points and a million log lines.

`python -m bench.ui [--trials 200 --points 20000 --lines 5000 --rounds 1 --no-postgres]`. It takes Debian's chromium,
Playwright, and PostgreSQL's programs. Wall times mean little on a machine that others use: `load_1m` stands beside
each, and processor times, which hardly move with load.
"""

import argparse
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from bench.measure import cpu_s, write_results
from bench.ui_api import measure_api, percentile
from bench.ui_pages import measure_cold, measure_pages, sign_in
from bench.ui_seed import Size, cluster_of, seeded
from stoker.client.client import Client
from stoker.host.home import Home, ServerAddress
from stoker.host.processes import ProcessId, end_all, of_run
from stoker.schema.job import JobSpec

API = "/api/v1"
LIVE = "live"
TARGETS = {
    "first_page_s": 1.0,
    "first_page_kb": 300,
    "experiment_page_s": 1.5,
    "experiment_page_cold_s": 1.5,
    "live_update_s": 1.0,
    "clients_50_core": 0.15,
    "api_p95_ms": 200,
}
REPORT_S = 1.5
# A run that goes on, and says when it reported what.
LIVE_CODE = """
    import math, random, sys, time, stoker
    with stoker.init() as ctx, open(sys.argv[1], "w") as stamps:
        for step in range(1, 100000):
            time.sleep({pause_s} * (0.8 + 0.4 * random.random()))
            loss = step + math.sin(step)
            stamps.write(f"{{time.time()}}\\n")
            stamps.flush()
            ctx.report(step, loss=loss)
            print("step", step, "loss", loss, flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=Size().trials)
    parser.add_argument("--points", type=int, default=Size().points)
    parser.add_argument("--lines", type=int, default=Size().lines)
    parser.add_argument("--rounds", type=int, default=5, help="page loads of each kind")
    parser.add_argument("--requests", type=int, default=20, help="of each route")
    parser.add_argument("--updates", type=int, default=15)
    parser.add_argument("--only", choices=["pages", "live", "clients", "api"], action="append")
    parser.add_argument("--no-postgres", action="store_true")
    parser.add_argument("--write", action="store_true", help="to bench/results/ui.json")
    asked = parser.parse_args()
    size = Size(trials=asked.trials, points=asked.points, lines=asked.lines)
    folder = seeded(size, postgres=not asked.no_postgres)
    wanted = asked.only or ["pages", "live", "clients", "api"]
    figures: dict[str, Any] = {"size": {"trials": size.trials, "points": size.points, "lines": size.lines}}
    with _site(folder) as site:
        if "api" in wanted:
            figures["api_sqlite"] = measure_api(site, size, requests=asked.requests)
        if {"pages", "live"} & set(wanted):
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
                )
                if "pages" in wanted:
                    figures |= measure_pages(browser, site, size, rounds=asked.rounds)
                    cold = measure_cold(browser, lambda: _site(folder), rounds=asked.rounds)
                    figures["experiment_page_cold"] = cold
                if "live" in wanted:
                    figures["live_update"] = measure_live(browser, site, updates=asked.updates)
                browser.close()
        if "clients" in wanted:
            figures["clients"] = measure_clients(site)
    if "api" in wanted and not asked.no_postgres:
        with _postgres(folder) as database, _site(folder, database=database) as site:
            figures["api_postgres"] = measure_api(site, size, requests=asked.requests)
    figures["summary"] = summary(figures)
    print(json.dumps(figures, indent=2))
    if asked.write:
        write_results("ui", figures)


def summary(figures: dict[str, Any]) -> dict[str, Any]:
    """Each target beside what was measured: medians, but for what is a 95th percentile."""
    found = {
        "first_page_s": figures.get("first_page", {}).get("ready_s", {}).get("median"),
        "first_page_kb": figures.get("first_page", {}).get("kb"),
        "experiment_page_s": figures.get("experiment_page", {}).get("ready_s", {}).get("median"),
        "experiment_page_cold_s": figures.get("experiment_page_cold", {}).get("ready_s", {}).get("median"),
        "live_update_s": figures.get("live_update", {}).get("p95_s"),
        "clients_50_core": figures.get("clients", {}).get("cost_core"),
        "api_p95_ms sqlite": figures.get("api_sqlite", {}).get("p95_ms"),
        "api_p95_ms postgres": figures.get("api_postgres", {}).get("p95_ms"),
    }
    return {
        name: {"measured": value, "target": TARGETS[name.split()[0]], "met": value <= TARGETS[name.split()[0]]}
        for name, value in found.items()
        if value is not None
    }


# --- a server on a copy of the seeded store


@dataclass
class Site:
    home: Home
    port: int
    process: "subprocess.Popen[bytes]"
    token: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        """Of the server's process so far, to the nanosecond, by the threads it has now."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(path.read_text().split()[0]) for path in threads) / 1e9

    def client(self) -> Client:
        return Client(ServerAddress(url=self.url, token=self.token, pid=0))


@contextlib.contextmanager
def _site(folder: Path, *, database: str | None = None) -> Iterator[Site]:
    with tempfile.TemporaryDirectory() as place:
        home = Home(Path(place) / "home").make()
        if database is None:
            shutil.copy(folder / "stoker.db", home.database)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "stoker.server", "--port", str(port), "--idle-exit-s", "3600"]
        environment = {**os.environ, "STOKER_HOME": str(home.root)}
        environment |= {"STOKER_DATABASE": database} if database else {}
        with (home.root / "bench.log").open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        site = Site(home, port, process)
        try:
            deadline = time.monotonic() + 120
            while (address := home.server()) is None or not _answers(port):
                assert process.poll() is None, (home.root / "bench.log").read_text()
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.05)
            site.token = address.token
            yield site
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            end_all(lambda: _left(home), grace_s=0.0)


def _left(home: Home) -> list[ProcessId]:
    """Supervisors and the runs of the live job."""
    runs = [run for found in home.root.glob("runs/*/*/*") for run in of_run(found)]
    noted = [json.loads(path.read_text())["supervisor"] for path in home.root.glob("runs/*/*/*/processes.json")]
    return [*runs, *(ProcessId(one["pid"], one["start"]) for one in noted)]


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    """A copy of the seeded database, which is dropped again."""
    cluster = cluster_of(folder)
    cluster.start()
    try:
        cluster.execute("DROP DATABASE IF EXISTS bench WITH (FORCE)")
        cluster.execute("CREATE DATABASE bench TEMPLATE stoker")
        cluster.execute("ANALYZE", database="bench")
        yield cluster.url("bench")
        cluster.execute("DROP DATABASE bench WITH (FORCE)")
    finally:
        cluster.stop()


def _start_live(site: Site, *, pause_s: float, name: str = LIVE) -> Path:
    """A real run that reports; the file of its stamps, once there is one."""
    script, stamps = site.home.root / f"{name}.py", site.home.root / f"{name}.stamps"
    script.write_text(textwrap.dedent(LIVE_CODE.format(pause_s=pause_s)))
    with site.client() as client:
        client.submit(JobSpec(name=name, kind="command", command=(sys.executable, str(script), str(stamps))))
    deadline = time.monotonic() + 120
    while not stamps.exists() or not stamps.read_text():
        assert time.monotonic() < deadline, "the live job does not report"
        time.sleep(0.1)
    return stamps


def _stop(site: Site, name: str = LIVE) -> None:
    with site.client() as client:
        client.kill(name)
        client.wait(name, timeout_s=60)


# --- from ctx.report to the pixel

# The times (seconds since 1970) at which the first chart's picture was another than in the frame before.
CHANGES = """(seconds) => new Promise((done) => {
    const canvas = document.querySelector(".curve-tools ~ .cards canvas");
    const changes = [], end = Date.now() + seconds * 1000;
    let last = null;
    const look = () => {
      const data = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
      let sum = 0;
      for (let at = 0; at < data.length; at += 1) sum = (Math.imul(sum, 31) + data[at]) | 0;
      if (last !== null && sum !== last) changes.push(Date.now() / 1000);
      last = sum;
      if (Date.now() < end) setTimeout(look, 30); else done(changes);
    };
    look();
  })"""


def measure_live(browser: Browser, site: Site, *, updates: int) -> dict[str, Any]:
    """The picture changes once for each report, so the first change after a report is its."""
    stamps = _start_live(site, pause_s=REPORT_S)
    context = browser.new_context(storage_state=sign_in(browser, site), viewport={"width": 1280, "height": 800})
    try:
        page = context.new_page()
        page.goto(f"{site.url}/jobs/{LIVE}")
        page.locator(".curve-tools ~ .cards canvas").first.wait_for(timeout=60_000)
        page.wait_for_timeout(3000)
        began = time.time()
        changes = page.evaluate(CHANGES, updates * REPORT_S)
        said = [float(line) for line in stamps.read_text().splitlines()]
    finally:
        context.close()
        _stop(site)
    told = [at for at in said if began <= at < changes[-1]] if changes else []
    late = [min((change - at for change in changes if change >= at), default=None) for at in told]
    found = sorted(value for value in late if value is not None)
    return {
        "updates": len(found),
        "median_s": round(statistics.median(found), 3),
        "p95_s": round(percentile(found, 0.95), 3),
        "worst_s": round(found[-1], 3),
        "load_1m": os.getloadavg()[0],
    }


# --- many clients


def measure_clients(site: Site, *, count: int = 50, seconds: float = 20.0) -> dict[str, Any]:
    """What the server's process takes of a core for so many streams of a job that reports four times a second."""
    _start_live(site, pause_s=0.25, name="busy")
    try:
        alone = _cpu_share(site, seconds)
        heard: list[int] = []
        stop = threading.Event()
        clients = [_listen(site, "/stream?topics=job:busy,logs:busy,jobs", heard, stop) for _ in range(count)]
        time.sleep(3)
        heard.clear()
        together = _cpu_share(site, seconds)
        messages = len(heard)
        stop.set()
        for client in clients:
            client.join(60)
    finally:
        _stop(site, "busy")
    return {
        "clients": count,
        "server_core_without": round(alone, 4),
        "server_core_with": round(together, 4),
        "cost_core": round(together - alone, 4),
        "messages_a_second": round(messages / seconds),
        "load_1m": os.getloadavg()[0],
    }


def _cpu_share(site: Site, seconds: float) -> float:
    # Threads that have ended count, too, which they do not in site.cpu_s().
    before, began = cpu_s([site.process.pid]), time.monotonic()
    time.sleep(seconds)
    return (cpu_s([site.process.pid]) - before) / (time.monotonic() - began)


def _listen(site: Site, path: str, heard: list[int], stop: threading.Event) -> threading.Thread:
    def read() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
        connection.request("GET", API + path, headers={"Authorization": f"Bearer {site.token}"})
        response = connection.getresponse()
        while not stop.is_set() and (line := response.readline()):
            if line.startswith(b"event:"):
                heard.append(1)
        connection.close()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


if __name__ == "__main__":
    main()
