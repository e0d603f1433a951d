"""The list of jobs as the place to steer them from: what it tells, filters, views, and what can be done to a job."""

import re
from pathlib import Path

import pytest

from tests.processes import wait_until
from tests.ui.conftest import Demo, Seen, Site, go
from tests.ui.playing import Locator, Page, Route, expect

pytestmark = pytest.mark.slow


def row(page: Page, job: str) -> Locator:
    return page.locator(f'.vt-row[data-key="{job}"]')


def act(page: Page, job: str, what: str) -> None:
    page.get_by_role("button", name=f"Actions for {job}").click()
    page.get_by_role("menuitem", name=what).click()


def test_list_tells_all_of_a_job_and_every_view_of_it_is_an_address(page: Page, site: Site, demo: Demo) -> None:
    with site.client() as client:
        job = client.job(demo.search)
    page.goto(f"{site.url}/?q=team:digits")

    line = row(page, demo.search)
    for text in ("succeeded", "team=digits", "100%", "0.", "loss", job.owner, job.pool, "12"):
        expect(line).to_contain_text(text)
    expect(row(page, demo.single)).to_contain_text(re.compile(r"[\d.]+ nowvalidation/loss"))  # one run has no best
    submitted = line.locator("time[data-ago]")
    expect(submitted).to_have_text(re.compile("ago|just now"))
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\S*", submitted.get_attribute("title") or "")

    page.get_by_label("State", exact=True).select_option("failed")
    expect(page.locator(".vt-body .vt-row")).to_have_count(1)
    expect(row(page, demo.failed)).to_contain_text("ValueError")
    page.get_by_role("button", name="Columns").click()
    page.get_by_role("menu").get_by_label("Priority").check()
    page.keyboard.press("Escape")
    page.get_by_label("State", exact=True).select_option("")
    page.get_by_role("button", name="Ran for").click()
    view = page.url
    assert all(part in view for part in ("q=team:digits", "cols=", "priority", "sort=ran"))

    page.reload()
    expect(page.get_by_role("columnheader", name="Priority")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Ran for")).to_have_attribute("aria-sort", "ascending")
    expect(row(page, demo.search)).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    head, *lines = Path(saved.value.path()).read_text().splitlines()
    assert head.startswith("Job,State,Progress,Best metric")
    assert any(one.startswith(f"{demo.failed},FAILED") for one in lines)


def test_job_is_paused_resumed_put_first_and_compared(page: Page, site: Site, demo: Demo, seen: Seen) -> None:
    site.submit("steered", "sleep", "600", labels={"team": "steering"})
    page.goto(f"{site.url}/?q=steer")
    expect(row(page, "steered")).to_contain_text("running")

    act(page, "steered", "Priority…")
    page.get_by_label("more goes first").fill("7")
    page.keyboard.press("Enter")
    with site.client() as client:
        wait_until(lambda: client.job("steered").priority == 7, what="the priority")
    act(page, "steered", "Pause")
    expect(row(page, "steered")).to_contain_text("paused")
    act(page, "steered", "Resume")
    expect(row(page, "steered")).to_contain_text("running")

    go(page, "/jobs/steered")
    expect(page.locator(".job-head")).to_contain_text("priority 7")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator(".job-head .why")).to_contain_text("Paused. Resume it to go on")
    page.get_by_role("tab", name="Runs").click()
    expect(page.get_by_role("region", name="Runs").get_by_role("row")).to_have_count(3)  # a head, and two attempts
    with site.client() as client:
        client.cancel("steered")

    for job in (demo.single, "steered"):
        go(page, f"/?q={job}")
        row(page, job).get_by_role("checkbox").check()
    page.keyboard.press("c")
    expect(page).to_have_url(re.compile(rf"/compare\?runs={demo.single}(%2F1|/1)?,steered"))
    expect(page.locator('[data-card="differences"]')).to_contain_text("labels.team")
    assert seen.errors == []


def test_what_is_missing_slow_or_broken_is_said_in_its_place(page: Page, site: Site, demo: Demo) -> None:
    answers, held = ["slow"], []
    broken = {"error": "The server failed: out of rows.", "problems": ["see the log"]}

    def answer(route: Route) -> None:
        match answers[-1]:
            case "slow":
                held.append(route)
            case "none":
                route.fulfill(json={"jobs": []})
            case "broken":
                route.fulfill(status=500, json=broken)
            case "fine":
                route.continue_()

    page.route("**/api/v1/jobs?*", answer)
    page.goto(site.url)
    expect(page.get_by_label("Loading")).to_be_visible()  # grey bars of the right size while it takes long
    answers.append("none")
    for route in held:
        answer(route)

    expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    expect(page.get_by_role("button", name="Copy stoker jobs submit training")).to_be_visible()
    answers.append("broken")
    page.reload()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The server failed: out of rows.")
    expect(alert).to_contain_text("see the log")
    answers.append("fine")
    alert.get_by_role("button", name="Try again").click()
    expect(row(page, demo.single)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)

    page.unroute_all(behavior="ignoreErrors")
    go(page, f"/jobs/{demo.search}/trials/999")
    expect(page.get_by_role("alert")).to_contain_text("no trial 999")
    go(page, "/jobs/nobody/logs")
    expect(page.get_by_role("alert")).to_contain_text("No job 'nobody'")
    go(page, "/models/nothing")
    expect(page.get_by_role("alert")).to_contain_text("nothing")
    go(page, "/no/such/page")
    expect(page.locator("main")).to_contain_text("No such page")
