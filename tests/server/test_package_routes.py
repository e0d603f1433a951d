"""Packages over HTTP: whole or not there."""

import hashlib
import http.client
from pathlib import Path

import pytest

from stoker.client.client import Client
from stoker.errors import StokerError, UsageError
from stoker.host.home import Home
from tests.processes import wait_until
from tests.server.asking import API, BEARER, ask
from tests.server.conftest import Served

pytestmark = pytest.mark.slow

CONTENT = b"a package" * 1000
HASH = hashlib.sha256(CONTENT).hexdigest()
PATH = f"{API}/packages/{HASH}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "package.tar.gz"
    path.write_bytes(CONTENT)
    return path


def leftovers(home: Home) -> list[str]:
    return [path.name for path in home.packages.rglob(".partial*")] if home.packages.exists() else []


def test_package_is_uploaded_once_and_comes_back(client: Client, served: Served, home: Home, file: Path) -> None:
    assert not client.has_package(HASH)

    assert client.upload_package(HASH, file)
    assert not client.upload_package(HASH, file)

    assert client.has_package(HASH)
    assert home.package_file(HASH).read_bytes() == CONTENT
    assert ask(served, "GET", PATH).body == CONTENT
    head = ask(served, "HEAD", PATH)
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(CONTENT)))


def test_uploading_again_is_harmless(served: Served, home: Home) -> None:
    for _ in range(2):
        assert ask(served, "PUT", PATH, body=CONTENT).status == 201

    assert home.package_file(HASH).read_bytes() == CONTENT
    assert leftovers(home) == []


def test_archive_keeps_its_name(client: Client, home: Home, file: Path) -> None:
    name = "taxi-0.1-py3-none-any.whl"

    assert client.upload_archive(HASH, name, file)

    assert client.has_package(HASH, name)
    assert home.archive_file(HASH, name).read_bytes() == CONTENT


def test_upload_that_is_something_else_is_not_kept(served: Served, home: Home) -> None:
    answer = ask(served, "PUT", PATH, body=CONTENT + b"!")

    assert answer.status == 400
    assert "sha256" in answer.json["error"]
    assert not home.package_file(HASH).exists()
    assert leftovers(home) == []


def test_upload_that_breaks_off_is_not_kept(served: Served, home: Home) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.putrequest("PUT", PATH)
    connection.putheader("Authorization", BEARER["Authorization"])
    connection.putheader("Content-Length", str(len(CONTENT)))
    connection.endheaders(CONTENT[:100])
    wait_until(lambda: leftovers(home), what="the upload to begin")

    connection.close()

    wait_until(lambda: leftovers(home) == [], what="the rest to be cleared away")
    assert not home.package_file(HASH).exists()


def test_package_over_the_limit_is_refused(client: Client, home: Home, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"0" * 1_000_001)

    with pytest.raises(StokerError, match="larger than the 1,000,000 bytes"):
        client.upload_package(hashlib.sha256(big.read_bytes()).hexdigest(), big)

    assert leftovers(home) == []


@pytest.mark.parametrize("hash", ["abc", "A" * 64, "..", "0" * 63 + "/"])
def test_what_is_not_a_hash_is_refused(served: Served, hash: str) -> None:
    assert ask(served, "PUT", f"{API}/packages/{hash}", body=b"x").status in (400, 404, 405)


@pytest.mark.parametrize("name", [".hidden", "a%2Fb", "%2e%2e", "a b", "x" * 300])
def test_bad_archive_names_are_refused(served: Served, home: Home, name: str) -> None:
    answer = ask(served, "PUT", f"{PATH}/{name.replace(' ', '%20')}", body=CONTENT)

    assert answer.status in (400, 404, 405)
    assert not home.packages.exists()


def test_head_of_what_is_not_a_hash_is_refused(client: Client) -> None:
    with pytest.raises(UsageError):  # a HEAD has no body to say more
        client.has_package("short")
