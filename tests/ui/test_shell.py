"""The shell and the jobs page, used as a person would."""

import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import stoker.server as stoker_server
from stoker.server.files import files_of_page, imported
from tests.e2e.command import stoker, submit, write_package
from tests.ui.conftest import WAIT_MS, Seen, Site, open_jobs

playwright = pytest.importorskip("playwright.sync_api", reason="the page is not tested: pip install playwright")
Browser, Page, expect = playwright.Browser, playwright.Page, playwright.expect
expect.set_options(timeout=WAIT_MS)
pytestmark = pytest.mark.slow


@pytest.fixture
def page(page: "Page", site: Site) -> "Page":
    return open_jobs(page, site)


SCRIPT = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
MAX_CODE_BYTES = 80 << 10
MAX_FIRST_PAGE_BYTES = 300 << 10
MAX_NODES = 1500


def row(page: "Page", job: str) -> "playwright.Locator":
    return page.locator(f'.vt-row[data-key="{job}"]')


def test_page_asks_nobody_else_and_keeps_to_its_policy(page: "Page", site: Site, seen: Seen) -> None:
    sizes = page.evaluate("performance.getEntries().map(e => [e.name, e.transferSize || 0])")

    assert {url.split("/")[2] for url in seen.requests} == {f"127.0.0.1:{site.port}"}
    assert seen.errors == []
    assert sum(size for _, size in sizes) <= MAX_FIRST_PAGE_BYTES
    assert page.evaluate("document.querySelectorAll('*').length") <= MAX_NODES
    for landmark in ("main", "navigation", "banner", "search"):
        assert page.get_by_role(landmark).count() >= 1  # type: ignore[arg-type]


def test_code_of_every_page_is_small() -> None:
    files = files_of_page().files
    contents = {name: file.content for name, file in files.items()}
    styles = sum(len(file.zipped) for name, file in files.items() if name.endswith(".css"))

    for name in (name for name in contents if name.startswith("js/pages/")):
        scripts = sum(len(files[path].zipped) for path in imported(contents, ("js/app.js", name)))
        assert scripts + styles <= MAX_CODE_BYTES, name


def test_scripts_can_be_sent_without_their_comments() -> None:
    for path in (Path(stoker_server.__file__).parent / "ui").rglob("*.js"):
        text = path.read_text()

        assert "innerHTML" not in text, path
        assert [line for line in text.splitlines() if line.count("`") % 2] == [], f"{path}: a text over several lines"


def test_list_is_live_and_survives_a_killed_server(
    page: "Page", site: Site, tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_HOME", str(site.home.root))
    monkeypatch.delenv("STOKER_SERVER", raising=False)
    project = write_package(tmp_path, wait="import time\ntime.sleep(600)\n")
    done = submit(project, "watched", "wait")
    assert done.code == 0, done.err

    expect(row(page, "watched")).to_contain_text("running")
    site.kill()
    expect(page.locator("#live")).to_contain_text("Reconnecting")
    expect(row(page, "watched")).to_be_visible()  # the last good data stays
    site.start()
    site.submit("while_away", "true")
    expect(page.locator("#live")).to_have_attribute("data-status", "live")
    expect(row(page, "while_away")).to_contain_text("succeeded")
    assert stoker("jobs", "cancel", "watched").code == 0
    expect(row(page, "watched")).to_contain_text("cancelled")
    assert seen.errors == []


def test_keyboard_is_enough(page: "Page", site: Site) -> None:
    site.submit("by_keys_1", "sleep", "600", labels={"team": "keys"})
    site.submit("by_keys_2", "true", labels={"team": "other"})
    expect(row(page, "by_keys_1")).to_be_visible()

    page.keyboard.press("/")
    page.keyboard.type("team:keys")
    page.keyboard.press("Enter")
    expect(page.locator(".vt-body .vt-row")).to_have_count(1)
    assert "q=team:keys" in page.url
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Compare (1)")).to_be_visible()
    page.keyboard.press("x")
    page.keyboard.press("Enter")  # the dialog's own button has the focus
    expect(row(page, "by_keys_1")).to_contain_text("cancelled")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Compare the selected jobs")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.reload()
    expect(page.locator(".vt-body .vt-row")).to_have_count(1)  # the address is the state
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/jobs/by_keys_1$"))


def test_theme_is_the_systems_until_chosen_and_then_kept(page: "Page", seen: Seen) -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = background()
    page.emulate_media(color_scheme="dark")
    dark = background()
    page.locator("#theme").click()  # auto, then light
    chosen = background()
    page.reload()

    assert (light, dark) == ("rgb(247, 248, 250)", "rgb(15, 17, 21)")
    assert chosen == background() == light
    assert seen.errors == []


def test_what_users_wrote_is_text(page: "Page", seen: Seen) -> None:
    """Names and labels cannot hold markup in our API; the page does not count on it."""
    hostile = {
        "id": SCRIPT, "number": 9, "owner": SCRIPT, "kind": "train", "state": "RUNNING", "reason": SCRIPT,
        "pool": SCRIPT, "priority": 0, "labels": {SCRIPT: SCRIPT}, "progress": 0.5, "created": 1,
        "started": 1, "ended": None,
        "search": {"metric": SCRIPT, "trials": 1, "outcomes": {}, "best": 1.0, "best_trial": 1},
    }  # fmt: skip
    page.route("**/api/v1/jobs?*", lambda route: route.fulfill(json={"jobs": [hostile]}))
    page.goto(page.url.partition("?")[0] + "?q=" + SCRIPT.partition(">")[0])

    shown = page.locator(".vt-body .vt-row")
    expect(shown).to_contain_text(SCRIPT)
    expect(shown).to_contain_text("running")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0
    assert seen.errors == []


def test_sign_in_is_asked_for_and_leads_where_one_wanted_to_go(browser: "Browser", site: Site) -> None:
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
    assert [cookie["sameSite"] for cookie in context.cookies()] == ["Strict"]
    context.close()


def test_phone_shows_the_same_without_scrolling_sideways(page: "Page", site: Site) -> None:
    page.set_viewport_size({"width": 390, "height": 780})

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    nav = page.get_by_role("navigation", name="Pages").bounding_box()
    assert nav is not None
    assert nav["y"] > 600


def test_page_of_another_site_changes_nothing(page: "Page", site: Site) -> None:
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
