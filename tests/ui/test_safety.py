"""What others wrote stays text, and what others ask for is not done."""

import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.ui.conftest import Demo, Seen, Site, go, open_jobs
from tests.ui.demo import SCRIPT
from tests.ui.playing import Browser, Locator, Page, Route, expect

pytestmark = pytest.mark.slow

POLICY = {
    "default-src": ["'none'"],
    "script-src": ["'self'"],
    "style-src": ["'self'"],
    "connect-src": ["'self'"],
    "img-src": ["'self'"],
    "base-uri": ["'none'"],
    "form-action": ["'self'"],
    "frame-ancestors": ["'none'"],
    "require-trusted-types-for": ["'script'"],
    "trusted-types": ["'none'"],
}
# Three ways to run a text as a script; the number of those that were refused at once, after the browser has told of it.
RUN_THREE = """async () => {
  let refused = 0;
  const told = new Promise((resolve) => document.addEventListener("securitypolicyviolation", resolve));
  const attempt = (act) => { try { act(); } catch { refused += 1; } };
  const script = document.createElement("script"), button = document.createElement("button");
  attempt(() => { script.text = "window.hacked = 1"; });
  attempt(() => button.setAttribute("onclick", "window.hacked = 1"));
  script.append(document.createTextNode("window.hacked = 1"));
  document.head.append(script);
  document.body.append(button);
  button.click();
  await told;
  return refused;
}"""
# Whatever people or their code may have written, by its name in the API's answers.
WRITTEN = {
    "id", "job", "name", "names", "owner", "pool", "reason", "message", "description", "path", "text", "metric",
    "stopped", "origin", "framework", "directory", "module", "replica", "group", "engine", "diff", "requirements",
    "args", "command", "alias", "why",
}  # fmt: skip
ADDRESSES = (
    "/",
    "/jobs/{search}",
    "/jobs/{search}?tab=config",
    "/jobs/{search}?tab=checkpoints",
    "/jobs/{search}/trials/1",
    "/jobs/{search}/trials/1?tab=hparams",
    "/jobs/{single}?tab=code",
    "/jobs/{single}?tab=code&against={failed}",
    "/jobs/{single}/logs",
    "/jobs/{failed}",
    "/pools",
    "/models",
    "/models/taxi",
    "/compare?runs={search}/1,{single}/1",
)


def row(page: Page, job: str) -> Locator:
    return page.locator(f'.vt-row[data-key="{job}"]')


def assert_nothing_ran(page: Page, seen: Seen) -> None:
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0
    assert seen.errors == []


def test_policy_is_strict_and_the_browser_holds_it(page: Page, site: Site, seen: Seen) -> None:
    for address in ("/", "/login"):
        answer = page.goto(site.url + address)
        assert answer is not None
        parts = (part.split() for part in answer.headers["content-security-policy"].split(";"))
        assert {name: words for name, *words in parts} == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert re.findall(r"<script(?![^>]*\ssrc=)|\son\w+=|\sstyle=|javascript:", answer.text()) == []
    assert seen.errors == []

    assert page.evaluate(RUN_THREE) == 2
    assert page.evaluate("window.hacked") is None


def plant(value: Any, key: str = "") -> Any:
    """An answer of the API with a script at the end of whatever somebody wrote, and as a name where names are free."""
    if isinstance(value, dict):
        planted = {
            name: plant(one, name if key not in ("hparams", "labels") else "text") for name, one in value.items()
        }
        if key in ("hparams", "labels", "metrics", "metadata"):
            columns = [one for one in value.values() if isinstance(one, list)]
            text: Any = SCRIPT if key != "metrics" else 0.5
            planted[SCRIPT] = [text] * len(columns[0]) if columns else text
        return planted
    if isinstance(value, list):
        return [plant(one, key) for one in value]
    return value + SCRIPT if isinstance(value, str) and key in WRITTEN else value


def test_whatever_anybody_wrote_is_text_on_every_page(page: Page, site: Site, demo: Demo, seen: Seen) -> None:
    """Our API refuses markup in some of these; the page does not count on it."""

    def answer(route: Route) -> None:
        if "/stream" in route.request.url:
            route.continue_()
            return
        found = route.fetch()
        if found.status == 304:  # nothing new, and no body
            route.fulfill(response=found)
            return
        route.fulfill(response=found, json=plant(found.json()))

    page.route("**/api/v1/**", answer)
    open_jobs(page, site)
    for address in ADDRESSES:
        go(page, address.format(search=demo.search, single=demo.single, failed=demo.failed))
        expect(page.locator("main")).to_contain_text(SCRIPT)
        expect(page.locator(".skeleton")).to_have_count(0)
        assert_nothing_ran(page, seen)
    page.unroute_all(behavior="ignoreErrors")


def test_sign_in_is_asked_for_and_leads_where_one_wanted_to_go(browser: Browser, site: Site) -> None:
    context = browser.new_context()
    page = context.new_page()

    page.goto(f"{site.url}/?state=failed")
    page.get_by_label("Token").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not this server's token")
    page.get_by_label("Token").fill(site.address.token)
    page.keyboard.press("Enter")

    expect(page.locator("#live")).to_have_attribute("data-status", "live")
    assert page.url == f"{site.url}/?state=failed"
    assert page.evaluate("document.cookie") == ""
    assert [(cookie["sameSite"], cookie["httpOnly"]) for cookie in context.cookies()] == [("Strict", True)]
    context.close()


def test_page_of_another_site_changes_nothing(page: Page, site: Site) -> None:
    site.submit("not_theirs", "sleep", "600")
    other = page.context.new_page()
    # Another origin of the same machine. What the server says to a cookie from there: tests/server/test_auth.py.
    with serving_a_page() as theirs:
        other.goto(theirs)
        with other.expect_request("**/cancel") as asked:
            other.evaluate(
                "url => fetch(url, {method: 'POST', mode: 'no-cors', credentials: 'include'}).then(() => 1)",
                f"{site.url}/api/v1/jobs/not_theirs/cancel",
            )

    answer = asked.value.response()
    assert answer is not None
    assert answer.status == 401
    assert site.state("not_theirs") not in ("CANCELLING", "CANCELLED")
    page.bring_to_front()
    open_jobs(page, site)
    expect(row(page, "not_theirs")).to_be_visible()
    page.get_by_role("button", name="Actions for not_theirs").click()
    page.get_by_role("menuitem", name="Kill…").click()
    page.get_by_role("button", name="Kill not_theirs").click()
    expect(row(page, "not_theirs")).to_contain_text("cancelled")


@contextmanager
def serving_a_page() -> Iterator[str]:
    """Somebody else's server on this machine."""

    class Theirs(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>theirs</title>")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Theirs) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()
