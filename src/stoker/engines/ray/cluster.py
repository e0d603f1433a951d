"""Runs on a Ray cluster, as the bridge tends them: a placement group each, and a detached actor on each of its nodes.

Everything is known by name, so that another bridge finds it: `ID/RUN` is a run's placement group, `ID/RUN/N` its node
N. What cannot be asked of Ray again (the launch, which nodes had been started) is in the server's run directory.
"""

import contextlib
import hashlib
import io
import json
import logging
import tarfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util import get_placement_group, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from stoker.engines.ray import node as node_module
from stoker.engines.ray.node import Node, Site
from stoker.engines.ray.raylets import LostNodeError, Raylets

logger = logging.getLogger(__name__)

NAMESPACE = "stoker"
_CALL_S = 60.0
_END_S = 20.0
_ROLES_WITH_ADDRESS = ("chief", "ps", "worker")


class ClusterError(Exception):
    """In one line, for a person."""


@dataclass
class _Run:
    """A run as this bridge knows it."""

    name: str
    run_dir: Path  # the server's
    launch: dict[str, Any]
    actors: list[Any] = field(default_factory=list)
    is_started: bool = False
    is_over: bool = False  # all its nodes have ended, or one was lost
    is_ending: bool = False
    why: str = ""  # of what is known of a run that is gone
    lost: frozenset[int] = frozenset()  # nodes whose raylet is gone: asking them would wait until Ray knows it too

    @property
    def num_nodes(self) -> int:
        return 1 + max(int(replica.get("node", 0)) for replica in self.launch["replicas"])

    def on(self, node: int) -> list[dict[str, Any]]:
        return [replica for replica in self.launch["replicas"] if replica.get("node", 0) == node]

    def has_servers(self, node: int) -> bool:
        """Whether somebody on this node serves the others, for as long as they work."""
        return self.num_nodes > 1 and any(replica["role"] == "ps" for replica in self.on(node))

    def is_serving(self, node: int) -> bool:
        """Whether nobody on this node ends by itself."""
        return all(replica["role"] == "ps" for replica in self.on(node))


