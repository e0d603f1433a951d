"""A real server, real jobs on it and a real Chromium: what a person sees.

All of it is started once for the folder, and ended with it: while Playwright's loop runs, no other test could have one.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stoker.client.client import Client
from stoker.host.home import Home, ServerAddress
from stoker.schema.registry import NewModel, NewVersion
from tests.processes import kill_all_with_environment, wait_until
from tests.ui.demo import submit_job, submit_search, write_demo
from tests.ui.playing import WAIT_MS, Browser, BrowserContext, Page, sync_playwright

HERE = Path(__file__).parent
# One process for all tabs, no GPU and none imitated: a quarter less work where there are two cores.
LIGHT = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-gpu-compositing",
    "--disable-software-rasterizer",
    "--in-process-gpu",
    "--process-per-site",
    "--renderer-process-limit=1",
]
MISSING = "the page is not tested: it takes Debian's chromium (apt install chromium) and pip install playwright"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These go first: xdist deals the first tests out in long runs, so that one worker starts a server and a browser.
    At the end it deals them in twos, and every worker would start its own."""
    items.sort(key=lambda item: HERE not in item.path.parents)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tests that are skipped for want of a browser are skipped in one place, so that one line says so."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and report.longrepr[2].endswith(MISSING):
        report.longrepr = (__file__, 0, report.longrepr[2])
    return report


@dataclass
class Site:
    """A server on a port of its own that can be killed and started again."""

    home: Home
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> ServerAddress:
        address = self.home.server()
        assert address is not None
        return address

    def start(self) -> None:
        command = [sys.executable, "-m", "stoker.server", "--port", str(self.port), "--idle-exit-s", "3600"]
        environment = {**os.environ, "STOKER_HOME": str(self.home.root)}
        with (self.home.root / "ui-test.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        wait_until(self._answers, what="the server")

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def client(self) -> Client:
        return Client(self.address, home=self.home)

    def submit(self, name: str, *command: str, **more: Any) -> None:
        """A job that runs this command, as `POST /jobs` takes it."""
        from stoker.schema.job import JobSpec

        with closing(self.client()) as client:
            client.submit(JobSpec(name=name, kind="command", command=command, **more))

    def state(self, job: str) -> str:
        with closing(self.client()) as client:
            return client.job(job).state

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "the server has ended; see ui-test.log"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0 and self.home.server() is not None


@pytest.fixture(scope="package")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = Home(tmp_path_factory.mktemp("ui") / "home").make()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    site = Site(home, port)
    site.start()
    yield site
    site.kill()
    kill_all_with_environment("STOKER_HOME", str(home.root))
    kill_all_with_environment("STOKER_RUN_DIR", str(home.root), prefix=True)


@dataclass(frozen=True, slots=True)
class Demo:
    """Jobs that have ended: a search, one alone, one that failed."""

    project: Path
    search: str
    single: str
    failed: str


@pytest.fixture(scope="package")
def demo(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    project = write_demo(tmp_path_factory.mktemp("demo") / "project")
    found = Demo(
        project,
        submit_search(site.home, project, "hunt", trials=12),
        submit_job(site.home, project, "alone_1"),
        submit_job(site.home, project, "broken_1", "fails"),
    )
    with site.client() as client:
        for name in (found.search, found.single, found.failed):
            client.wait(name, timeout_s=120)
        client.create_model(NewModel(name="taxi", description="What alone_1 learned."))
        client.create_version("taxi", NewVersion(job=found.single, checkpoint=client.checkpoints(found.single)[0].path))
    return found


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if sync_playwright is None or chromium is None:
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=LIGHT)
        yield browser
        browser.close()


@dataclass
class Seen:
    """What went wrong on a page, and whom it asked."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture(scope="package")
def signed_in(browser: Browser, site: Site) -> Iterator[BrowserContext]:
    """A browser with the cookie; one for all, so that it loads the page's code once, as a person's does."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, color_scheme="light", reduced_motion="reduce"
    )
    context.set_default_timeout(WAIT_MS)
    context.request.get(f"{site.url}/?token={site.address.token}", max_redirects=0)
    yield context
    context.close()


@pytest.fixture
def page(signed_in: BrowserContext, seen: Seen) -> Iterator[Page]:
    """A new tab, signed in, at 1280 px, on no page yet."""
    page = signed_in.new_page()
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    # A browser also reports answers that are no 2xx there; what the page does with them is for tests to see.
    page.on("console", lambda said: seen.errors.append(said.text) if _is_violation(said.text) else None)
    page.on("request", lambda request: seen.requests.append(request.url))
    yield page
    page.close()


def open_jobs(page: Page, site: Site) -> Page:
    """At the list of jobs, live."""
    page.goto(site.url)
    page.locator("#live[data-status=live]").wait_for()
    return page


def go(page: Page, address: str) -> None:
    """To another address within the page, as its links do: its sixty small files are not loaded anew."""
    page.evaluate(
        "address => { history.pushState(null, '', address); dispatchEvent(new Event('stoker:route')); }", address
    )


def _is_violation(text: str) -> bool:
    return "Content Security Policy" in text or "TrustedHTML" in text
