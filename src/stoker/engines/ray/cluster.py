"""Runs on a Ray cluster, as the bridge tends them: a placement group each, and an agent on each node that has runs.

Everything is known by name, so that another bridge finds it: `ID/RUN` is a run's placement group, `ID/agent/SITE/NODE`
a node's agent. What cannot be asked of Ray again (the launch, which nodes had been started, by which agents) is in the
server's run directory.
"""

import contextlib
import hashlib
import io
import json
import logging
import tarfile
import threading
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from stoker.engines.ray import agent as agent_module
from stoker.engines.ray import amounts
from stoker.engines.ray.agent import WRITTEN, Agent, Site
from stoker.engines.ray.autoscaler import Autoscaler
from stoker.engines.ray.notes import is_cancelled, is_waiting, note_started, read_started
from stoker.engines.ray.places import find_group, places_of
from stoker.engines.ray.raylets import LostNodeError, Raylets
from stoker.host.home import Home
from stoker.run_dir import RunDir

logger = logging.getLogger(__name__)

NAMESPACE = "stoker"
_CALL_S = 60.0
_END_S = 20.0
_AGENT_S = 180.0  # for a new agent to answer: it imports Ray, on a machine that may be busy
_MOST_KNOWN = 1000  # of runs that are over: why they ended may still be asked for
_AGENT_IDLE_S = 120.0  # how long an agent waits for the next run
_ROLES_WITH_ADDRESS = ("chief", "ps", "worker")


class ClusterError(Exception):
    """In one line, for a person."""


