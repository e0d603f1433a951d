"""Object stores by fsspec: S3 through moto's server, Google Cloud Storage through our own gateway.

Moto is found as `moto_server` beside this Python or on PATH, or by STOKER_TEST_MOTO_SERVER.
"""

import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.errors import NotFoundError, StokerError
from stoker.storage.access import Storage
from stoker.storage.gcs_api.server import Gateway
from stoker.storage.remote import RemoteBucket
from stoker.storage.settings import Target
from tests.contracts.storage import LARGE, StorageContract
from tests.processes import wait_until

BESIDE = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # `make test` does not change PATH
MOTO = os.environ.get("STOKER_TEST_MOTO_SERVER") or shutil.which("moto_server", path=BESIDE)
needs_moto = pytest.mark.skipif(MOTO is None, reason="no moto_server: set STOKER_TEST_MOTO_SERVER to one")
# gcsfs's own doing: https://github.com/aio-libs/aiohttp warns of bodies over a megabyte.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
ENVIRONMENT = {"TEST_KEY": "test", "TEST_SECRET": "test"}


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert MOTO is not None
    output = subprocess.DEVNULL
    process = subprocess.Popen([MOTO, "-H", "127.0.0.1", "-p", str(port)], stdout=output, stderr=output)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: answers(url), what="moto to answer")
        yield url
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/moto-api/", timeout=5):
            return True
    except OSError:
        return False


def s3_target(url: str) -> Target:
    return Target(
        "s3",
        bucket="real-bucket",
        path="some/prefix",
        endpoint_url=url,
        key_variable="TEST_KEY",
        secret_variable="TEST_SECRET",
    )


@pytest.fixture
def s3_bucket(s3_url: str) -> str:
    """Every test has the store for itself."""
    for method, path in (("POST", "/moto-api/reset"), ("PUT", "/real-bucket")):
        with urllib.request.urlopen(urllib.request.Request(s3_url + path, method=method), timeout=60):
            pass
    return s3_url


@pytest.mark.slow
@needs_moto
class TestS3(StorageContract):
    keeps_odd_keys = False

    @pytest.fixture
    def root(self, s3_bucket: str, tmp_path: Path) -> RemoteBucket:
        pytest.importorskip("s3fs")
        return RemoteBucket(
            s3_target(s3_bucket), bucket="x", url="gs://mapped", spool=tmp_path, environment=ENVIRONMENT
        )


class TestGoogle(StorageContract):
    """gcsfs against our gateway: the client is the real one."""

    keeps_odd_keys = False

    @pytest.fixture
    def root(self, tmp_path: Path) -> Iterator[RemoteBucket]:
        pytest.importorskip("gcsfs")
        with Gateway(tmp_path / "home") as gateway:
            target = Target("gs", bucket="real-bucket", path="prefix", endpoint_url=gateway.url, anonymous=True)
            yield RemoteBucket(target, bucket="x", url="gs://mapped", spool=tmp_path / "spool", environment={})


@pytest.mark.slow
@needs_moto
def test_bucket_of_google_can_live_in_s3(s3_bucket: str, tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    (tmp_path / "config.toml").write_text(
        f"""
        [storage.buckets]
        "gs://old" = {{ root = "s3://real-bucket/p", endpoint_url = "{s3_bucket}", key_variable = "TEST_KEY",
                        secret_variable = "TEST_SECRET" }}
        """.replace(",\n                       ", ",")
    )
    storage = Storage(tmp_path, environment=ENVIRONMENT)
    (tmp_path / "data").write_bytes(LARGE * 4)

    first = storage.copy(tmp_path / "data", "gs://old/in/data")
    again = storage.copy(tmp_path / "data", "gs://old/in/data")
    storage.copy("gs://old/in", tmp_path / "back", recursive=True)

    assert (first.unchanged, again.unchanged) == (0, 1)
    assert (tmp_path / "back/data").read_bytes() == LARGE * 4
    assert [found.url for found in storage.list("gs://old", recursive=True)] == ["gs://old/in/data"]
    assert storage.size("gs://old/in") == len(LARGE) * 4
    assert storage.remove("gs://old/in", recursive=True) == 1
    assert list((tmp_path / "buckets").rglob("*.*")) == []


@pytest.mark.slow
@needs_moto
def test_wrong_secret_and_missing_bucket_are_one_line(s3_bucket: str, tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    target = Target("s3", bucket="no-such-bucket", endpoint_url=s3_bucket, key_variable="TEST_KEY")
    root = RemoteBucket(target, bucket="x", url="s3://mapped", spool=tmp_path, environment=ENVIRONMENT)
    draft = root.draft("a")
    draft.write(b"x")

    with pytest.raises(StokerError) as caught:
        root.commit("a", draft)
    draft.discard()

    assert "s3://mapped/a" in str(caught.value)
    assert "no-such-bucket" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_object_at_google_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("gcsfs")
    with Gateway(tmp_path) as gateway:
        target = Target("gs", endpoint_url=gateway.url, anonymous=True)
        root = RemoteBucket(target, bucket="bucket", url="gs://bucket", spool=tmp_path, environment={})

        with pytest.raises(NotFoundError) as caught:
            root.open("missing")
    assert str(caught.value) == f"gs://bucket/missing: not there (gs://bucket at {gateway.url})."
