"""A real server and a real Chromium: what a person sees."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from stoker.client import Client
from stoker.home import Home, ServerAddress
from tests.processes import kill_all_with_environment, wait_until

try:
    from playwright.sync_api import Browser, Page, sync_playwright
except ImportError:
    sync_playwright = None

CHROMIUM = shutil.which("chromium")
WAIT_MS = 60_000


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
        return Client(self.address)

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


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
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


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    if sync_playwright is None or CHROMIUM is None:
        pytest.skip(
            "the page is not tested: it takes Debian's chromium (apt install chromium) and pip install playwright"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
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


@pytest.fixture
def page(browser: "Browser", site: Site, seen: Seen) -> Iterator["Page"]:
    """Signed in, at the list of jobs, at 1280 px."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, color_scheme="light", reduced_motion="reduce"
    )
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    # A browser also reports answers that are no 2xx there; what the page does with them is for tests to see.
    page.on("console", lambda said: seen.errors.append(said.text) if _is_violation(said.text) else None)
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(f"{site.url}/?token={site.address.token}")
    page.locator("#live[data-status=live]").wait_for()
    yield page
    context.close()


def _is_violation(text: str) -> bool:
    return "Content Security Policy" in text or "TrustedHTML" in text