@dataclass
class _Run:
    """A run as this bridge knows it."""

    name: str
    run_dir: RunDir  # the server's
    launch: dict[str, Any]
    agents: list[Any] = field(default_factory=list)  # of its nodes, once it has its place; None is one that is lost
    is_started: bool = False
    is_over: bool = False  # all its nodes have ended, or one was lost
    is_ending: bool = False
    why: str = ""  # of what is known of a run that is gone
    lock: threading.Lock = field(default_factory=threading.Lock)  # between giving it agents and ending it
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
        archive = _source()
        self._archive = ray.put(archive)
        self._site = Site(
            home=settings.get("home") or f"~/.cache/stoker/nodes/{self._id}",
            python=settings.get("node_python") or "",
            source=hashlib.sha256(archive).hexdigest()[:16],
        )
        self._runs: dict[str, _Run] = {}
        self._drains: dict[str, list[Any]] = {}
        self._lock = threading.Lock()
        self._autoscaler = Autoscaler()
        ray.cloudpickle.register_pickle_by_value(agent_module)
        self._agent_class = ray.remote(Agent)
        # Not ended after one call, as Ray does with what has seen a GPU: the next would take a second to start.
        self._visible = ray.remote(max_calls=0)(agent_module.visible_gpus)

    # --- the calls

    def submit(self, run: str, run_dir: str) -> None:
        with self._lock:
            if run in self._runs:
                return
            for known in [name for name, each in self._runs.items() if each.is_over][:-_MOST_KNOWN]:
                del self._runs[known]
            found = self._runs[run] = _Run(run, RunDir(run_dir), RunDir(run_dir).read_launch())
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
            if find_group(self._name(run)) is None or not RunDir(run_dir).launch.exists():
                return False
            found = self._runs[run] = _Run(run, RunDir(run_dir), RunDir(run_dir).read_launch())
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
                run_dir = Home(self._home).run_dir(job, trial, attempt)
                if is_cancelled(run_dir):  # while the cluster did not answer
                    threading.Thread(target=self.cancel, args=(run, str(run_dir)), name=run, daemon=True).start()
                else:
                    self.find(run, str(run_dir))

    def poll(self, runs: Mapping[str, str]) -> dict[str, str]:
        """By run's name, of those with these directories: alive, waiting or gone."""
        states = {}
        for run, run_dir in runs.items():
            if not self.find(run, run_dir) and is_waiting(RunDir(run_dir)):
                self.submit(run, run_dir)  # the cluster did not answer when it was submitted, or was another one
            known = self._runs.get(run)
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
        with known.lock:
            known.is_ending = True
        ended = self._end(known)
        known.is_over = True
        if not ended:
            raise ClusterError(f"Some processes of run {run} cannot be ended: they wait in the kernel.")

    def drain(self, run: str, run_dir: str) -> bool:
        """Have each node that still can send what is left in its directory; whether there is anything to wait for."""
        alive = [found["NodeID"] for found in ray.nodes() if found["Alive"]]
        calls = []
        for number, where in enumerate(read_started(RunDir(run_dir)) if alive else ()):
            # Where nodes share their file system, another can do it for one that was lost.
            agent = self._agent(where["id"] if where["id"] in alive else alive[0])
            calls.append(agent.do.remote(run, number, "drain", self._server()))
        if calls:
            self._drains[run] = calls
        return bool(calls)

    def poll_drain(self, run: str) -> str:
        calls = self._drains.get(run)
        if calls is None:
            return "gone"
        _, late = ray.wait(calls, num_returns=len(calls), timeout=0)
        if late:
            return "alive"
        del self._drains[run]
        return "gone"

    def nodes(self) -> list[dict[str, Any]]:
        """What each living node has, and what of it is free."""
        free = ray._private.state.available_resources_per_node()
        return [
            {
                "id": found["NodeID"],
                "host": found["NodeManagerHostname"],
                "address": found["NodeManagerAddress"],
                "has": amounts.share(found["Resources"]),
                "free": amounts.share(free.get(found["NodeID"], {})),
                "resources": amounts.custom(found["Resources"]),
            }
            for found in ray.nodes()
            if found["Alive"]
        ]

    def tell_server(self) -> None:
        """A new server has another address: supervisors look for it in their node's home."""
        runs = [run for run in list(self._runs.values()) if run.is_started and not run.is_over]
        for agent in {agent._actor_id: agent for run in runs for agent in run.agents}.values():
            agent.tell_server.remote(self._server())

    # --- one run

    def _place(self, run: _Run) -> None:
        strategy = "SPREAD" if self._settings.get("placement") == "spread" else "PACK"
        name = self._name(run.name)
        if find_group(name) is None:
            placement_group(self._bundles(run), strategy=strategy, name=name, lifetime="detached")

    def _take_over(self, run: _Run) -> None:
        if not read_started(run.run_dir):
            self._place(run)
            return
        run.agents = [_actor(place.get("agent", "")) for place in read_started(run.run_dir)]
        if None in run.agents:
            run.is_over, run.why = True, "A node of it was lost while nobody was looking."

    def _bundles(self, run: _Run) -> list[dict[str, float]]:
        resources = self._settings.get("resources", {})
        return [amounts.bundle(run.on(node), resources) for node in range(run.num_nodes)]

    def _agent(self, node: str) -> Any:
        """The agent of this node of the cluster; a new one, if it has none."""
        return self._agent_class.options(
            name=self._agent_name(node),
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_concurrency=agent_module.MOST_CALLS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote(self._site, self._archive, idle_s=_AGENT_IDLE_S)

    def _agent_name(self, node: str) -> str:
        site = hashlib.sha256(repr(self._site).encode()).hexdigest()[:8]
        return f"{self._id}/agent/{site}/{node}"

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
        name = self._name(run.name)
        while (group := find_group(name)) is not None and not group.wait(1):
            if run.is_ending:
                return
        if group is None:
            raise ClusterError("Its placement group was removed, not by stoker.")
        places = places_of(name, run.num_nodes)
        server = self._server()
        self._check_reachable(server, places)
        ports = self._look(run, places)
        if not ports:
            return
        addresses = {
            name: f"{place['address']}:{port}"
            for place, one in zip(places, ports, strict=True)
            for name, port in one.items()
        }
        text = json.dumps({**run.launch, "addresses": addresses, "artifacts": self._settings.get("artifacts")})
        devices = self._devices(run, group)
        if not read_started(run.run_dir):
            note_started(run.run_dir, [{**place, "agent": self._agent_name(place["id"])} for place in places])
        arguments = ("start", text, server, self._files())
        calls = [
            agent.do.remote(run.name, node, *arguments, own)
            for node, (agent, own) in enumerate(zip(run.agents, devices, strict=True))
        ]
        ray.get(calls, timeout=_CALL_S)
        run.is_started = True

    def _look(self, run: _Run, places: list[dict[str, str]]) -> list[dict[str, int]]:
        """The ports of its replicas, by its nodes; its agents know of it from now on. Nothing if it is to end."""
        asked: list[list[str]] = [[] for _ in places]
        if run.num_nodes > 1:
            with_address = [
                [r for r in run.on(node) if r["role"] in _ROLES_WITH_ADDRESS] for node in range(len(places))
            ]
            asked = [[f"{r['role']}-{r['index']}" for r in mine] for mine in with_address]
        for is_last in (False, True):
            with run.lock:
                if run.is_ending:
                    return []
                # One that another bridge had started has its agents: they know it.
                run.agents = run.agents or [self._agent(place["id"]) for place in places]
            calls = [agent.do.remote(run.name, node, "look", asked[node]) for node, agent in enumerate(run.agents)]
            try:
                return list(ray.get(calls, timeout=_AGENT_S))
            except RayActorError:
                if is_last or read_started(run.run_dir):
                    raise
                run.agents = []  # an agent had just found that it has nothing to do, and left
        raise AssertionError("the last time returns or raises")

    def _devices(self, run: _Run, group: Any) -> list[dict[str, str]]:
        """The GPUs that Ray has given to its bundles, by its nodes, as variables; they are theirs until the group goes.

        Asked of a task in the bundle, because Ray tells nobody else.
        """
        found = [{"CUDA_VISIBLE_DEVICES": ""} for _ in range(run.num_nodes)]
        calls = {}
        for node, bundle in enumerate(self._bundles(run)):
            if gpus := bundle.get("GPU"):
                where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node)
                calls[node] = self._visible.options(num_cpus=0, num_gpus=gpus, scheduling_strategy=where).remote()
        for node, call in calls.items():
            found[node] = ray.get(call, timeout=_CALL_S)
        return found

    def _watch(self, run: _Run) -> None:
        """Return when all nodes have ended in order; ClusterError when one did not."""
        ends = {agent.do.remote(run.name, node, "watch"): node for node, agent in enumerate(run.agents)}
        rests = {
            agent.do.remote(run.name, node, "watch_ranks"): node
            for node, agent in enumerate(run.agents)
            if run.has_servers(node)
        }
        busy = {node for node in range(run.num_nodes) if not run.is_serving(node)}
        left = [*ends, *rests]
        raylets = Raylets(read_started(run.run_dir))
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
                    run.agents[ends[call]].do.remote(run.name, ends[call], "stop")
        if not run.is_ending:
            self._remove(run)

    def _end(self, run: _Run) -> bool:
        """End what it has on the nodes that are left, and give its place back; whether all has ended."""
        ended = self._end_by(run, {node: agent for node, agent in enumerate(run.agents) if node not in run.lost})
        alive = {found["NodeID"] for found in ray.nodes() if found["Alive"]}
        places = read_started(run.run_dir)
        # Where the agent was killed, the supervisor ends all of it by itself, if it lives: another agent makes sure.
        dead = [node for node, found in ended.items() if found is None and places and places[node]["id"] in alive]
        ended |= self._end_by(run, {node: self._agent(places[node]["id"]) for node in dead})
        self._remove(run)
        return all(found is not False for found in ended.values())

    def _end_by(self, run: _Run, agents: Mapping[int, Any]) -> dict[int, bool | None]:
        """By node whether all has ended there; None where the agent is dead."""
        living = {node: agent for node, agent in agents.items() if agent is not None}
        calls = {node: agent.do.remote(run.name, node, "end") for node, agent in living.items()}
        if calls:
            ray.wait(list(calls.values()), num_returns=len(calls), timeout=_END_S)
        return {node: _value(calls[node]) if node in calls else None for node in agents}

    def _remove(self, run: _Run) -> None:
        group = find_group(self._name(run.name))
        if group is not None:
            remove_placement_group(group)
            give_up = time.monotonic() + _END_S
            while find_group(self._name(run.name)) is not None and time.monotonic() < give_up:
                time.sleep(0.02)

    def _is_waiting(self, run: _Run) -> bool:
        group = find_group(self._name(run.name))
        return group is not None and placement_group_table(group).get("state") == "PENDING"

    def _shortage(self, run: _Run) -> str:
        lacks = amounts.shortage(self._bundles(run), free=ray.available_resources(), has=ray.cluster_resources())
        group = find_group(self._name(run.name))
        return lacks + (self._autoscaler.word(group.id.hex()) if group is not None else "")

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

    def _files(self) -> dict[str, str]:
        """What supervisors look for in their home: runtimes, and which bucket is where."""
        path = self._home / "runtimes.json"
        runtimes = path.read_text() if path.exists() else ""
        return {"runtimes.json": runtimes, "config.toml": storage_text(self._home / "config.toml")}

    def _name(self, run: str) -> str:
        return f"{self._id}/{run}"


def storage_text(config: Path) -> str:
    """The [storage] table of this file as TOML, for the nodes; empty if it has none."""
    try:
        table = tomllib.loads(config.read_text()).get("storage")
    except (OSError, ValueError):
        return ""  # the server itself has told of it
    return f"{WRITTEN}storage = {_toml(table)}\n" if table else ""


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml(each)}" for name, each in value.items()) + "}"
    return json.dumps(value)  # JSON's strings, numbers and truth values are TOML's too


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


def _actor(name: str) -> Any:
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None


def _value(call: Any) -> bool | None:
    """What a call answered; None when who should have answered is dead, False when it has not yet."""
    try:
        return bool(ray.get(call, timeout=0))
    except GetTimeoutError:
        return False
    except RayError:
        return None


def _last_words(log: str, node: int, num_nodes: int) -> str:
    who = "Its supervisor" if num_nodes == 1 else f"The supervisor of node {node}"
    return f"The last words of {who[0].lower()}{who[1:]}:\n{log}" if log else f"{who} was killed without a word."


def _first_line(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]
