"""Resolving as of a date: uv's flags, the key of the environment, and what counts of the runtime."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stoker.errors import UsageError
from stoker.host.home import Home
from stoker.packaging.environment.cache import prepare, resolve
from stoker.packaging.environment.dates import flags_as_of, release_dates
from stoker.packaging.environment.needs import Needs
from stoker.packaging.environment.resolver import Unresolvable
from stoker.packaging.environment.runtimes import default_runtime
from tests.packaging.made import make_runtime, make_wheel

RELEASES = {"1.0": "2019-05-01", "1.1": "2020-02-01", "2.0": "2023-01-01"}


class _Index(SimpleHTTPRequestHandler):
    """A package index in JSON, with upload dates, over a folder of wheels."""

    def do_GET(self) -> None:
        parts = self.path.strip("/").split("/")
        if parts[0] != "simple":
            return super().do_GET()
        wheels = sorted(Path(self.directory).glob(f"{parts[1]}-*.whl"))
        files = [
            {"filename": one.name, "url": f"/{one.name}", "hashes": {}, **_uploaded(one.name.split("-")[1])}
            for one in wheels
        ]
        page = {"meta": {"api-version": "1.1"}, "name": parts[1], "versions": [], "files": files}
        self.send_response(200 if wheels else 404)
        self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
        self.end_headers()
        self.wfile.write(json.dumps(page).encode())

    def log_message(self, *_: object) -> None:
        pass


def _uploaded(version: str) -> dict[str, str]:
    return {"upload-time": f"{RELEASES[version]}T12:00:00Z"} if version in RELEASES else {}


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an index that is the only one there is."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Index, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_FIND_LINKS", "UV_INDEX"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{server.server_port}/simple")
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
        yield folder
        server.shutdown()


@pytest.mark.slow
def test_an_environment_holds_what_was_released_by_its_date(tmp_path: Path, wheels: Path) -> None:
    for version in RELEASES:
        make_wheel(wheels, "old", version)
    home = Home(tmp_path / "home").make()
    make_runtime(home, tmp_path / "lab", {"old": "2.0"})

    def installed(as_of: str | None) -> tuple[str, ...]:
        return resolve({"runtime": "lab", "requirements": ["old"], "as_of": as_of}, home=home).lines

    assert installed(None) == ()  # the runtime has one
    assert installed("2020-06-01") == ("old==1.1",)
    assert installed("2019-06-01") == ("old==1.0",)
    with pytest.raises(Unresolvable, match="as of 2018-01-01"):
        installed("2018-01-01")
    made = prepare({"runtime": "lab", "requirements": ["old"], "as_of": "2020-06-01"}, home=home)
    assert made.installed == ("old 1.1",)


@pytest.mark.slow
def test_the_dates_of_releases_are_the_indexes(wheels: Path) -> None:
    for version in (*RELEASES, "3.0"):
        make_wheel(wheels, "old", version)

    assert release_dates(["old==1.1"], default_runtime()) == {"old": "2020-02-01"}
    assert release_dates(["old<2"], default_runtime()) == {"old": "2020-02-01"}
    assert release_dates(["old==9"], default_runtime()) == {}
    assert release_dates(["old"], default_runtime()) == {}  # 3.0, of which the index says no date


def test_the_date_is_part_of_the_environments_key() -> None:
    keys = {
        Needs.of({"requirements": ["six"], "as_of": as_of}).key(fingerprint="f", provided="p")
        for as_of in (None, "auto", "today", "2020-01-15", "2021-01-15")
    }

    assert len(keys) == 3


def test_what_is_not_a_date_is_refused() -> None:
    assert flags_as_of(None) == []
    assert flags_as_of("2020-01-15")[:2] == ["--exclude-newer", "2020-01-15"]
    with pytest.raises(UsageError, match="is not a date"):
        flags_as_of("soon")
