"""The pages beyond the list of jobs, used as a person would: a search, its log, a trial, models, a comparison."""

import re
from pathlib import Path

import pytest

from stoker.schema.job import Share
from stoker.schema.record import Held, Holder, PoolNode, PoolStatus, Waiting
from stoker.schema.state import JobState
from tests.ui.conftest import Demo, Seen, Site
from tests.ui.demo import SCRIPT, submit_search
from tests.ui.playing import Locator, Page, expect

pytestmark = pytest.mark.slow


def card(page: Page, name: str) -> Locator:
    return page.locator(f'[data-card="{name}"]')


def rows(page: Page) -> Locator:
    return page.locator(".vt-body .vt-row")


def drag_axis(page: Page, *, part: float, of_height: tuple[float, float]) -> None:
    """Brush the axis at this part of the parallel plot's width."""
    canvas = card(page, "parallel").locator("canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    x = box["x"] + 46 + part * (box["width"] - 92)
    top, bottom = box["y"] + 40, box["y"] + box["height"] - 24
    page.mouse.move(x, top + of_height[0] * (bottom - top))
    page.mouse.down()
    page.mouse.move(x, top + of_height[1] * (bottom - top), steps=4)
    page.mouse.up()


def test_brushing_the_plot_filters_the_table_and_is_in_the_address(
    page: Page, site: Site, demo: Demo, seen: Seen
) -> None:
    page.goto(f"{site.url}/jobs/{demo.search}")
    expect(card(page, "parallel")).to_be_visible()
    table = page.get_by_role("grid", name="Trials")
    expect(table).to_have_attribute("aria-rowcount", "13")

    drag_axis(page, part=0.0, of_height=(-0.02, 0.5))  # the upper half of the first hyperparameter

    expect(page.get_by_role("button", name="Show all trials")).to_be_visible()
    assert "where=lr:" in page.url
    kept = int(table.get_attribute("aria-rowcount") or 0) - 1
    assert 0 < kept < 12
    low = float(re.search(r"where=lr:([\d.e-]+)\.\.", page.url)[1])  # type: ignore[index]
    with site.client() as client:
        lrs = [trial.hparams["lr"] for trial in client.trials(demo.search, limit=100).trials]
    assert kept == sum(lr >= low for lr in lrs)
    page.reload()
    expect(table).to_have_attribute("aria-rowcount", str(kept + 1))
    page.get_by_role("button", name="Show all trials").click()
    expect(table).to_have_attribute("aria-rowcount", "13")
    assert "where" not in page.url
    expect(card(page, "rungs")).to_contain_text("stopped here")
    expect(card(page, "importance").get_by_role("img")).to_have_attribute("aria-label", re.compile("lr"))
    expect(card(page, "curve-loss").locator("canvas")).to_have_attribute("aria-label", re.compile("lines over step"))
    assert seen.errors == []


def test_trials_by_keyboard_alone(page: Page, site: Site, demo: Demo) -> None:
    page.goto(f"{site.url}/jobs/{demo.search}?sort=number")
    table = page.get_by_role("grid", name="Trials")
    expect(table).to_have_attribute("aria-rowcount", "13")

    table.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    compare = page.get_by_role("region", name="Trials").get_by_role("button", name="Compare")
    compare.focus()
    page.keyboard.press("Enter")

    expect(page).to_have_url(re.compile(rf"/compare\?runs={demo.search}(%2F|/)2,{demo.search}(%2F|/)3"))
    table = card(page, "differences")
    expect(table).to_contain_text("hparams.lr")
    expect(table).not_to_contain_text("hparams.steps")  # the same in both
    page.get_by_label("all parameters").check()
    expect(table).to_contain_text("hparams.steps")
    expect(card(page, "curve-loss").locator("canvas")).to_have_attribute("aria-label", re.compile("4 lines"))


def test_live_search_grows_and_can_be_cancelled(page: Page, site: Site, demo: Demo, seen: Seen) -> None:
    name = submit_search(site.home, demo.project, "live", trials=200, steps=40, pause_s=0.05)
    page.goto(f"{site.url}/jobs/{name}")
    table = page.get_by_role("grid", name="Trials")

    expect(table).to_have_attribute("aria-rowcount", re.compile(r"^([5-9]|\d\d+)$"))
    expect(table).to_contain_text("running")
    expect(card(page, "curve-loss").locator("canvas")).to_have_attribute("aria-label", re.compile(r"lowest [\d.]+"))
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()

    expect(page.locator(".job-head .state")).to_have_text("cancelled")
    with site.client() as client:
        assert client.wait(name, timeout_s=60).state is JobState.CANCELLED
    expect(page.get_by_role("button", name="Run again")).to_be_visible()
    assert seen.errors == []


def test_job_is_submitted_again_and_watched(page: Page, site: Site, demo: Demo, seen: Seen) -> None:
    page.goto(f"{site.url}/jobs/{demo.single}")

    page.get_by_role("button", name="Run again").click()
    page.get_by_label("Name of the new job").fill("again_1")
    page.keyboard.press("Enter")

    expect(page).to_have_url(f"{site.url}/jobs/again_1")
    expect(page.locator(".job-head .state")).to_have_text("succeeded")
    curve = card(page, "curve-loss").locator("canvas")
    expect(curve).to_have_attribute("aria-label", re.compile(r"2 lines over step, lowest [\d.]+"))
    expect(page.locator(".job-head")).to_contain_text("validation/loss")
    with site.client() as client:
        again, first = client.job("again_1").spec, client.job(demo.single).spec
    assert again == first.model_copy(update={"name": "again_1"})
    assert seen.errors == []


def test_log_is_filtered_and_linked_to(page: Page, site: Site, demo: Demo) -> None:
    page.goto(f"{site.url}/jobs/{demo.single}/logs")
    log = page.get_by_role("log")
    expect(log).to_contain_text("step 32 ")

    page.get_by_label("Lines with").fill(r"step 1\d ")
    page.get_by_label("regular expression").check()
    expect(page.get_by_text(re.compile("^10 of "))).to_be_visible()
    page.get_by_label("Lines with").fill("")
    page.get_by_label("Level").select_option("WARNING")
    expect(page.get_by_text(re.compile("^4 of "))).to_be_visible()
    expect(log).to_contain_text("gradient norm")
    assert "level=WARNING" in page.url
    log.locator(".log-line:visible .no").first.click()

    assert re.search(r"line=\d+", page.url)
    page.goto(re.sub("level=WARNING&?", "", page.url))
    expect(log.locator(".log-line.target")).to_contain_text("gradient norm")
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download").click()
    assert "step 32 " in Path(saved.value.path()).read_text()


def test_failure_is_told_in_words_and_leads_to_its_line(page: Page, site: Site, demo: Demo, seen: Seen) -> None:
    page.goto(f"{site.url}/jobs/{demo.failed}")
    failure = page.get_by_role("group", name="What failed")
    expect(failure).to_contain_text(f"ValueError: no rows in train.csv {SCRIPT}")

    failure.get_by_role("link", name="Show the failing line").click()

    expect(page.get_by_role("log").locator(".log-line.target")).to_contain_text("ValueError: no rows")
    page.goto(f"{site.url}/jobs/{demo.failed}/logs")
    expect(page.get_by_role("log")).to_contain_text(f"a line with {SCRIPT}")
    page.goto(f"{site.url}/jobs/{demo.failed}?tab=code&file=trainer/task.py")
    expect(card(page, "code")).to_contain_text("<script>window.hacked=1</script>")
    page.goto(f"{site.url}/jobs/{demo.failed}")
    expect(card(page, f"curve-loss {SCRIPT}")).to_contain_text(SCRIPT)  # a metric's name
    page.goto(f"{site.url}/jobs/{demo.failed}?tab=code&against={demo.single}")
    expect(card(page, "code")).to_contain_text("module")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0
    assert seen.errors == []


def test_checkpoint_becomes_a_model_with_its_lineage(page: Page, site: Site, demo: Demo, seen: Seen) -> None:
    with site.client() as client:
        trial = client.checkpoints(demo.search)[-1].trial
    page.goto(f"{site.url}/jobs/{demo.search}/trials/{trial}")
    page.get_by_role("tab", name="Hyperparameters").click()
    expect(card(page, "hparams")).to_contain_text("optimizer")
    page.get_by_role("tab", name="Checkpoints & models").click()
    expect(card(page, "checkpoints")).to_contain_text("weights")

    page.get_by_role("button", name="Register as model").first.click()
    page.get_by_label("Model", exact=True).fill("digits")
    page.get_by_label("Alias, if any").fill("candidate")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="digits", exact=True).click()

    expect(page).to_have_url(f"{site.url}/models/digits")
    expect(card(page, "versions")).to_contain_text("@candidate")
    lineage = card(page, "lineage")
    expect(lineage.get_by_role("link", name=f"trial {trial}")).to_have_attribute(
        "href", f"/jobs/{demo.search}/trials/{trial}"
    )
    expect(lineage).to_contain_text("checkpoints/weights")
    expect(card(page, "predict")).to_contain_text("does not predict by itself")
    lineage.get_by_role("link", name=demo.search).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(demo.search)
    assert seen.errors == []