class Cluster:
    """The calls of the engine. Each run has a thread that follows it from its place to its end."""

    def __init__(self, home: Path, *, settings: Mapping[str, Any]) -> None:
        self._home, self._settings = home, settings
        self._id = hashlib.sha256(str(home).encode()).hexdigest()[:12]
        self._archive = _source()
        self._site = Site(
            home=settings.get("home") or f"~/.cache/stoker/nodes/{self._id}",
            python=settings.get("node_python") or "",
            source=hashlib.sha256(self._archive).hexdigest()[:16],
        )
        self._runs: dict[str, _Run] = {}
        self._drains: dict[str, list[Any]] = {}
        self._lock = threading.Lock()
        ray.cloudpickle.register_pickle_by_value(node_module)
        self._actor = ray.remote(Node)

    @property
    def is_idle(self) -> bool:
        return not self._drains and all(run.is_over for run in self._runs.values())

    # --- the calls

    def submit(self, run: str, run_dir: str) -> None:
        with self._lock:
            if run in self._runs:
                return
            found = self._runs[run] = _Run(run, Path(run_dir), json.loads((Path(run_dir) / "run.json").read_text()))
            try:
                self._place(found)
            except Exception:
                del self._runs[run]
                raise
        self._follow(found)

    def find(self, run: str, run_dir: str) -> bool:
        """Whether there is such a run; takes it over if another bridge started it."""
        with self._lock:
            if run in self._runs:
                return True
            if _group(self._name(run)) is None or not (Path(run_dir) / "run.json").exists():
                return False
            found = self._runs[run] = _Run(run, Path(run_dir), json.loads((Path(run_dir) / "run.json").read_text()))
            try:
                self._take_over(found)
            except Exception:
                del self._runs[run]
                raise
        self._follow(found)
        return True

    def take_over_all(self) -> None:
        """Follow what other bridges of this home left, to its end: nobody else might ask after a run that is over."""
        for found in placement_group_table().values():
            owner, _, run = str(found["name"]).partition("/")
            if owner == self._id and found["state"] != "REMOVED":
                job, trial, attempt = _path_of(run)
                self.find(run, str(self._home / "runs" / job / str(trial) / str(attempt)))

    def poll(self, runs: Mapping[str, str]) -> dict[str, str]:
        """By run's name, of those with these directories: alive, waiting or gone."""
        states = {}
        for run, run_dir in runs.items():
            known = self._runs.get(run) if self.find(run, run_dir) else None
            if known is None or known.is_over:
                states[run] = "gone"
            else:
                states[run] = "alive" if known.is_started or not self._is_waiting(known) else "waiting"
        return states

    def diagnose(self, run: str, run_dir: str) -> str:
        known = self._runs.get(run) if self.find(run, run_dir) else None
        if known is None:
            return ""
        return known.why if known.is_over or known.is_started else self._shortage(known)

    def cancel(self, run: str, run_dir: str) -> None:
        if not self.find(run, run_dir):
            return
        known = self._runs[run]
        known.is_ending = True
        ended = self._end(known)
        known.is_over = True
        if not ended:
            raise ClusterError(f"Some processes of run {run} cannot be ended: they wait in the kernel.")

    def drain(self, run: str, run_dir: str) -> bool:
        """Have each node that still can send what is left in its directory; whether there is anything to wait for."""
        started = _started(Path(run_dir))
        calls = []
        for number, where in enumerate(started):
            # Soft: where nodes share their file system, another can do it for one that was lost.
            strategy = NodeAffinitySchedulingStrategy(where["id"], soft=True)
            actor = self._actor.options(num_cpus=0, scheduling_strategy=strategy).remote(
                run, _path_of(run), number, self._site
            )
            calls.append((actor, actor.drain.remote(self._server())))
        if calls:
            self._drains[run] = calls
        return bool(calls)

    def poll_drain(self, run: str) -> str:
        calls = self._drains.get(run)
        if calls is None:
            return "gone"
        _, late = ray.wait([call for _, call in calls], num_returns=len(calls), timeout=0)
        if late:
            return "alive"
        for actor, _ in self._drains.pop(run):
            ray.kill(actor)
        return "gone"

    def nodes(self) -> list[dict[str, Any]]:
        """What each living node has, and what of it is free."""
        free = ray._private.state.available_resources_per_node()
        return [
            {
                "id": found["NodeID"],
                "host": found["NodeManagerHostname"],
                "address": found["NodeManagerAddress"],
                "has": _share(found["Resources"]),
                "free": _share(free.get(found["NodeID"], {})),
                "resources": _custom(found["Resources"]),
            }
            for found in ray.nodes()
            if found["Alive"]
        ]

    def tell_server(self) -> None:
        """A new server has another address: supervisors look for it in their node's home."""
        for run in list(self._runs.values()):
            if run.is_started and not run.is_over:
                for actor in run.actors:
                    actor.tell_server.remote(self._server())

    # --- one run

    def _place(self, run: _Run) -> None:
        bundles = [self._bundle(run, node) for node in range(run.num_nodes)]
        strategy = "SPREAD" if self._settings.get("placement") == "spread" else "PACK"
        name = self._name(run.name)
        group = _group(name) or placement_group(bundles, strategy=strategy, name=name, lifetime="detached")
        run.actors = [
            self._actor.options(
                name=f"{name}/{node}",
                lifetime="detached",
                get_if_exists=True,
                max_concurrency=8,
                num_cpus=bundle.get("CPU", 0),
                num_gpus=bundle.get("GPU", 0),
                memory=bundle.get("memory"),
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node),
            ).remote(run.name, _path_of(run.name), node, self._site)
            for node, bundle in enumerate(bundles)
        ]

    def _take_over(self, run: _Run) -> None:
        if not _started(run.run_dir):
            self._place(run)
            return
        name = self._name(run.name)
        try:
            run.actors = [ray.get_actor(f"{name}/{node}", namespace=NAMESPACE) for node in range(run.num_nodes)]
        except ValueError:
            run.is_over, run.why = True, "A node of it was lost while nobody was looking."
            run.actors = [actor for node in range(run.num_nodes) if (actor := _actor(f"{name}/{node}")) is not None]

    def _bundle(self, run: _Run, node: int) -> dict[str, float]:
        mine = run.on(node)
        amounts = {
            "CPU": sum(replica.get("cpus", 1.0) for replica in mine),
            "GPU": sum(replica.get("gpus", 0.0) for replica in mine),
            "memory": float(int(sum(replica.get("memory_gb", 0.0) for replica in mine) * 1e9)),
            **self._settings.get("resources", {}),
        }
        # A bundle of nothing is refused by Ray; one that takes next to nothing is placed anywhere.
        return {name: amount for name, amount in amounts.items() if amount > 0} or {"CPU": 0.001}

    def _follow(self, run: _Run) -> None:
        if not run.is_over:
            threading.Thread(target=self._follow_to_the_end, args=(run,), name=run.name, daemon=True).start()

    def _follow_to_the_end(self, run: _Run) -> None:
        has_lost_a_node = False
        try:
            self._start(run)
            self._watch(run)
        except RayError as error:
            run.why, has_lost_a_node = run.why or f"A node of it was lost: {_first_line(error)}", True
        except LostNodeError as error:
            run.why, run.lost, has_lost_a_node = str(error), error.nodes, True
        except ClusterError as error:
            run.why = str(error)
        except Exception as error:  # noqa: BLE001 -- the run must be seen gone, whatever happened here
            logger.exception("run %s", run.name)
            run.why = f"The bridge to Ray failed: {error!r}"
        if run.is_ending:
            return
        run.is_over = True
        if has_lost_a_node:
            # The server may know its end from another node already, and would not ask for this.
            with contextlib.suppress(RayError):
                self._end(run)

    def _start(self, run: _Run) -> None:
        names = [[r for r in run.on(node) if r["role"] in _ROLES_WITH_ADDRESS] for node in range(run.num_nodes)]
        asked = [[f"{r['role']}-{r['index']}" for r in mine] if run.num_nodes > 1 else [] for mine in names]
        found = ray.get([actor.look.remote(mine) for actor, mine in zip(run.actors, asked, strict=True)])
        if not all(one["has_source"] for one in found):
            archive = ray.put(self._archive)
            ray.get([actor.bring.remote(archive) for actor in run.actors], timeout=_CALL_S)
        if run.is_ending:
            return
        places = _places(self._name(run.name), run.num_nodes)
        server = self._server()
        self._check_reachable(server, places)
        addresses = {
            name: f"{place['address']}:{port}"
            for place, one in zip(places, found, strict=True)
            for name, port in one["ports"].items()
        }
        text = json.dumps({**run.launch, "addresses": addresses} if addresses else run.launch)
        if not _started(run.run_dir):
            _note_started(run.run_dir, places)
        ray.get([actor.start.remote(text, server, self._runtimes()) for actor in run.actors], timeout=_CALL_S)
        run.is_started = True

    def _watch(self, run: _Run) -> None:
        """Return when all nodes have ended in order; ClusterError when one did not."""
        ends = {actor.watch.remote(): node for node, actor in enumerate(run.actors)}
        rests = {actor.watch_ranks.remote(): node for node, actor in enumerate(run.actors) if run.has_servers(node)}
        busy = {node for node in range(run.num_nodes) if not run.is_serving(node)}
        left = [*ends, *rests]
        raylets = Raylets(_started(run.run_dir))
        while not ends.keys().isdisjoint(left) and not run.is_ending:
            done, left = ray.wait(left, timeout=1.0)
            if not done:
                raylets.check()
            for call in done:
                end = ray.get(call)
                if call in ends and not end["in_order"]:
                    raise ClusterError(_last_words(end["log"], ends[call], run.num_nodes))
            busy -= {(ends | rests)[call] for call in done}
            if done and not busy:
                for call in ends.keys() & set(left):
                    run.actors[ends[call]].stop.remote()
        if not run.is_ending:
            self._remove(run)

    def _end(self, run: _Run) -> bool:
        """End what it has on the nodes that are left, and give its place back; whether all has ended."""
        ended = True
        if run.is_started or not self._is_waiting(run):
            calls = [actor.end.remote() for node, actor in enumerate(run.actors) if node not in run.lost]
            done, late = ray.wait(calls, num_returns=len(calls), timeout=_END_S) if calls else ([], [])
            ended = not late and all(_value(call, default=True) for call in done)
        self._remove(run)
        return ended

    def _remove(self, run: _Run) -> None:
        for actor in run.actors:
            ray.kill(actor)
        group = _group(self._name(run.name))
        if group is not None:
            remove_placement_group(group)
            give_up = time.monotonic() + _END_S
            while _group(self._name(run.name)) is not None and time.monotonic() < give_up:
                time.sleep(0.02)

    def _is_waiting(self, run: _Run) -> bool:
        group = _group(self._name(run.name))
        return group is not None and placement_group_table(group).get("state") == "PENDING"

    def _shortage(self, run: _Run) -> str:
        need = _sum([self._bundle(run, node) for node in range(run.num_nodes)])
        free, has = ray.available_resources(), ray.cluster_resources()
        places = f" on {run.num_nodes} nodes" if run.num_nodes > 1 else ""
        asks = ", ".join(_amount(name, amount) for name, amount in need.items())
        # Their sum may do while no node has enough left: so what is free is said of all that is asked for.
        left = ", ".join(
            f"{_amount(name, free.get(name, 0.0))} of {_number(name, has.get(name, 0.0))}" for name in need
        )
        return f"waits for {asks}{places}; free on the cluster: {left}"

    def _check_reachable(self, server: dict[str, Any], places: list[dict[str, str]]) -> None:
        here = ray.util.get_node_ip_address()
        away = [
            place["host"] for place in places if place["address"] != here and not place["address"].startswith("127.")
        ]
        if away and any(name in server.get("url", "") for name in ("//127.", "//localhost", "//[::1]")):
            raise ClusterError(
                f"Node {away[0]} cannot reach the server at {server['url']}. Have it listen where nodes can reach it:"
                ' listen = "ADDRESS:PORT" in config.toml (and server_url, if they see it elsewhere), then restart it.'
            )

    def _server(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self._home / "server.json").read_text())
        except (OSError, ValueError):
            return {}
        return {**found, "url": self._settings.get("server_url") or found["url"]}

    def _runtimes(self) -> str:
        path = self._home / "runtimes.json"
        return path.read_text() if path.exists() else ""

    def _name(self, run: str) -> str:
        return f"{self._id}/{run}"


