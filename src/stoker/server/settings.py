"""What the owner of a server may choose: HOME/config.toml, read once at the start."""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from stoker.errors import ConfigError, NotFoundError
from stoker.schema.job import NOTHING, Amount, RoleSpec, Share
from stoker.schema.launch import Role
from stoker.schema.model import Model
from stoker.schema.pool import DEFAULT_TIERS, Pool, RayPool, Tier

DEFAULT_POOL = "local"
DATABASE_VARIABLE = "STOKER_DATABASE"
# What AI Platform's scripts pass to --region: europe-west1, us-central1, asia-northeast3, northamerica-northeast1.
_CLOUD_REGION = re.compile(
    r"(?:africa|asia|australia|europe|me|northamerica|southamerica|us)"
    r"-(?:north|south|east|west|central|northeast|northwest|southeast|southwest)\d{1,2}(?:-[a-f])?"
)


_OF_RAY = (
    "address", "python", "node_python", "home", "placement", "resources", "autoscale", "max_nodes", "server_url",
    "largest_node", "gpu_types", "artifacts",
)  # fmt: skip
_LISTEN = r"^(?:\[[0-9a-fA-F:]+\]|[0-9.]+|localhost):\d{1,5}$"


class NodeConfig(Model):
    """`largest_node` of a pool that grows: what is not given is as on the nodes that are there."""

    cpus: Amount = 0.0
    memory_gb: Amount = 0.0
    gpus: Amount = 0.0


class PoolConfig(Model):
    """`[pools.NAME]`. What is not given is what the machine has."""

    engine: Literal["local", "ray"] = "local"
    address: str | None = None
    python: str | None = None
    node_python: str | None = None
    home: str | None = None
    placement: Literal["pack", "spread"] = "pack"
    resources: dict[str, Amount] = {}
    autoscale: bool = False
    max_nodes: Annotated[int, Field(ge=1)] | None = None
    largest_node: NodeConfig | None = None
    server_url: str | None = None
    cpus: Amount | None = None
    memory_gb: Amount | None = None
    gpus: Amount | None = None
    gpu_types: dict[str, str] = {}
    artifacts: Annotated[str, Field(pattern=r"^(?:gs|s3|file)://[^/].*|^/.+")] | None = None
    ignore_accelerators: bool = False
    tiers: dict[str, Tier] = {}

    @model_validator(mode="after")
    def _ray_has_an_address(self) -> Self:
        if self.engine == "ray" and not re.fullmatch(r"(?:ray://)?[^\s/:]+:\d+", self.address or ""):
            raise ValueError("a pool with engine = 'ray' needs address = 'HOST:PORT' of the cluster's head")
        given = [name for name in _OF_RAY if name in self.model_fields_set]
        if self.engine == "local" and given:
            raise ValueError(f"{', '.join(given)}: for engine = 'ray' alone")
        if self.largest_node is not None and not self.autoscale:
            raise ValueError("largest_node is for a pool that grows: with autoscale = true")
        return self

    @model_validator(mode="after")
    def _tiers_have_one_chief(self) -> Self:
        for name, tier in self.tiers.items():
            if Role.CHIEF in tier and tier[Role.CHIEF].count != 1:
                raise ValueError(f"tier {name} must have exactly one chief")
        return self


class ModelsConfig(Model):
    """`[models]`: where registered models are kept, if not in the home."""

    url: str | None = None


class Config(Model):
    """config.toml as it is written."""

    pools: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")], PoolConfig] = {}
    default_pool: str | None = None
    listen: Annotated[str, Field(pattern=_LISTEN)] | None = None
    server_url: str | None = None
    idle_exit_s: Annotated[float, Field(gt=0)] = 900.0
    max_package_bytes: Annotated[int, Field(gt=0)] = 1 << 30
    database: Annotated[str, Field(min_length=1)] | None = None
    models: ModelsConfig = ModelsConfig()


class Settings(Model):
    """config.toml with the machine's own figures filled in."""

    pools: dict[str, Pool]
    default_pool: str
    listen: str | None = None  # ADDRESS:PORT, for those who need it from other hosts; none is loopback, a free port
    server_url: str | None = None  # as the nodes of clusters see this server
    idle_exit_s: float
    max_package_bytes: int
    database: str | None = None  # a URL; none is a file in the home
    models_url: str | None = None


