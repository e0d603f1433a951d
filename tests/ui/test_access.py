"""The pages for everybody: both themes, a phone, no mouse, a screen reader."""

from pathlib import Path

import pytest

from tests.ui.conftest import Demo, Seen, Site, go, open_jobs
from tests.ui.playing import Browser, Page, expect

pytestmark = pytest.mark.slow

CHECK = (Path(__file__).parent / "access.js").read_text()

# Where one finds oneself, and a text that is there when all is.
ADDRESSES = {
    "/": "alone_1",
    "/?q=no-such-job": "No job",
    "/jobs/{search}": "stopped here",
    "/jobs/{search}?tab=checkpoints": "Register as model",
    "/jobs/{single}?tab=code": "Learn something small",
    "/jobs/{failed}?tab=code&against={single}": "the same",
    "/jobs/{single}?tab=config": "Runtime",
    "/jobs/{single}?tab=runs": "Directory",
    "/jobs/{failed}": "ValueError",
    "/jobs/{single}/logs": "step 32",
    "/jobs/{search}/trials/1": "accuracy",
    "/jobs/{search}/trials/1?tab=system": "System use",
    "/jobs/nobody": "nobody",
    "/pools": "Nothing waits",
    "/models": "taxi",
    "/models/taxi": "Where it came from",
    "/compare": "Nothing to compare",
    "/compare?runs={search}/1,{single}/1": "parameters differ",
}


def findings(page: Page) -> list[str]:
    return list(page.evaluate(CHECK))


def findings_everywhere(page: Page) -> list[str]:
    """In the light and in the dark at 1280 px, and on a phone."""
    found = findings(page)
    page.emulate_media(color_scheme="dark")
    found += [f"dark: {one}" for one in findings(page)]
    page.set_viewport_size({"width": 390, "height": 780})
    found += [f"phone: {one}" for one in findings(page)]
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(color_scheme="light")
    return found


def test_every_page_is_for_everybody(page: Page, site: Site, demo: Demo, seen: Seen) -> None:
    open_jobs(page, site)
    found = {}
    for address, text in ADDRESSES.items():
        go(page, address.format(search=demo.search, single=demo.single, failed=demo.failed))
        expect(page.locator("main")).to_contain_text(text)
        expect(page.locator(".skeleton")).to_have_count(0)
        found[address] = findings_everywhere(page)

    assert {address: wrong for address, wrong in found.items() if wrong} == {}
    assert seen.errors == []


# Where the focus is: its place in the document, its name, whether it can be seen and is in sight.
FOCUS = """() => {
  const at = document.activeElement, style = getComputedStyle(at), box = at.getBoundingClientRect();
  const labels = [...(at.labels ?? [])].map((one) => one.textContent).join(" ");
  const name = at.getAttribute("aria-label") || labels || at.textContent;
  return {place: [...document.querySelectorAll("*")].indexOf(at), tag: at.tagName, name: name.trim().slice(0, 40),
    marked: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1,
    inSight: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth};
}"""


def test_tab_leads_through_the_page_as_it_is_read(page: Page, site: Site, demo: Demo) -> None:
    page.goto(f"{site.url}/jobs/{demo.search}")
    expect(page.locator("main")).to_contain_text("stopped here")
    # What comes later would move what is counted below.
    expect(page.locator("[aria-label^='Parallel coordinates: 12 lines']")).to_be_visible()
    stops = []
    for _ in range(120):
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUS)
        if stop["tag"] == "BODY" or (stops and stop["place"] == stops[0]["place"]):
            break
        stops.append(stop)

    assert [one["place"] for one in stops] == sorted(one["place"] for one in stops)
    assert [one["name"] for one in stops if not (one["marked"] and one["inSight"])] == []
    names = [one["name"] for one in stops]
    assert names[0] == "Skip to the content"
    wanted = ["Jobs", "Models", "Search jobs", "Run again", "Search", "Smoothing", "log y", "Filter trials", "Trials"]
    assert [name for name in wanted if name not in names] == []
    assert any(name.startswith("Parallel coordinates: 12 lines") for name in names)


def test_skip_link_and_dialog_take_the_focus_and_give_it_back(page: Page, site: Site) -> None:
    open_jobs(page, site)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"

    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert findings(page) == []
    assert page.evaluate("document.querySelector('dialog').contains(document.activeElement)")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.evaluate("document.activeElement.id") == "main"


def test_focus_stays_where_news_redraw_the_page(page: Page, site: Site) -> None:
    site.submit("redrawn", "sleep", "600")
    page.goto(f"{site.url}/jobs/redrawn")
    head = page.locator(".job-head")
    parts = (head.get_by_role("link", name="Log"), head.get_by_role("button", name="Pause"))
    with site.client() as client:
        for priority, at in enumerate(parts, start=1):
            at.focus()
            client.update("redrawn", priority=priority)
            expect(head).to_contain_text(f"priority {priority}")
            expect(at).to_be_focused()
        client.kill("redrawn")


def test_focus_stays_where_a_table_or_a_legend_is_drawn_anew(page: Page, site: Site, demo: Demo) -> None:
    page.goto(f"{site.url}/jobs/{demo.search}")
    table = page.get_by_role("grid", name="Trials")
    sort = table.get_by_role("button", name="Ran for")
    sort.focus()
    page.keyboard.press("Enter")
    expect(table.get_by_role("columnheader", name="Ran for")).to_have_attribute("aria-sort", "ascending")
    expect(sort).to_be_focused()

    line = page.locator('[data-card="curve-loss"]').get_by_role("button", name="trial").first
    line.focus()
    page.keyboard.press("Enter")
    expect(line).to_have_attribute("aria-pressed", "false")
    expect(line).to_be_focused()


def test_sign_in_page_is_for_everybody(browser: Browser, site: Site) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(site.url)

    assert findings_everywhere(page) == []
    page.close()


# What moved without having been touched, as browsers count it: below 0.1 is good (web.dev/cls).
WATCH_JUMPS = """
  window.jumped = [];
  new PerformanceObserver((found) => {
    for (const one of found.getEntries()) {
      const names = one.sources.map((each) => String(each.node?.className));
      if (!one.hadRecentInput) window.jumped.push([one.value, ...names]);
    }
  }).observe({type: "layout-shift", buffered: true});
"""


def test_nothing_jumps_while_a_page_loads(page: Page, site: Site, demo: Demo) -> None:
    page.add_init_script(WATCH_JUMPS)
    jumped = {}
    for address in ("/", "/jobs/{search}", "/jobs/{failed}", "/jobs/{single}?tab=config", "/pools"):
        page.goto(site.url + address.format(search=demo.search, single=demo.single, failed=demo.failed))
        expect(page.locator("main")).to_contain_text(ADDRESSES[address])
        expect(page.locator(".skeleton")).to_have_count(0)
        jumped[address] = page.evaluate("window.jumped")

    assert {address: found for address, found in jumped.items() if sum(one[0] for one in found) > 0.1} == {}