def _source() -> bytes:
    """stoker's own source, the same bytes each time."""
    root = Path(__file__).parents[2]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                entry = tarfile.TarInfo(str(Path("stoker") / path.relative_to(root)))
                entry.size = path.stat().st_size
                with path.open("rb") as file:
                    tar.addfile(entry, file)
    return buffer.getvalue()


def _path_of(run: str) -> tuple[str, int, int]:
    job, trial, attempt = run.rsplit(".", 2)
    return job, int(trial), int(attempt)


def _group(name: str) -> Any:
    """A placement group that is not removed; None if there is none."""
    try:
        group = get_placement_group(name)
    except ValueError:
        return None
    return None if placement_group_table(group).get("state") == "REMOVED" else group


def _actor(name: str) -> Any:
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None


def _places(name: str, num_nodes: int) -> list[dict[str, str]]:
    """The Ray node that each node of a run was given."""
    table = placement_group_table(_group(name))["bundles_to_node_id"]
    nodes = {found["NodeID"]: found for found in ray.nodes()}
    found = [nodes[table[node]] for node in range(num_nodes)]
    return [
        {
            "id": one["NodeID"],
            "host": one["NodeManagerHostname"],
            "address": one["NodeManagerAddress"],
            "port": str(one["NodeManagerPort"]),
        }
        for one in found
    ]


