"""The pools as they are now: config.toml read again when it has changed, clusters asked what they have."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from stoker.engines.base import ClusterNode, Engine
from stoker.engines.ray.engine import RayEngine
from stoker.errors import StokerError
from stoker.host.home import Home
from stoker.schema.job import NOTHING, Share
from stoker.schema.pool import Pool, RayPool
from stoker.schema.record import Held
from stoker.server.settings import Settings

logger = logging.getLogger(__name__)

_CONFIG_S = 1.0  # how often config.toml is looked at
_CLUSTER_S = 5.0  # how often a cluster is asked
_PATIENCE_S = 45.0  # how long a new job waits for a cluster that was never asked: less than clients do
_UNKNOWN = "Pool {!r}: its cluster has not answered yet; try again in a few seconds."


class Engines(Mapping[str, Engine]):
    """The engines by name; a cluster's is made when it is first asked for, and anew when its settings change."""

    def __init__(self, home: Home, fixed: Mapping[str, Engine]) -> None:
        self._home = home
        self._engines = dict(fixed)
        self._settings: dict[str, RayPool] = {}

    def take(self, pools: Mapping[str, Pool]) -> None:
        """Have an engine for each of these. Those of pools that went stay, for the runs they have."""
        for pool in pools.values():
            if pool.ray is not None and self._settings.get(pool.engine_name) != pool.ray:
                self._settings[pool.engine_name] = pool.ray
                self._engines[pool.engine_name] = RayEngine(self._home, pool.name, pool.ray)

    def __getitem__(self, name: str) -> Engine:
        return self._engines[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._engines)

    def __len__(self) -> int:
        return len(self._engines)


