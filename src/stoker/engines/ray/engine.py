"""Runs on a Ray cluster, by way of the pool's bridge: nothing of Ray is imported here."""

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.engines.base import ClusterNode, Liveness
from stoker.engines.ray.notes import is_waiting, note_cancelled, read_started
from stoker.errors import StokerError
from stoker.host.home import Home
from stoker.host.spawn import exit_code, spawn_detached
from stoker.run_dir import RunDir
from stoker.schema.job import Share
from stoker.schema.launch import Launch
from stoker.schema.pool import RayPool
from stoker.schema.record import Held

_BEGIN_S = 90.0  # for a bridge to start: Ray takes seconds to import, more on a busy machine
_ANSWER_S = 120.0
_LOOK_S = 0.05
_AWAY = {True: "waiting", False: "alive"}  # by whether it waits


class _AwayError(StokerError):
    """The cluster, or the bridge to it, does not answer: what it was asked for may be asked again."""


@dataclass(frozen=True, slots=True)
class _Handle:
    """A run, and the server's own directory of it; or the shipping of its last words."""

    run: str
    run_dir: RunDir
    is_drain: bool = False

    @classmethod
    def parse(cls, text: str) -> "_Handle | None":
        """None when it is none of ours."""
        try:
            found = json.loads(text)
            return cls(str(found["run"]), RunDir(found["run_dir"]), bool(found.get("drain")))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def __str__(self) -> str:
        return json.dumps({**self.arguments, **({"drain": True} if self.is_drain else {})})

    @property
    def arguments(self) -> dict[str, str]:
        """By which the bridge knows the run."""
        return {"run": self.run, "run_dir": str(self.run_dir)}


class RayEngine:
    """See `Engine` for the contract. Agents keep the supervisors: they outlive bridge and server."""

    def __init__(self, home: Home, pool: str, settings: RayPool) -> None:
        self._home, self._pool = home, pool
        self._bridge = Bridge(home, pool, settings)

    def submit(self, launch: Launch) -> str:
        handle = self._handle(launch)
        try:
            launch.write(handle.run_dir)
        except OSError as error:
            why = error.strerror or error
            raise StokerError(f"Cannot start run {launch.run} in {handle.run_dir}: {why}.") from error
        with contextlib.suppress(_AwayError):  # it waits for the cluster: the next bridge finds it when it is polled
            self._bridge.ask("submit", **handle.arguments)
        return str(handle)

    def find(self, launch: Launch) -> str | None:
        handle = self._handle(launch)
        # One that has ended has left its directory and nothing on the cluster.
        if is_waiting(handle.run_dir) or read_started(handle.run_dir):
            return str(handle)
        return str(handle) if self._bridge.ask("find", **handle.arguments) else None

    def poll(self, handles: Sequence[str]) -> Mapping[str, Liveness]:
        parsed = {text: _Handle.parse(text) for text in handles}
        runs = {found.run: str(found.run_dir) for found in parsed.values() if found is not None and not found.is_drain}
        try:
            states = self._bridge.ask("poll", runs=runs) if runs else {}
        except _AwayError:
            # It has not lost its runs by that: they are as they were.
            states = {run: _AWAY[is_waiting(RunDir(run_dir))] for run, run_dir in runs.items()}
        return {text: self._liveness(found, states) for text, found in parsed.items()}

    def cancel(self, handle: str) -> None:
        found = _Handle.parse(handle)
        if found is None:
            return
        is_noted = note_cancelled(found.run_dir)
        try:
            self._bridge.ask("cancel", **found.arguments)
        except _AwayError:
            # Nothing of it has begun: it need not wait for a cluster that does not answer, and will not begin there.
            if read_started(found.run_dir) or not is_noted:
                raise

    def diagnose(self, handle: str) -> str:
        found = _Handle.parse(handle)
        if found is None:
            return ""
        try:
            return str(self._bridge.ask("diagnose", **found.arguments))
        except _AwayError as error:
            return f"waits: {error}" if is_waiting(found.run_dir) else ""

    def drain(self, handle: str) -> str | None:
        found = _Handle.parse(handle)
        if found is None or not read_started(found.run_dir):
            return None  # nothing of it has begun
        if not self._bridge.ask("drain", **found.arguments):
            return None
        return str(_Handle(found.run, found.run_dir, is_drain=True))

    def nodes(self) -> tuple[ClusterNode, ...]:
        """The living nodes of the cluster; StokerError in one line when it cannot be asked."""
        return tuple(
            ClusterNode(
                id=found["id"],
                host=found["host"],
                address=found["address"],
                has=Share.model_validate(found["has"]),
                free=Share.model_validate(found["free"]),
                resources=found["resources"],
            )
            for found in self._bridge.ask("nodes")
        )

    def places(self, handle: str) -> tuple[Held, ...]:
        """What a run holds of which nodes; none before it is placed. The cluster is not asked: the bridge noted it."""
        found = _Handle.parse(handle)
        if found is None or found.is_drain:
            return ()
        placed = read_started(found.run_dir)
        try:
            launch = Launch.read(found.run_dir)
        except StokerError:
            return ()
        return tuple(
            Held(node=place["id"], share=Share.total(launch.on_node(number))) for number, place in enumerate(placed)
        )

    def _liveness(self, handle: _Handle | None, states: Mapping[str, str]) -> Liveness:
        if handle is None:
            return Liveness.GONE
        if handle.is_drain:
            return Liveness(self._bridge.ask("poll_drain", run=handle.run))
        return Liveness(states[handle.run])

    def _handle(self, launch: Launch) -> _Handle:
        return _Handle(launch.run, self._home.run_dir(launch.job, launch.trial, launch.attempt))


