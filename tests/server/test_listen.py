"""A server that other hosts can reach: where it listens, whom it answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.client.client import Client, connect
from stoker.errors import ConfigError, StokerError
from stoker.host.home import Home, ServerAddress
from stoker.server.__main__ import main
from tests.e2e.conftest import kill_server
from tests.network import own_address


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    home = Home(tmp_path / "home").make()
    yield home
    kill_server(home)


@pytest.mark.slow
def test_server_listens_where_the_config_says_and_needs_its_token_there(home: Home) -> None:
    address = own_address()
    home.config.write_text(f'listen = "{address}:0"\nserver_url = "http://gate.example:8081"\n')

    with connect(home) as client:
        assert client.health().url.startswith(f"http://{address}:")
        assert client.pools()[0].name == "local"
        with Client(ServerAddress(url=client.address.url, token="wrong", pid=0)) as stranger:
            with pytest.raises(StokerError, match="token"):
                stranger.pools()
        assert status(client, host="gate.example:8081") == 200
        assert status(client, host="evil.example") == 421


@pytest.mark.parametrize(("host", "words"), [("ray-head", "give an IP address"), ("203.0.113.77", "cannot be had")])
def test_host_that_is_none_of_this_machine_is_refused(
    home: Home, host: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--host", host]) == 2

    told = capsys.readouterr().err
    assert host in told
    assert words in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("listen", ["head:80", "10.0.0.5", "10.0.0.5:port"])
def test_listen_has_an_address_and_a_port(tmp_path: Path, listen: str) -> None:
    from tests.server.test_settings import load

    with pytest.raises(ConfigError, match="listen"):
        load(tmp_path, f'listen = "{listen}"\n')


def status(client: Client, *, host: str) -> int:
    import http.client
    from urllib.parse import urlsplit

    found = urlsplit(client.address.url)
    asking = http.client.HTTPConnection(found.hostname or "", found.port, timeout=60)
    asking.request("GET", "/api/v1/health", headers={"Host": host})
    code = asking.getresponse().status
    asking.close()
    return code
