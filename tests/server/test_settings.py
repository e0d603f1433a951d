"""config.toml, read and refused."""

from pathlib import Path

import pytest

from stoker.errors import ConfigError, NotFoundError
from stoker.schema.job import Share
from stoker.schema.launch import Role
from stoker.schema.pool import DEFAULT_TIERS, Pool
from stoker.server.settings import Settings, choose_pool, load_settings

MACHINE = Share(cpus=8, memory_gb=32, gpus=1)


def load(tmp_path: Path, text: str | None = None) -> Settings:
    path = tmp_path / "config.toml"
    if text is not None:
        path.write_text(text)
    return load_settings(path, capacity=lambda: MACHINE)


def test_without_a_file_there_is_one_pool_as_large_as_the_machine(tmp_path: Path) -> None:
    settings = load(tmp_path)

    assert settings.pools == {"local": Pool(name="local", capacity=MACHINE)}
    assert settings.default_pool == "local"
    assert settings.idle_exit_s == 900


def test_file_sets_capacity_and_the_machine_fills_the_rest(tmp_path: Path) -> None:
    settings = load(tmp_path, "idle_exit_s = 5\n[pools.local]\ncpus = 2\nignore_accelerators = true\n")

    pool = settings.pools["local"]
    assert pool.capacity == Share(cpus=2, memory_gb=32, gpus=1)
    assert pool.ignore_accelerators
    assert settings.idle_exit_s == 5


def test_default_pool_is_local_or_the_first(tmp_path: Path) -> None:
    assert load(tmp_path, "[pools.big]\n[pools.local]\n").default_pool == "local"
    assert load(tmp_path, "[pools.big]\n[pools.small]\n").default_pool == "big"
    assert load(tmp_path, 'default_pool = "small"\n[pools.big]\n[pools.small]\n').default_pool == "small"


def test_owner_changes_a_tier_role_by_role(tmp_path: Path) -> None:
    settings = load(
        tmp_path, "[pools.local.tiers.standard-1.worker]\ncount = 1\ncpus = 2\n[pools.local.tiers.MINE.ps]\n"
    )

    tiers = settings.pools["local"].tiers
    assert tiers["STANDARD_1"][Role.WORKER].count == 1
    assert tiers["STANDARD_1"][Role.PS] == DEFAULT_TIERS["STANDARD_1"][Role.PS]
    assert set(tiers["MINE"]) == {Role.CHIEF, Role.PS}
    assert tiers["BASIC"] == DEFAULT_TIERS["BASIC"]


def test_every_bad_field_is_named(tmp_path: Path) -> None:
    text = (
        'colour = "red"\nidle_exit_s = -1\n[pools.local]\ncpus = "many"\n[pools.local.tiers.BASIC.chief]\ncount = 2\n'
    )

    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)

    told = "\n".join(caught.value.problems)
    for field in ("colour", "idle_exit_s", "pools.local.cpus"):
        assert field in told
    assert "config.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pools = [", "is not TOML"),
        ('default_pool = "moon"', "there is no pool 'moon'"),
        ("[pools.local.tiers.BASIC.chief]\ncount = 2", "exactly one chief"),
        ('[pools."a b"]', "pools"),
        ('[pools.local]\nengine = "warp"', "engine"),
    ],
)
def test_bad_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(tmp_path, text)


def test_known_options_are_these(tmp_path: Path) -> None:
    from stoker.server.settings import Config, PoolConfig

    options = {"pools", "default_pool", "idle_exit_s", "max_package_bytes", "database", "models"}
    assert set(Config.model_fields) == options | {"server_url", "listen"}
    of_ray = {
        "address",
        "python",
        "node_python",
        "home",
        "placement",
        "resources",
        "autoscale",
        "max_nodes",
        "largest_node",
        "server_url",
        "gpu_types",
        "artifacts",
    }
    of_all = {"engine", "cpus", "memory_gb", "gpus", "ignore_accelerators", "tiers"}
    assert set(PoolConfig.model_fields) == of_all | of_ray


def test_ray_pool_has_an_address_and_knows_nothing_of_its_size(tmp_path: Path) -> None:
    pool = load(tmp_path, '[pools.big]\nengine = "ray"\naddress = "head:6379"\nplacement = "spread"\n').pools["big"]

    assert pool.ray is not None
    assert (pool.ray.address, pool.ray.placement, pool.engine_name) == ("head:6379", "spread", "ray:big")
    assert pool.capacity.cpus == 0


def test_what_is_written_of_a_ray_pool_is_the_most_it_takes(tmp_path: Path) -> None:
    pool = load(tmp_path, '[pools.big]\nengine = "ray"\naddress = "head:6379"\ncpus = 4\n').pools["big"]

    assert (pool.capacity.cpus, pool.most.cpus) == (0, 4)
    assert pool.most.gpus > 1e6


def test_place_for_artifacts_must_be_one_that_all_nodes_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    pool = '[pools.big]\nengine = "ray"\naddress = "head:6379"\nartifacts = "gs://kept/runs"\n'

    with pytest.raises(ConfigError) as caught:
        load(tmp_path, pool)

    assert "pools.big.artifacts: gs://kept is folder" in caught.value.problems[0]
    mapped = load(tmp_path, f'{pool}[storage.buckets]\n"gs://kept" = "/data/kept"\n').pools["big"].ray
    assert mapped is not None
    assert mapped.artifacts == "gs://kept/runs"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('engine = "ray"', "needs address"),
        ('engine = "ray"\naddress = "nowhere"', "needs address"),
        ('address = "head:6379"', "for engine = 'ray' alone"),
    ],
)
def test_ray_pool_that_cannot_be_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(tmp_path, f"[pools.big]\n{text}\n")


# --- choose_pool

POOLS = {name: Pool(name=name, capacity=MACHINE) for name in ("local", "us-east1")}


@pytest.mark.parametrize(("asked", "given"), [(None, "local"), ("local", "local"), ("us-east1", "us-east1")])
def test_pool_is_the_one_asked_for(asked: str | None, given: str) -> None:
    pool, note = choose_pool(asked, POOLS, default="local")

    assert (pool.name, note) == (given, "")


@pytest.mark.parametrize("region", ["us-central1", "europe-west4", "asia-northeast3", "northamerica-northeast1"])
def test_cloud_region_means_the_default_pool_with_a_note(region: str) -> None:
    pool, note = choose_pool(region, POOLS, default="local")

    assert pool.name == "local"
    assert region in note


@pytest.mark.parametrize("name", ["locl", "us-moon1", "central1", ""])
def test_unknown_pool_is_not_found(name: str) -> None:
    with pytest.raises(NotFoundError, match="Pools: local, us-east1"):
        choose_pool(name, POOLS, default="local")


def test_database_is_the_environments_then_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STOKER_DATABASE", raising=False)
    assert load(tmp_path).database is None
    assert load(tmp_path, 'database = "postgresql://ada@db/stoker"\n').database == "postgresql://ada@db/stoker"

    monkeypatch.setenv("STOKER_DATABASE", "postgresql://ada@other/stoker")
    assert load(tmp_path, 'database = "postgresql://ada@db/stoker"\n').database == "postgresql://ada@other/stoker"
