"""The client has a method for every route, and its answers are what the pages get."""

import hashlib
import http.client
import io
import itertools
import re
import tarfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stoker.client.client import Client
from stoker.errors import StokerError
from stoker.schema.event import EventBatch, Log, Metric
from stoker.schema.registry import NewModel, NewVersion
from stoker.server.store.store import Store
from tests.contracts.store import a_spec, add
from tests.processes import wait_until
from tests.server.asking import API, ask
from tests.server.conftest import Served

pytestmark = pytest.mark.slow

# Spoken by supervisors (supervisor/ship.py), not by people's scripts.
OF_SUPERVISORS = {("POST", "/runs/{run}/events"), ("GET", "/runs/{run}/orders")}


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.address) as client:
        yield client


def a_package(tmp_path: Path) -> tuple[str, Path]:
    file = tmp_path / "package.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        member = tarfile.TarInfo("trainer/task.py")
        member.size = 6
        archive.addfile(member, io.BytesIO(b"x = 1\n"))
    return hashlib.sha256(file.read_bytes()).hexdigest(), file


def a_job(store: Store, name: str = "taxi", **fields: Any) -> None:
    """It has said two lines and reported twice."""
    run = add(store, name, hparams={"lr": 0.1}, **fields)
    log = {"time": 1.0, "replica": "chief-0", "stream": "stdout", "line": 1, "count": 2, "text": "one\ntwo"}
    reports = (Metric(seq=2 + step, time=2.0, step=step, values={"loss": 1.0 / (1 + step)}) for step in range(2))
    store.append_events(run, EventBatch(events=(Log(seq=1, **log), *reports)), now=2.0)


def test_client_has_what_the_pages_show(client: Client, store: Store, tmp_path: Path) -> None:
    package, file = a_package(tmp_path)
    client.upload_package(package, file)
    a_job(store, package=package)
    add(store, "other", package=package, hparams={"lr": 0.2})
    views = client.views

    (line,) = views.series("taxi").series
    since = views.series_since("taxi", 1, trials=[1])
    table = views.trial_columns("taxi")
    window = views.log_lines("taxi", begin=-1, text="o")
    views.download_log("taxi", log := io.BytesIO(), stamps=False)
    views.download_package(package, kept := io.BytesIO())

    assert (line.name, line.x, line.y, line.exact) == ("loss", (0.0, 1.0), (1.0, 0.5), True)
    assert [points.step for points in since.series] == [(1,)]
    assert (table.total, table.hparams, table.metrics) == (1, {"lr": (0.1,)}, {"loss": (0.5,)})
    assert (window.matches, window.begin, window.text, window.n) == (2, 1, ("two",), (2,))
    assert log.getvalue() == b"one\ntwo\n"
    assert kept.getvalue() == file.read_bytes()
    assert views.package_file("taxi", "trainer/task.py").text == "x = 1\n"
    assert [change.path for change in views.diff("taxi", "other").config] == ["hparams.lr"]
    assert views.jobs(q="oth", counts=True).counts == {"QUEUED": 1}
    assert next(views.stream("job:taxi")).event == "hello"


def test_client_has_a_method_for_every_route(
    client: Client, served: Served, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ask(served, "GET", f"{API}/openapi.json").json["paths"]
    routes = {(method.upper(), path.removeprefix(API)) for path, methods in paths.items() for method in methods}
    asked: set[tuple[str, str]] = set()
    request = http.client.HTTPConnection.request

    def heard(self: http.client.HTTPConnection, method: str, url: str, *args: Any, **more: Any) -> None:
        asked.add((method, url.partition("?")[0].removeprefix(API)))
        request(self, method, url, *args, **more)

    monkeypatch.setattr(http.client.HTTPConnection, "request", heard)
    a_job(store)
    _call_everything(client, tmp_path)

    patterns = {route: re.compile(re.sub(r"\\{\w+(:path)?\\}", "[^/]+", re.escape(route[1]))) for route in routes}
    reached = {
        route for route, pattern in patterns.items() for method, path in asked if _is(route, pattern, method, path)
    }
    assert routes - reached == OF_SUPERVISORS


def _is(route: tuple[str, str], pattern: "re.Pattern[str]", method: str, path: str) -> bool:
    return route[0] == method and pattern.fullmatch(path) is not None


def _call_everything(client: Client, tmp_path: Path) -> None:
    package, file = a_package(tmp_path)
    archive = tmp_path / "x.whl"
    archive.write_bytes(b"wheel")
    digest = hashlib.sha256(b"wheel").hexdigest()
    views = client.views
    calls = [
        lambda: client.health(),
        lambda: client.upload_package(package, file),
        lambda: client.upload_archive(digest, "x.whl", archive),
        lambda: views.download_package(package, io.BytesIO()),
        lambda: views.download_package(digest, io.BytesIO(), filename="x.whl"),
        lambda: client.submit(a_spec("new")),
        lambda: client.jobs(),
        lambda: client.job("taxi"),
        lambda: client.update("taxi", priority=1),
        lambda: client.pause("taxi"),
        lambda: client.resume("taxi"),
        lambda: client.logs("taxi"),
        lambda: client.metrics("taxi"),
        lambda: client.checkpoints("taxi", trial=1),
        lambda: client.trials("taxi"),
        lambda: client.trial(1),
        lambda: client.search("taxi"),
        lambda: client.saved_models("taxi"),
        lambda: client.models(),
        lambda: client.create_model(NewModel(name="m")),
        lambda: client.model("m"),
        lambda: client.change_model("m", description="one"),
        lambda: client.versions("m"),
        lambda: client.create_version("m", NewVersion(origin=str(tmp_path / "none"))),
        lambda: client.version("m:1"),
        lambda: client.set_default("m:1"),
        lambda: client.set_alias("m:1", "best"),
        lambda: client.delete_alias("m", "best"),
        lambda: client.delete_version("m:1"),
        lambda: client.delete_model("m"),
        lambda: client.pools(),
        lambda: views.series("taxi"),
        lambda: views.trial_columns("taxi"),
        lambda: views.rungs("taxi"),
        lambda: views.log_lines("taxi"),
        lambda: views.download_log("taxi", io.BytesIO()),
        lambda: views.package_files("taxi"),
        lambda: views.package_file("taxi", "task.py"),
        lambda: views.diff("taxi", "taxi"),
        lambda: views.environment("taxi"),
        lambda: views.commands("taxi"),
        lambda: views.pool_history(),
        lambda: views.predict("m", [1], url="http://127.0.0.1:9"),
        lambda: next(views.stream("jobs")),
        lambda: _hear_a_job(client),
        lambda: client.cancel("taxi"),
        lambda: client.kill("taxi"),
        lambda: client.shutdown(),
    ]
    for call in calls:
        with suppress(StokerError):  # there is no such version, no search: the route answered
            call()


def _hear_a_job(client: Client) -> None:
    """A stream without news says nothing: change a job until it does."""
    heard = threading.Thread(target=lambda: next(client.views.job_events()), daemon=True)
    heard.start()
    priorities = itertools.count(2)
    wait_until(lambda: client.update("taxi", priority=next(priorities)) and not heard.is_alive(), what="a job's line")
