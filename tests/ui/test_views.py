"""What a job's page shows of it, used as a person would: curves, plots, code, processes, predictions."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stoker.schema.registry import NewModel, NewVersion
from tests.ui.conftest import Demo, Seen, Site, go, open_jobs
from tests.ui.playing import Locator, Page, expect

pytestmark = pytest.mark.slow


def card(page: Page, name: str) -> Locator:
    return page.locator(f'[data-card="{name}"]')


def saved(page: Page, chart: Locator, kind: str) -> bytes:
    """What the menu of a chart saves."""
    chart.get_by_role("button", name="Save or view").click()
    with page.expect_download() as file:
        page.get_by_role("menuitem", name=kind).click()
    return Path(file.value.path()).read_bytes()


def test_curves_are_turned_as_one_likes_and_the_address_keeps_it(
    page: Page, site: Site, demo: Demo, seen: Seen
) -> None:
    page.goto(f"{site.url}/jobs/{demo.single}")
    chart = card(page, "curve-loss")
    canvas = chart.locator("canvas")
    expect(canvas).to_have_attribute("aria-label", re.compile("2 lines over step"))

    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
    tip = chart.locator(".tip")
    expect(tip).to_contain_text("train")  # all lines at once
    expect(tip).to_contain_text("validation")
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 100, steps=3)
    page.mouse.up()
    expect(page.get_by_role("button", name="Whole range")).to_be_visible()
    assert re.search(r"zoom=1\d(\.\d+)?~2\d", page.url)
    page.get_by_label("Smoothing").fill("0.6")
    page.get_by_label("log y").check()
    page.get_by_label("log x").check()
    page.get_by_label("best so far").check()
    for part in ("smooth=0.6", "logy=1", "logx=1", "best=1"):
        assert part in page.url
    page.reload()
    expect(page.get_by_role("button", name="Whole range")).to_be_visible()
    expect(page.get_by_label("Smoothing")).to_have_value("0.6")
    expect(page.get_by_label("best so far")).to_be_checked()
    page.get_by_role("button", name="Whole range").click()
    page.get_by_label("Horizontal axis").select_option("epoch")
    expect(canvas).to_have_attribute("aria-label", re.compile("over epoch"))
    page.get_by_label("Horizontal axis").select_option("time")
    expect(canvas).to_have_attribute("aria-label", re.compile("over time"))
    assert "x=time" in page.url
    assert "zoom" not in page.url

    assert saved(page, chart, "Save as SVG").startswith(b"<svg")
    assert saved(page, chart, "Save as PNG").startswith(b"\x89PNG")
    assert len(saved(page, chart, "Save data as CSV").splitlines()) > 32
    assert seen.errors == []


def test_trials_are_seen_from_all_sides(page: Page, site: Site, demo: Demo, seen: Seen) -> None:
    page.goto(f"{site.url}/jobs/{demo.search}")
    scatter = card(page, "scatter")
    scatter.get_by_label("Horizontal").select_option("dropout")
    expect(scatter.locator("canvas")).to_have_attribute("aria-label", re.compile("12 points, loss .* over dropout"))
    assert "px=dropout" in page.url
    slices = card(page, "slices").locator("canvas")
    card(page, "slices").scroll_into_view_if_needed()  # drawn once it is in sight
    expect(slices).to_have_count(4)
    expect(slices.nth(0)).to_have_attribute("aria-label", re.compile("loss over lr: 12 points"))
    rung = card(page, "rungs").locator("details", has_text="stopped here").first
    rung.locator("summary").click()
    expect(rung.get_by_role("link", name=re.compile(r"trial \d+")).first).to_be_visible()

    trials = page.get_by_role("region", name="Trials")
    trials.get_by_label("Filter trials").fill("optimizer:sgd")
    table = page.get_by_role("grid", name="Trials")
    with site.client() as client:
        all_trials = client.trials(demo.search, limit=100).trials
    slow = sorted(trial.hparams["lr"] for trial in all_trials if trial.hparams["optimizer"] == "sgd")
    expect(table).to_have_attribute("aria-rowcount", str(len(slow) + 1))
    expect(slices.nth(0)).to_have_attribute("aria-label", re.compile(f"loss over lr: {len(slow)} points"))  # it follows
    table.get_by_role("button", name="lr", exact=True).click()
    assert "sort=hp.lr" in page.url
    column = [name.split()[:1] for name in table.get_by_role("columnheader").all_inner_texts()].index(["lr"])
    shown = [
        float(one.locator("> *").nth(column).inner_text().replace("−", "-"))
        for one in table.locator(".vt-body .vt-row").all()
    ]
    assert shown == pytest.approx(slow, rel=1e-2)
    with page.expect_download() as file:
        trials.get_by_role("button", name="CSV").click()
    assert len(Path(file.value.path()).read_text().splitlines()) == len(slow) + 1

    scatter.locator("canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"/jobs/{demo.search}/trials/\d+"))
    assert seen.errors == []


def test_code_environment_and_commands_are_those_of_the_job(page: Page, site: Site, demo: Demo) -> None:
    open_jobs(page, site)
    go(page, f"/jobs/{demo.single}?tab=code")
    code = card(page, "code")
    expect(code.locator(".source")).to_contain_text("Learn something small")  # the module that runs, first
    code.get_by_role("navigation", name="Files").get_by_role("button", name="fails.py").click()
    expect(code.locator(".source")).to_contain_text("no rows in train.csv")
    assert "file=trainer/fails.py" in page.url
    code.get_by_label("Compare with job").fill(demo.failed)
    page.keyboard.press("Enter")
    changed = code.get_by_role("region", name="Differing configuration")
    expect(changed).to_contain_text("trainer.task")
    expect(changed).to_contain_text("trainer.fails")
    expect(code).to_contain_text("are the same")

    page.get_by_role("tab", name="Config & environment").click()
    with site.client() as client:
        package = client.job(demo.single).spec.package or ""
    expect(card(page, "environment")).to_contain_text(package[:16])
    expect(card(page, "environment")).to_contain_text("chief-0")
    expect(card(page, "config")).to_contain_text("trainer.task")
    commands = card(page, "commands")
    expect(commands).to_contain_text(re.compile(r"stoker .*--module-name trainer\.task"))
    commands.get_by_role("button", name="Copy").first.click()
    expect(page.locator(".toasts")).to_contain_text("Copied.")


SPEAK = """
import os, time
print("here is rank", os.environ["RANK"], flush=True)
block = bytearray(50_000_000)
while not os.path.exists(os.environ["ENOUGH"]):
    time.sleep(0.1)
