"""`stoker serve` of a registered model: the default version, and the next one when that becomes the default."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.cli.serve import follows, resolve
from stoker.client.client import connect
from stoker.errors import UsageError
from stoker.host.home import Home
from stoker.schema.registry import NewModel, NewVersion
from tests.e2e.conftest import kill_server
from tests.predict.online.fakes import Caller
from tests.processes import wait_until


@pytest.fixture
def home(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.delenv("STOKER_SERVER", raising=False)
    yield Home(own_home)
    kill_server(Home(own_home))


def a_model(folder: Path, answer: str) -> Path:
    folder.mkdir()
    (folder / "predictor.py").write_text(f"def predict(instances):\n    return [{answer!r} for _ in instances]\n")
    return folder


def test_a_folder_is_served_under_its_name(tmp_path: Path) -> None:
    found = resolve(str(a_model(tmp_path / "fares", "x")))

    assert (found.name, found.version, found.folder) == ("fares", None, str(tmp_path / "fares"))


@pytest.mark.parametrize(
    ("words", "does"),
    [("m", True), ("m@live", True), ("m:v1", False), ("m:2", False), ("m/versions/v1", False), ("./m", False)],
)
def test_only_what_may_change_is_watched(words: str, does: bool) -> None:
    assert follows(words) is does


def test_what_names_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="names no model"):
        follows("m:v1:v2")


@pytest.mark.slow
def test_the_new_default_version_is_served_when_it_is_set(home: Home, tmp_path: Path) -> None:
    with connect(home) as client:
        client.create_model(NewModel(name="fares"))
        for name in ("v1", "v2"):
            origin = str(a_model(tmp_path / name, name))
            client.create_version("fares", NewVersion(name=name, origin=origin))
        command = [str(Path(sys.executable).with_name("stoker")), "serve", "fares", "--port", "0", "--trust"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ}, text=True) as process:
            try:
                assert process.stdout is not None
                call = Caller(int(process.stdout.readline().rpartition(":")[2]))

                def answer() -> tuple[int, object]:
                    found = call("POST", "/v1/models/fares:predict", {"instances": [1]})
                    return found.status, found.json

                assert answer() == (200, {"predictions": ["v1"]})
                client.set_default("fares:v2")
                wait_until(lambda: answer() == (200, {"predictions": ["v2"]}), what="the new default")
                assert call("GET", "/health").json["version"] == "v2"
            finally:
                process.terminate()
