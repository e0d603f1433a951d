"""The shell and the jobs page, used as a person would."""

import re
from pathlib import Path

import pytest

import stoker.server as stoker_server
from stoker.server.page_files import files_of_page
from tests.e2e.command import submit, write_package
from tests.processes import wait_until
from tests.ui.conftest import Seen, Site, open_jobs
from tests.ui.playing import Locator, Page, expect

pytestmark = pytest.mark.slow


@pytest.fixture
def page(page: Page, site: Site) -> Page:
    return open_jobs(page, site)


COUNT = """
import pathlib, sys, time
line = 0
while not pathlib.Path(sys.argv[1]).exists():
    line += 1
    print("line", line, "of many", flush=True)
    time.sleep(0.05)  # without a rest: a page that waits for one shows nothing
"""
MAX_CODE_BYTES = 80 << 10
MAX_FIRST_PAGE_BYTES = 300 << 10
MAX_NODES = 1500


def row(page: Page, job: str) -> Locator:
    return page.locator(f'.vt-row[data-key="{job}"]')


def test_page_asks_nobody_else_and_keeps_to_its_policy(page: Page, site: Site, seen: Seen) -> None:
    sizes = page.evaluate("performance.getEntries().map(e => [e.name, e.transferSize || 0])")

    assert {url.split("/")[2] for url in seen.requests} == {f"127.0.0.1:{site.port}"}
    assert seen.errors == []
    assert sum(size for _, size in sizes) <= MAX_FIRST_PAGE_BYTES
    assert page.evaluate("document.querySelectorAll('*').length") <= MAX_NODES
    for landmark in ("main", "navigation", "banner", "search"):
        assert page.get_by_role(landmark).count() >= 1  # type: ignore[arg-type]


def test_code_of_all_pages_is_small() -> None:
    files = files_of_page().files

    assert sum(len(files[name].zipped) for name in ("js/all.js", "css/all.css")) <= MAX_CODE_BYTES


def test_scripts_can_be_sent_without_their_comments() -> None:
    for path in (Path(stoker_server.__file__).parent / "ui").rglob("*.js"):
        text = path.read_text()

        assert "innerHTML" not in text, path
        assert [line for line in text.splitlines() if line.count("`") % 2] == [], f"{path}: a text over several lines"


def test_list_is_live_and_survives_a_killed_server(
    page: Page, site: Site, tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_HOME", str(site.home.root))
    monkeypatch.delenv("STOKER_SERVER", raising=False)
    project = write_package(tmp_path, count=COUNT)
    enough, said = tmp_path / "enough", site.home.root / "runs/watched/1/1/logs/chief-0.stdout"
    done = submit(project, "watched", "count", "--", str(enough))
    assert done.code == 0, done.err
    log = page.context.new_page()
    log.goto(f"{site.url}/jobs/watched/logs")
    expect(log.get_by_role("log")).to_contain_text("line 3 ")

    expect(row(page, "watched")).to_contain_text("running")
    site.kill()
    before = lines_of(said)
    expect(page.locator("#live")).to_contain_text("Reconnecting")
    expect(row(page, "watched")).to_be_visible()  # the last good data stays
    wait_until(lambda: lines_of(said) > before + 3, what="lines that no server took")
    site.start()
    site.submit("while_away", "true")
    expect(page.locator("#live")).to_have_attribute("data-status", "live")
    expect(row(page, "while_away")).to_contain_text("succeeded")
    enough.touch()
    expect(row(page, "watched")).to_contain_text("succeeded")

    expect(log.get_by_text(f"{lines_of(said)} lines", exact=True)).to_be_visible()  # each once
    expect(log.get_by_role("log")).to_contain_text(f"line {lines_of(said)} ")
    assert seen.errors == []
    log.close()


def lines_of(file: Path) -> int:
    return len(file.read_text().splitlines())


def test_keyboard_is_enough(page: Page, site: Site) -> None:
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


def test_theme_is_the_systems_until_chosen_and_then_kept(page: Page, seen: Seen) -> None:
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
