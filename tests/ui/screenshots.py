"""Make docs/img: `python -m tests.ui.screenshots` trains, searches and fails for real, and takes the pages' pictures.

With --home a store that is already there is shown again; with --only a part of the pictures is made.
"""

import argparse
import json
import shutil
import socket
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from stoker.host.home import Home
from tests.e2e.command import stoker
from tests.processes import kill_all_with_environment, wait_until
from tests.ui.conftest import Site
from tests.ui.playing import WAIT_MS

HERE = Path(__file__).parent
IMAGES = HERE.parent.parent / "docs" / "img"
MOST_BYTES = 200_000
EXACT = 48  # colours
WIDE, PHONE = (1280, 800), (390, 780)
SEARCH = {
    "name": "digits",
    "module": "trainer.task",
    "labels": {"team": "vision"},
    "search": {
        "sampler": "tpe",
        "metric": "loss",
        "group": "validation",
        "max_trials": 60,
        "seed": 3,
        "stopping": {"name": "asha", "max_time": 27, "divisor": 3, "max_rungs": 3},
        "space": {
            "lr": {"type": "double", "min": 1e-4, "max": 1.0, "scale": "log"},
            "hidden": {"type": "int", "min": 4, "max": 96},
            "dropout": {"type": "double", "min": 0.0, "max": 0.6},
            "batch_size": {"type": "categorical", "values": [16, 32, 64, 128]},
            "optimizer": {"type": "categorical", "values": ["sgd", "momentum", "adam"]},
        },
    },
}
# Name of the picture, address, a text that is there when all is, theme, size.
SHOTS = (
    ("jobs", "/", "digits_large", "light", WIDE),
    ("search", "/jobs/digits_1", "stopped here", "light", WIDE),
    ("search-dark", "/jobs/digits_1?where=lr:0.001..0.03;optimizer:adam", "Show all trials", "dark", WIDE),
    ("job", "/jobs/digits_large?smooth=0.6", "accuracy", "dark", WIDE),
    ("failure", "/jobs/digits_wrong", "FileNotFoundError", "light", WIDE),
    ("logs", "/jobs/digits_small/logs", "epoch 27", "light", WIDE),
    ("code", "/jobs/digits_small?tab=code", "Learn to read digits", "light", WIDE),
    ("trial", "/jobs/digits_1/trials/{best}?tab=checkpoints", "Register as model", "light", WIDE),
    ("pools", "/pools", "digits_next", "light", WIDE),
    ("model", "/models/forest", "Predict", "dark", WIDE),
    ("compare", "/compare?runs=digits_1/{best},digits_1/1,digits_1/2", "parameters differ", "light", WIDE),
    ("jobs-phone", "/", "digits_large", "dark", PHONE),
    ("search-phone", "/jobs/digits_1", "stopped here", "light", PHONE),
)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--home", type=Path)
    flags.add_argument("--out", type=Path, default=IMAGES)
    flags.add_argument("--only", nargs="*", default=None)
    given = flags.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = given.home or Path(folder)
        seeded = (root / "home").exists()
        site = Site(Home(root / "home").make(), _free_port())
        site.start()
        try:
            if not seeded:
                seed(site, root / "digits")
            busy(site, root / "digits")
            take_all(site, given.out, given.only)
        finally:
            site.kill()
            kill_all_with_environment("STOKER_HOME", str(site.home.root))
            kill_all_with_environment("STOKER_RUN_DIR", str(site.home.root), prefix=True)


def seed(site: Site, project: Path) -> None:
    """What has ended: a search of 60 trials, three jobs, and models of them."""
    from sklearn.datasets import load_digits

    shutil.copytree(HERE / "digits", project, ignore=shutil.ignore_patterns("__pycache__"))
    digits = load_digits()
    np.savez_compressed(
        project / "trainer" / "digits.npz", pixels=digits.data.astype("u1"), label=digits.target.astype("u1")
    )
    (project / "search.yaml").write_text(json.dumps(SEARCH))
    _stoker(site, project, "experiment", "create", "search.yaml", ".")
    _submit(site, project, "digits_small", "task", "--", "--epochs", "27")
    _submit(site, project, "digits_wrong", "task", "--", "--warm-start", "weights/epoch-27.npz")
    _submit(site, project, "forest_1", "forest")
    with closing(site.client()) as client:
        for job in ("digits_1", "digits_small", "digits_wrong", "forest_1"):
            client.wait(job, timeout_s=600)
    _stoker(site, project, "models", "register", "digits_small", "--name", "digits", "--description", "27 epochs")
    _stoker(site, project, "models", "register", "digits_1", "--name", "digits", "--alias", "production")
    _stoker(site, project, "models", "register", "forest_1", "--name", "forest", "--alias", "production")


def busy(site: Site, project: Path) -> None:
    """What goes on: a job that runs, one that waits."""
    with closing(site.client()) as client:
        names = {job.id for job in client.jobs(limit=100)}
        if "digits_large" not in names:
            _submit(site, project, "digits_large", "task", "--", "--epochs", "3000", "--pause-s", "0.3")
        if "digits_next" not in names:
            site.submit("digits_next", "python", "-m", "trainer.task", resources={"cpus": 2}, labels={"team": "vision"})
        wait_until(lambda: len(client.metrics("digits_large")) > 200, what="the running job", deadline_s=300)


def take_all(site: Site, out: Path, only: list[str] | None) -> None:
    with closing(site.client()) as client:
        best = client.search("digits_1").best[0].number
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for name, address, text, theme, (width, height) in SHOTS:
            if only and name not in only:
                continue
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=theme,
                reduced_motion="reduce",
                device_scale_factor=2 if width < 500 else 1,
            )
            context.set_default_timeout(WAIT_MS)
            context.request.get(f"{site.url}/?token={site.address.token}", max_redirects=0)
            page = context.new_page()
            page.goto(site.url + address.format(best=best))
            take(page, text, out / f"{name}.png")
            context.close()
        browser.close()


def take(page: Page, text: str, file: Path) -> None:
    expect(page.locator("body")).to_contain_text(text, timeout=WAIT_MS)
    expect(page.locator(".skeleton")).to_have_count(0, timeout=WAIT_MS)
    time.sleep(0.7)  # charts draw in the next frames; there is no event for a picture that is done
    page.screenshot(path=file)
    if file.stat().st_size > MOST_BYTES:
        with_fewer_colours(file)
    size = file.stat().st_size
    print(f"{file.name} {size:,} bytes{' TOO LARGE' * (size > MOST_BYTES)}")


def with_fewer_colours(file: Path) -> None:
    """To 256: the most frequent, which are surfaces and text, as they are, and some of the rest."""
    picture = Image.open(file).convert("RGB")
    frequent = sorted(picture.getcolors(1 << 24) or [], reverse=True)[:EXACT]
    rest = picture.quantize(256 - EXACT, Image.Quantize.MAXCOVERAGE).getpalette()
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in frequent for part in colour] + rest)
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(file, optimize=True)


def _submit(site: Site, project: Path, name: str, module: str, *words: str) -> None:
    flags = ("--package-path", "trainer", "--module-name", f"trainer.{module}", "--labels", "team=vision")
    _stoker(site, project, "jobs", "submit", "training", name, *flags, *words)


def _stoker(site: Site, project: Path, *words: str) -> None:
    done = stoker(*words, cwd=project, variables={"STOKER_HOME": str(site.home.root)})
    assert done.code == 0, done.err


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