def load_settings(path: Path, *, capacity: Callable[[], Share]) -> Settings:
    """The settings of this file, or the defaults if there is none; ConfigError names every bad field.

    STOKER_DATABASE wins over the file's `database`.

    `capacity` says what the machine has, for what the file does not.
    """
    config = Config.parse(_read(path), source=str(path))
    pools = config.pools or {DEFAULT_POOL: PoolConfig()}
    default = config.default_pool or (DEFAULT_POOL if DEFAULT_POOL in pools else next(iter(pools)))
    if default not in pools:
        problem = f"default_pool: there is no pool {default!r} (pools: {', '.join(pools)})"
        raise ConfigError(f"{path} has 1 bad field:", [problem])
    _check_artifacts(config, path)
    machine = capacity()
    return Settings(
        pools={name: _pool(name, pool, machine, config.server_url) for name, pool in pools.items()},
        default_pool=default,
        listen=config.listen,
        server_url=config.server_url,
        idle_exit_s=config.idle_exit_s,
        max_package_bytes=config.max_package_bytes,
        database=os.environ.get(DATABASE_VARIABLE) or config.database,
        models_url=config.models.url,
    )


def choose_pool(
    name: str | None, pools: Mapping[str, Pool], *, default: str, of_another_cluster: bool = False
) -> tuple[Pool, str]:
    """The pool a job asked for, and a note for the user if that is not literally so; NotFoundError.

    `of_another_cluster`: the file is of one that is gone, and so may be the pool that it names.
    """
    if name is None:
        return pools[default], ""
    if name in pools:
        return pools[name], ""
    if _CLOUD_REGION.fullmatch(name):
        return pools[default], f"Region {name} is not a pool here: the job runs in pool {default!r}."
    if of_another_cluster:
        return pools[default], f"There is no pool {name!r} here: the job runs in pool {default!r}."
    raise NotFoundError(f"No pool named {name!r}. Pools: {', '.join(sorted(pools))}.")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        found.pop("storage", None)  # read by stoker.storage, where it is needed
        return found
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error


def _check_artifacts(config: Config, path: Path) -> None:
    """A bucket that is a folder of the home unless somebody says otherwise would be another one on every node."""
    urls = {name: pool.artifacts for name, pool in config.pools.items() if pool.artifacts is not None}
    if not urls:
        return
    from stoker.storage import Storage, StorageUrl  # noqa: PLC0415 -- few homes need it

    buckets = Storage(path.parent).buckets
    problems = [
        f"pools.{name}.artifacts: {buckets.where(StorageUrl.parse(url))}. Nodes would have a folder each: map it under"
        " [storage.buckets] to what all of them reach"
        for name, url in urls.items()
        if buckets.is_by_default(StorageUrl.parse(url))
    ]
    if problems:
        raise ConfigError(f"{path} has {len(problems)} bad field{'s' if len(problems) > 1 else ''}:", problems)


def _pool(name: str, config: PoolConfig, machine: Share, server_url: str | None) -> Pool:
    many: Share = Pool.model_fields["most"].default
    if config.engine == "ray":
        machine = many
    written = Share(
        cpus=machine.cpus if config.cpus is None else config.cpus,
        memory_gb=machine.memory_gb if config.memory_gb is None else config.memory_gb,
        gpus=machine.gpus if config.gpus is None else config.gpus,
    )
    tiers = {tier.upper().replace("-", "_"): roles for tier, roles in config.tiers.items()}
    return Pool(
        name=name,
        engine=config.engine,
        # What a cluster has is not known before it is asked; what is written is the most to be taken of it.
        capacity=written if config.engine == "local" else NOTHING,
        most=written if config.engine == "ray" else many,
        gpu_types=config.gpu_types,
        tiers={**DEFAULT_TIERS, **{tier: _tier(tier, roles) for tier, roles in tiers.items()}},
        ignore_accelerators=config.ignore_accelerators,
        autoscale=config.autoscale,
        max_nodes=config.max_nodes,
        largest_node=None if config.largest_node is None else Share(**dict(config.largest_node)),
        ray=_ray(config, server_url),
    )


def _ray(config: PoolConfig, server_url: str | None) -> RayPool | None:
    if config.engine != "ray" or config.address is None:
        return None
    return RayPool(
        address=config.address,
        python=config.python,
        node_python=config.node_python,
        home=config.home,
        placement=config.placement,
        resources=config.resources,
        server_url=config.server_url or server_url,
        artifacts=config.artifacts,
    )


def _tier(name: str, roles: Tier) -> Tier:
    """Roles that the owner did not write stay as the tier had them; a new tier has a chief all the same."""
    return {**DEFAULT_TIERS.get(name, {Role.CHIEF: RoleSpec()}), **roles}
