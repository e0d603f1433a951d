"""`stoker pools add` and `remove`: config.toml changed with care."""

from pathlib import Path

import pytest

from stoker.cli import pools
from stoker.cli.main import main
from stoker.errors import ConfigError
from stoker.host.home import Home
from stoker.schema.job import Share
from stoker.server.settings import load_settings

ADD = ["pools", "add", "cluster", "--engine", "ray", "--address", "head:6379"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path))
    return Home(tmp_path)


def pools_of(home: Home) -> dict[str, str]:
    settings = load_settings(home.config, capacity=lambda: Share(cpus=2))
    return {name: pool.engine for name, pool in settings.pools.items()}


def test_added_pool_is_beside_this_machine(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ADD, "--placement", "spread", "--max-nodes", "4"]) == 0

    assert capsys.readouterr().out == "cluster\n"
    assert pools_of(home) == {"local": "local", "cluster": "ray"}
    pool = load_settings(home.config, capacity=lambda: Share(cpus=2)).pools["cluster"]
    assert (pool.autoscale, pool.max_nodes) == (True, 4)


def test_what_people_wrote_stays(home: Home) -> None:
    written = '# ours\nidle_exit_s = 60\n\n[pools.local]\ncpus = 1\n\n[storage.buckets]\ndata = "/data"\n'
    home.config.write_text(written)

    assert main(ADD) == 0

    assert home.config.read_text().startswith(written.rstrip())
    assert pools_of(home) == {"local": "local", "cluster": "ray"}


def test_pool_that_is_there_is_not_written_again(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    main(ADD)
    before = home.config.read_text()

    assert main(ADD) == 2

    assert "has a pool 'cluster' already" in capsys.readouterr().err
    assert home.config.read_text() == before


def test_pool_that_cannot_be_changes_nothing(home: Home) -> None:
    assert main(["pools", "add", "cluster", "--address", "nowhere"]) == 2

    assert not home.config.exists()
    assert list(home.root.iterdir()) == []


def test_removed_pool_takes_its_tables_along_and_no_other(home: Home) -> None:
    first = '[pools.cluster]\nengine = "ray"\naddress = "a:1"\n[pools.cluster.tiers.BIG.worker]\ncount = 9\n'
    rest = "[pools.cluster2]\ncpus = 1\n"

    assert pools._section("cluster").sub("", first + rest) == rest


def test_bad_file_is_left_as_it_was(home: Home) -> None:
    home.config.write_text("[pools.local]\n")

    with pytest.raises(ConfigError):
        pools._write_checked(home.config, "nonsense = 1\n")

    assert home.config.read_text() == "[pools.local]\n"


def test_pool_that_grows_is_told_how_large_its_nodes_become(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ADD, "--largest-node", "cpus=8,gpus=1"]) == 2
    assert "--max-nodes" in capsys.readouterr().err
    assert main([*ADD, "--max-nodes", "4", "--largest-node", "cpu=8"]) == 2
    assert "pools.cluster.largest_node.cpu" in capsys.readouterr().err
    assert main([*ADD, "--max-nodes", "4", "--largest-node", "cpus=many"]) == 2
    assert not home.config.exists()

    assert main([*ADD, "--max-nodes", "4", "--largest-node", "cpus=8,gpus=1"]) == 0

    pool = load_settings(home.config, capacity=lambda: Share(cpus=2)).pools["cluster"]
    assert pool.largest_node == Share(cpus=8, gpus=1)
    assert pool.limit.gpus == 4