"""


def test_processes_are_told_apart_in_the_log_and_measured(page: Page, site: Site, tmp_path: Path, seen: Seen) -> None:
    script, enough = tmp_path / "speak.py", tmp_path / "enough"
    script.write_text(SPEAK)
    environment = {"variables": {"ENOUGH": str(enough)}}
    site.submit("two_ranks", sys.executable, str(script), resources={"slots": 2}, environment=environment)
    page.goto(f"{site.url}/jobs/two_ranks/logs")
    log = page.get_by_role("log")
    expect(log).to_contain_text("here is rank 0")
    expect(log).to_contain_text("here is rank 1")

    page.get_by_label("Process").select_option(label="worker-0, rank 1")

    expect(page.get_by_text(re.compile("^1 of "))).to_be_visible()
    lines = log.locator(".log-line:visible")
    expect(lines).to_have_count(1)
    expect(lines).to_contain_text("here is rank 1")
    assert "replica=worker-0" in page.url
    page.reload()
    expect(lines).to_have_count(1)
    expect(lines).to_contain_text("here is rank 1")
    expect(page.get_by_label("Process")).to_have_value("worker-0")

    go(page, "/jobs/two_ranks/trials/1?tab=system")
    memory = page.get_by_role("region", name="Memory, GB")
    expect(memory.locator("canvas")).to_have_attribute("aria-label", re.compile(r"line.* over time"))
    expect(memory).to_contain_text(re.compile(r"at most \d+(\.\d+)? [MG]B"))
    enough.touch()
    with site.client() as client:
        client.wait("two_ranks", timeout_s=60)
    assert seen.errors == []


@contextmanager
def serving(site: Site, model: str) -> Iterator[str]:
    """`stoker serve`, as a person would start it; its address."""
    command = [str(Path(sys.executable).with_name("stoker")), "serve", model, "--port", "0", "--trust"]
    environment = {**os.environ, "STOKER_HOME": str(site.home.root)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip().rpartition(':')[2]}"
        finally:
            process.terminate()


def test_form_asks_a_served_model_for_a_prediction(page: Page, site: Site, tmp_path: Path, seen: Seen) -> None:
    (tmp_path / "predictor.py").write_text("def predict(instances):\n    return [2 * one for one in instances]\n")
    with site.client() as client:
        client.create_model(NewModel(name="twice"))
        client.create_version("twice", NewVersion(name="v1", origin=str(tmp_path)))
    open_jobs(page, site)
    go(page, "/models/twice")
    form = card(page, "predict")
    with serving(site, "twice:v1") as address:
        form.get_by_label("Address").fill(address)
        form.get_by_label("One instance, as JSON").fill("21")
        form.get_by_role("button", name="Send").click()

        expect(form.locator(".answer")).to_contain_text("42")
        form.get_by_label("One instance, as JSON").fill("{wrong")
        form.get_by_role("button", name="Send").click()
        expect(form.locator(".answer")).to_contain_text("is no JSON")
    form.get_by_label("One instance, as JSON").fill("1")
    form.get_by_role("button", name="Send").click()
    expect(form.locator(".answer")).to_contain_text("Start it with `stoker serve twice")  # nobody serves it now
    form.get_by_label("Address").fill("http://example.com:80")
    form.get_by_role("button", name="Send").click()
    expect(form.locator(".answer")).to_contain_text("is no `stoker serve` on this machine")
    assert seen.errors == []