def test_queue_says_who_holds_and_who_waits(page: Page, site: Site, demo: Demo, seen: Seen) -> None:
    with site.client() as client:
        (pool,) = client.pools()
    site.submit("holds_it", "sleep", "600", resources={"cpus": pool.capacity.cpus})
    page.goto(f"{site.url}/pools")
    expect(card(page, "holders")).to_contain_text("holds_it")
    site.submit("waits_for_it", "true", resources={"cpus": 1})

    queue = card(page, "queue")
    expect(queue).to_contain_text("waits_for_it")
    expect(queue).to_contain_text(re.compile("CPU"))
    queue.get_by_role("link", name="waits_for_it").click()
    expect(page.locator(".why")).to_contain_text("Waiting for a place")
    with site.client() as client:
        client.kill("holds_it")
    expect(page.locator(".job-head .state")).to_have_text("succeeded")
    assert seen.errors == []


def test_nodes_of_a_cluster_show_who_holds_what_and_what_its_trouble_is(page: Page, site: Site, seen: Seen) -> None:
    """As a pool with a real Ray answers (tests/e2e/test_ray.py); the page cannot tell the difference."""
    answers = [a_cluster(nodes=3), a_cluster(nodes=0, trouble="Pool 'cluster': Nothing answers at ray-head:6379.")]
    page.route("**/api/v1/pools", lambda route: route.fulfill(body=f"[{answers[0].model_dump_json()}]"))
    page.route("**/api/v1/stream*", lambda route: route.abort())  # it would tell of the real pool

    page.goto(f"{site.url}/pools")

    nodes = page.get_by_role("region", name="Nodes of cluster").get_by_role("row")
    expect(nodes).to_have_count(4)
    expect(nodes.nth(1)).to_contain_text("gpu-1 10.0.0.1")
    expect(nodes.nth(1)).to_contain_text("4 of 8")
    expect(nodes.nth(1).get_by_role("img")).to_have_attribute("aria-label", "1 of 2 GPUs are held")
    expect(nodes.nth(1).get_by_role("link")).to_have_text("ddp")
    expect(nodes.nth(3)).to_contain_text("3 CPUs, 2 GPUs")  # somebody else's there
    expect(nodes.nth(3)).to_contain_text("nobody")
    expect(card(page, "holders")).to_contain_text("gpu-1gpu-2")
    expect(card(page, "queue")).to_contain_text("waits for 4 GPU; free on the cluster: 2 GPU of 6")
    assert not page.get_by_role("alert").count()

    answers.pop(0)
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("Nothing answers at ray-head:6379")
    expect(card(page, "nodes")).to_be_hidden()
    page.unroute_all(behavior="ignoreErrors")
    assert seen.errors == []