def _started(run_dir: Path) -> list[dict[str, str]]:
    """Where its nodes were started, or were about to be; none when that had not begun."""
    try:
        found: list[dict[str, str]] = json.loads((run_dir / "nodes.json").read_text())
        return found
    except (OSError, ValueError):
        return []


def _note_started(run_dir: Path, places: list[dict[str, str]]) -> None:
    partial = run_dir / ".nodes.json"
    partial.write_text(json.dumps(places))
    partial.replace(run_dir / "nodes.json")


def _value(call: Any, *, default: bool) -> bool:
    """What a call answered; `default` when who should have answered is dead."""
    try:
        return bool(ray.get(call))
    except RayError:
        return default


def _last_words(log: str, node: int, num_nodes: int) -> str:
    who = "Its supervisor" if num_nodes == 1 else f"The supervisor of node {node}"
    return f"The last words of {who[0].lower()}{who[1:]}:\n{log}" if log else f"{who} was killed without a word."


def _first_line(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]


def _number(name: str, amount: float) -> str:
    return f"{amount / 1e9:.3g} GB" if name == "memory" else f"{amount:g}"


def _amount(name: str, amount: float) -> str:
    """`2 CPU`, `8 GB of memory`, `1 a100`: in Ray's own words, which are the owner's for custom resources."""
    return f"{_number(name, amount)} {'of memory' if name == 'memory' else name}"


def _share(resources: Mapping[str, float]) -> dict[str, float]:
    return {
        "cpus": resources.get("CPU", 0.0),
        "memory_gb": round(resources.get("memory", 0.0) / 1e9, 1),
        "gpus": resources.get("GPU", 0.0),
    }


def _custom(resources: Mapping[str, float]) -> dict[str, float]:
    own = ("CPU", "GPU", "memory", "object_store_memory")
    return {name: amount for name, amount in resources.items() if name not in own and not name.startswith("node:")}


def _sum(bundles: list[dict[str, float]]) -> dict[str, float]:
    names = sorted({name for bundle in bundles for name in bundle})
    return {name: sum(bundle.get(name, 0.0) for bundle in bundles) for name in names}
