"""The pages for everybody: both themes, a phone, no mouse, a screen reader."""

from pathlib import Path

import pytest

from tests.ui.conftest import WAIT_MS, Demo, Seen, Site

playwright = pytest.importorskip("playwright.sync_api", reason="the page is not tested: pip install playwright")
Page, Browser, expect = playwright.Page, playwright.Browser, playwright.expect
expect.set_options(timeout=WAIT_MS)
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
    "/jobs/{search}/trials/1?tab=system": "",
    "/jobs/nobody": "nobody",
    "/pools": "Nothing waits",
    "/models": "taxi",
    "/models/taxi": "Where it came from",
    "/compare": "Nothing to compare",
    "/compare?runs={search}/1,{single}/1": "parameters differ",
}


def findings(page: "Page") -> list[str]:
    return list(page.evaluate(CHECK))


def findings_everywhere(page: "Page") -> list[str]:
    """In the light and in the dark at 1280 px, and on a phone."""
    found = findings(page)
    page.emulate_media(color_scheme="dark")
    found += [f"dark: {one}" for one in findings(page)]
    page.set_viewport_size({"width": 390, "height": 780})
    found += [f"phone: {one}" for one in findings(page)]
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(color_scheme="light")
    return found


@pytest.mark.parametrize("address", ADDRESSES)
def test_page_is_for_everybody(page: "Page", site: Site, demo: Demo, seen: Seen, address: str) -> None:
    page.goto(site.url + address.format(search=demo.search, single=demo.single, failed=demo.failed))
    expect(page.locator("main")).to_contain_text(ADDRESSES[address])
    expect(page.locator(".skeleton")).to_have_count(0)

    assert findings_everywhere(page) == []
    assert seen.errors == []