def a_cluster(*, nodes: int, trouble: str = "") -> PoolStatus:
    """A run on two of its nodes, somebody else's work on the third, and a job that waits."""
    half, whole = Share(cpus=4, gpus=1), Share(cpus=8, memory_gb=64, gpus=2)
    held = tuple(Held(node=f"n{number}", share=half) for number in (1, 2))
    used = Share(cpus=8, gpus=2)
    reason = "waits for 4 GPU; free on the cluster: 2 GPU of 6"
    return PoolStatus(
        name="cluster",
        engine="ray",
        capacity=Share(cpus=8 * nodes, memory_gb=64 * nodes, gpus=2 * nodes),
        used=used,
        slots=2 * nodes,
        tiers=("BASIC",),
        running=("ddp",),
        queued=("next",),
        nodes=tuple(
            PoolNode(
                **dict(whole),
                id=f"n{number}",
                host=f"gpu-{number}",
                address=f"10.0.0.{number}",
                free=half if number < 3 else Share(cpus=3, gpus=2),
            )
            for number in range(1, nodes + 1)
        ),
        trouble=trouble,
        holders=(Holder(job="ddp", run="ddp.1.1", trial=1, owner="ada", share=used, since=1.8e9, nodes=held),),
        waiting=(Waiting(job="next", priority=0, share=Share(cpus=1, gpus=4), since=1.8e9, reason=reason),),
    )
