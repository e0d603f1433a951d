"""Every page against a large store, in real Chromium: when all that it is for is on the screen, and what that takes."""

import os
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from playwright.sync_api import Browser, BrowserContext, CDPSession, Page

from bench.measure import cpu_s
from bench.ui_seed import LONG, MODEL, SEARCH, Size
from stoker.host.processes import descendants

# Marks when each part of a page is on the screen: a frame after it is in the document and its canvas has colour.
WATCH = """
    window.benchMarks = {};
    const painted = (canvas) => {
      if (!canvas || !canvas.width || !canvas.height) return false;
      // One row of it: to read back all of a canvas in every frame would itself take the time that is measured.
      const data = canvas.getContext("2d").getImageData(0, canvas.height >> 1, canvas.width, 1).data;
      for (let at = 3; at < data.length; at += 4) if (data[at]) return true;
      return false;
    };
    const has = (selector) => document.querySelector(selector) !== null;
    const parts = {
      rows: () => has(".vt-body .vt-row"),
      table: () => has("main .plain-table tbody tr"),
      parallel: () => painted(document.querySelector('[data-card="parallel"] canvas')),
      scatter: () => painted(document.querySelector('[data-card="scatter"] canvas')),
      curves: () => painted(document.querySelector(".curve-tools ~ .cards canvas")),
      history: () => painted(document.querySelector('[data-card="history"] canvas')),
      lines: () => document.querySelector(".log-line .tx")?.textContent.length > 0,
      live: () => document.querySelector("#live")?.dataset.status === "live",
    };
    const look = () => {
      for (const [name, is] of Object.entries(parts)) {
        if (name in benchMarks || !is()) continue;
        benchMarks[name] = 0;
        requestAnimationFrame(() => { benchMarks[name] = performance.now(); });
      }
      setTimeout(() => requestAnimationFrame(look), 30);
    };
    requestAnimationFrame(look);
"""
EXPERIMENT = ("rows", "parallel", "scatter", "curves")
COMPARED = 20


class Site(Protocol):
    """A server that answers."""

    token: str

    @property
    def url(self) -> str: ...


@dataclass
class Loads:
    """Of one page, several times, each with an empty cache."""

    path: str
    needs: tuple[str, ...]
    ready: list[float] = field(default_factory=list)
    main_thread: list[float] = field(default_factory=list)
    all_cpu: list[float] = field(default_factory=list)
    marks: list[dict[str, float]] = field(default_factory=list)
    kb: float = 0.0
    requests: int = 0
    elements: int = 0
    load: float = 0.0

    def figures(self) -> dict[str, Any]:
        return {
            "ready_s": _spread(self.ready),
            "main_thread_cpu_s": _spread(self.main_thread),
            "browser_and_server_cpu_s": _spread(self.all_cpu),
            "marks_ms": {name: round(statistics.median(m[name] for m in self.marks)) for name in self.marks[0]},
            "kb": round(self.kb, 1),
            "requests": self.requests,
            "elements": self.elements,
            "load_1m": self.load,
        }


def pages(size: Size) -> dict[str, Loads]:
    """The address of each, and what must be on the screen."""
    search, long = f"/jobs/{SEARCH}", f"/jobs/{LONG}"
    compared = ",".join(f"{SEARCH}/{1 + at * size.trials // COMPARED}" for at in range(COMPARED))
    return {
        "first_page": Loads("/", ("rows", "live")),
        "experiment_page": Loads(search, EXPERIMENT),
        "checkpoints_page": Loads(f"{search}?tab=checkpoints", ("rows",)),
        "config_page": Loads(f"{search}?tab=config", ("table",)),
        "trial_page": Loads(f"{search}/trials/{size.trials // 2}", ("curves",)),
        "long_page": Loads(long, ("curves",)),
        "log_page": Loads(f"{long}/logs", ("lines",)),
        "log_found_page": Loads(f"{long}/logs?text=needle", ("lines",)),
        "compare_page": Loads(f"/compare?runs={compared}", ("table", "curves")),
        "pools_page": Loads("/pools", ("history", "live")),
        "models_page": Loads("/models", ("rows",)),
        "model_page": Loads(f"/models/{MODEL}", ("table",)),
    }


def measure_pages(browser: Browser, site: Site, size: Size, *, rounds: int) -> dict[str, Any]:
    state = sign_in(browser, site)
    every = pages(size)
    for _ in range(rounds):
        for loads in every.values():
            _load_once(browser, site, state, loads)
    return {name: loads.figures() for name, loads in every.items()}


def measure_cold(browser: Browser, start: Callable[[], AbstractContextManager[Site]], *, rounds: int) -> dict[str, Any]:
    """The experiment's page as the first that anybody asks of a server: one is started for each load."""
    loads = Loads(f"/jobs/{SEARCH}", EXPERIMENT)
    for _ in range(rounds):
        with start() as site:
            context = browser.new_context()
            context.request.get(f"{site.url}/?token={site.token}", max_redirects=0)  # the cookie, and no page
            state = context.storage_state()
            context.close()
            _load_once(browser, site, state, loads)
    return loads.figures()


def sign_in(browser: Browser, site: Site) -> Any:
    context = browser.new_context()
    context.new_page().goto(f"{site.url}/?token={site.token}")
    state = context.storage_state()
    context.close()
    return state


def _load_once(browser: Browser, site: Site, state: Any, loads: Loads) -> None:
    context = browser.new_context(storage_state=state, viewport={"width": 1280, "height": 800})
    try:
        page, session, sizes = _watched(context)
        cpu_before = _cpu_below_s()
        page.goto(site.url + loads.path, wait_until="commit")
        deadline = time.monotonic() + 120
        while not all((marks := page.evaluate("() => window.benchMarks")).get(name) for name in loads.needs):
            assert time.monotonic() < deadline, f"{loads.path}: {marks}"
            page.wait_for_timeout(20)
        loads.all_cpu.append(_cpu_below_s() - cpu_before)
        loads.main_thread.append(_main_thread_s(session))
        page.wait_for_timeout(500)  # what comes after, to count its bytes, too
        assert page.locator("[role=alert]").count() == 0, page.locator("[role=alert]").all_inner_texts()
        loads.ready.append(max(marks[name] for name in loads.needs) / 1000)
        loads.marks.append({name: marks[name] for name in loads.needs})
        loads.kb, loads.requests, loads.load = sum(sizes) / 1000, len(sizes), os.getloadavg()[0]
        loads.elements = page.evaluate("() => document.querySelectorAll('*').length")
    finally:
        context.close()


def _watched(context: BrowserContext) -> tuple[Page, CDPSession, list[float]]:
    context.add_init_script(WATCH)
    page = context.new_page()
    sizes: list[float] = []
    session = context.new_cdp_session(page)
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    session.send("Network.enable")
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    return page, session, sizes


def _cpu_below_s() -> float:
    """CPU time of all that this process has started: the server, Chromium, and what drives it."""
    return cpu_s(process.pid for process in descendants(os.getpid()))


def _main_thread_s(session: CDPSession) -> float:
    """CPU time of the page's main thread so far."""
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


def _spread(values: list[float]) -> dict[str, float]:
    return {"best": round(min(values), 3), "median": round(statistics.median(values), 3)}