class Bridge:
    """The other process, started when there is none. Every call may be sent again."""

    def __init__(self, home: Home, pool: str, settings: RayPool) -> None:
        self._home, self._pool, self._settings = home, pool, settings
        self._folder = home.ray

    def ask(self, call: str, **arguments: Any) -> Any:
        """Its answer; StokerError with what it said instead, or when it cannot be had."""
        line = json.dumps({"call": call, **arguments}).encode() + b"\n"
        for is_last in (False, True):
            try:
                with self._connect() as connection, connection.makefile("rwb") as file:
                    file.write(line)
                    file.flush()
                    reply = file.readline()
                if reply:
                    break
            except OSError as error:
                if is_last:
                    raise _AwayError(f"Pool {self._pool!r}: its bridge to Ray does not answer: {error}.") from error
        else:
            raise _AwayError(f"Pool {self._pool!r}: its bridge to Ray broke off. See {self._log}.")
        found = json.loads(reply)
        if "error" in found:
            kind = _AwayError if found.get("is_away") else StokerError
            raise kind(f"Pool {self._pool!r}: {found['error']}")
        return found["answer"]

    @property
    def _log(self) -> Path:
        return self._folder / f"{self._name}.log"

    @property
    def _name(self) -> str:
        # Another address, or another Python, is another bridge.
        return f"{self._pool}-{self._settings.key}"

    def _connect(self) -> socket.socket:
        found = self._try()
        if found is not None:
            return found
        self._folder.mkdir(mode=0o700, exist_ok=True)
        child = self._start()
        give_up = time.monotonic() + _BEGIN_S
        while (found := self._try()) is None:
            code = exit_code(child)
            if code:
                raise _AwayError(f"Pool {self._pool!r}: {self._python} cannot start the bridge to Ray: {self._said()}")
            if code == 0:
                child = self._start()  # it found another at work, which may have been on its way out
            if time.monotonic() > give_up:
                raise _AwayError(f"Pool {self._pool!r}: its bridge to Ray did not start. See {self._log}.")
            time.sleep(_LOOK_S)
        return found

    def _try(self) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_ANSWER_S)
        try:
            folder = os.open(self._folder, os.O_PATH | os.O_DIRECTORY)
            try:  # by the folder's descriptor: a Unix socket's path may not be long
                connection.connect(f"/proc/self/fd/{folder}/{self._name}.sock")
            finally:
                os.close(folder)
        except OSError:
            connection.close()
            return None
        return connection

    def _start(self) -> int:
        settings = self._settings.model_dump_json()
        words = [self._python, "-P", "-m", "stoker.engines.ray.bridge", str(self._home.root), self._name, settings]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        try:
            return spawn_detached(words, environment=environment, log=self._log)
        except OSError as error:
            raise _AwayError(f"Pool {self._pool!r}: cannot start {self._python}: {error.strerror}.") from error

    @property
    def _python(self) -> str:
        return self._settings.python or sys.executable

    def _said(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing."