class Pools(Mapping[str, Pool]):
    """What there is to run on. A thread of its own keeps it true; readers get whole pools, old or new."""

    def __init__(self, settings: Settings, *, config: Path, engines: Engines, load: Callable[[], Settings]) -> None:
        self._config, self._engines, self._load = config, engines, load
        self._pools = {name: _unasked(pool) for name, pool in settings.pools.items()}
        self._never_asked = {name for name, pool in self._pools.items() if pool.ray is not None}
        self._seen = _stamp(config)
        self._ending = threading.Event()
        self._changed: Callable[[], None] = lambda: None
        self._seen_anew: Callable[[], None] = lambda: None
        self._nodes: dict[str, tuple[ClusterNode, ...]] = {}
        self._asked = threading.Condition()
        engines.take(self._pools)
        self._thread = threading.Thread(target=self._run, name="pools", daemon=True)

    def start(self, changed: Callable[[], None], *, seen_anew: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when there is more, or less, to run on; `seen_anew` also when other nodes are free."""
        self._changed, self._seen_anew = changed, seen_anew
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()

    def look_again(self) -> None:
        """Take up config.toml at once, if it was changed: who has just added a pool names it next."""
        self._read_config()

    def await_answer(self, pool: str) -> None:
        """Until its cluster has been asked once, as far as it is one. It takes seconds, after a server's start."""
        with self._asked:
            self._asked.wait_for(lambda: pool not in self._never_asked, _PATIENCE_S)

    def nodes_of(self, pool: str) -> tuple[ClusterNode, ...]:
        """Of a cluster that answered when it was last asked."""
        return self._nodes.get(pool, ())

    def places(self, pool: str, handle: str) -> tuple[Held, ...]:
        """What this run holds of which nodes, where that is known."""
        engine = self._engines.get(self._pools[pool].engine_name) if pool in self._pools else None
        return engine.places(handle) if isinstance(engine, RayEngine) else ()

    def __getitem__(self, name: str) -> Pool:
        return self._pools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._pools))

    def __len__(self) -> int:
        return len(self._pools)

    def _run(self) -> None:
        rounds = 0
        while not self._ending.is_set():
            before, nodes = dict(self._pools), dict(self._nodes)
            self._read_config()
            if rounds % (_CLUSTER_S // _CONFIG_S) == 0 or self._never_asked:
                for pool in list(self._pools.values()):
                    if pool.ray is not None:
                        self._take(pool, self._ask(pool))
            if self._pools != before:
                self._changed()
            if self._pools != before or self._nodes != nodes:
                self._seen_anew()
            rounds += 1
            self._ending.wait(_CONFIG_S)

    def _take(self, pool: Pool, found: Pool) -> None:
        """What was found of a pool, unless it has been written anew while its cluster was asked."""
        with self._asked:
            if self._pools.get(pool.name) is pool:
                self._pools[pool.name] = found
                self._never_asked.discard(pool.name)
                self._asked.notify_all()

    def _read_config(self) -> None:
        with self._asked:
            stamp = _stamp(self._config)
            if stamp != self._seen:
                self._seen = stamp
                self._read_anew()

    def _read_anew(self) -> None:
        try:
            fresh = self._load().pools
        except StokerError as error:
            logger.error("config.toml stays as it was read before: %s", error)
            return
        self._engines.take(fresh)
        known = {name: pool for name, pool in self._pools.items() if name in fresh and fresh[name].ray == pool.ray}
        self._pools = {
            name: _as_asked(pool, known[name]) if name in known else _unasked(pool) for name, pool in fresh.items()
        }
        new = {name for name, pool in fresh.items() if pool.ray is not None and name not in known}
        self._never_asked = new | (self._never_asked & known.keys())
        self._asked.notify_all()  # one that is waited for may have gone
        logger.info("config.toml was read again: pools %s", ", ".join(self._pools))

    def _ask(self, pool: Pool) -> Pool:
        engine = self._engines[pool.engine_name]
        assert isinstance(engine, RayEngine)
        try:
            assert pool.ray is not None
            there = engine.nodes()
            found = self._nodes[pool.name] = tuple(usable(there, pool.ray.resources))
        except StokerError as error:
            self._nodes.pop(pool.name, None)
            if pool.trouble != str(error):
                logger.warning("%s", error)
            return pool.with_(nodes=(), capacity=NOTHING, trouble=str(error))
        except Exception as error:  # noqa: BLE001 -- the loop must survive, or no pool would ever be known again
            logger.exception("pool %s", pool.name)
            return pool.with_(trouble=f"Pool {pool.name!r}: {error!r}")
        # One without either, as a head often is, runs nothing: it says nothing of those that may come.
        nodes = tuple(node.has for node in found if node.has.cpus or node.has.gpus)
        # What was there once may come again: it is not forgotten when the cluster has shrunk.
        seen = pool.with_(nodes=nodes).new_node
        trouble = _lack(pool, pool.ray.resources) if there and not found and not pool.autoscale else ""
        return pool.with_(nodes=nodes, capacity=Share.total(nodes) & pool.most, largest_node=seen, trouble=trouble)


def usable(nodes: Iterable[ClusterNode], resources: Mapping[str, float]) -> Iterator[ClusterNode]:
    """The nodes that have what each node of a run takes of the cluster's custom resources: the pool's own."""
    return (node for node in nodes if all(node.resources.get(name, 0.0) >= need for name, need in resources.items()))


def _lack(pool: Pool, resources: Mapping[str, float]) -> str:
    wanted = ", ".join(f"{amount:g} {name}" for name, amount in resources.items())
    return (
        f"Pool {pool.name!r}: no node of its cluster has {wanted}, which each node of a job here takes: resources under"
        f" [pools.{pool.name}] in config.toml."
    )


def _as_asked(pool: Pool, known: Pool) -> Pool:
    """A pool as it is written now, with what its cluster last said; one that is no cluster as it is written."""
    if pool.ray is None:
        return pool
    return pool.with_(nodes=known.nodes, capacity=known.capacity & pool.most, trouble=known.trouble)


def _unasked(pool: Pool) -> Pool:
    return pool if pool.ray is None else pool.with_(trouble=_UNKNOWN.format(pool.name))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
