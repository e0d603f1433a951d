"""`python -m stoker.server`: one server for one home, on loopback, until there is nothing left to do."""

import argparse
import asyncio
import getpass
import ipaddress
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from stoker.client.client import is_alive
from stoker.engines.local import LocalEngine, local_capacity
from stoker.errors import ConflictError, StokerError, UsageError
from stoker.host.home import Home, ServerAddress
from stoker.host.locks import try_lock
from stoker.server.app import Server, create_app
from stoker.server.live.wakeups import Wakeups
from stoker.server.scheduling.pools import Engines, Pools
from stoker.server.scheduling.scheduler import Scheduler
from stoker.server.settings import DATABASE_VARIABLE, Settings, load_settings
from stoker.server.store.store import Store, open_store

logger = logging.getLogger("stoker.server")

_LOG_BYTES = 10 << 20
_LOCK_WAIT_S = 20.0
_LOOK_TICKS = 20  # of uvicorn's 0.1 s


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parse(arguments)
    home = Home(Path(given.home).absolute()) if given.home else Home.find()
    try:
        home.make()
        with _lock(home) as ours:
            if ours:
                return _serve(home, given)
        sys.stderr.write(f"A server for {home.root} is running already.\n")
        return 0
    except (StokerError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code if isinstance(error, StokerError) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m stoker.server", description="Run this home's server.")
    parser.add_argument("--host", help="an address of this machine (default: config.toml's listen, or 127.0.0.1)")
    parser.add_argument("--port", type=int, help="default: config.toml's listen, or any free one")
    parser.add_argument("--idle-exit-s", type=float, help="go away after so long with nothing to do (default: 900)")
    parser.add_argument("--home", help="default: STOKER_HOME")
    parser.add_argument("--database", metavar="URL", help="default: STOKER_DATABASE, config.toml, HOME/stoker.db")
    return parser.parse_args(arguments)


@contextmanager
def _lock(home: Home) -> Iterator[bool]:
    """Held for the server's whole life, so there is one. The kernel lets go of it however the process ends."""
    lock = _take_lock(home)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


def _take_lock(home: Home) -> int | None:
    """None when another server lives. One that is on its way in or out is waited for: it may make room for us."""
    deadline = time.monotonic() + _LOCK_WAIT_S
    while (lock := try_lock(home.server_lock)) is None:
        address = home.server()
        if (address is not None and is_alive(address)) or time.monotonic() > deadline:
            return None
        time.sleep(0.05)
    return lock


def _serve(home: Home, given: argparse.Namespace) -> int:
    settings = load_settings(home.config, capacity=local_capacity)
    # It may hold a password, and what is in our environment is in that of user code.
    os.environ.pop(DATABASE_VARIABLE, None)
    if given.idle_exit_s is not None:
        settings = settings.with_(idle_exit_s=given.idle_exit_s)
    database = given.database or settings.database or home.database
    with (
        closing(_listen(*_where(given, settings.listen))) as listener,
        closing(open_store(database, home=str(home.root))) as store,
    ):
        _log_to(home.server_log)
        # A request must not wait 5 ms, Python's default, whenever the scheduler looks through a thousand jobs.
        sys.setswitchinterval(0.001)
        return _Web(home, settings, store, listener).serve_until_told()


class _Web(uvicorn.Server):
    """uvicorn, telling where it is once it listens, and leaving when asked or when there is nothing left to do."""

    def __init__(self, home: Home, settings: Settings, store: Store, listener: socket.socket) -> None:
        self._home = home
        self._store = store
        self._listener = listener
        self._idle_exit_s = settings.idle_exit_s
        self._exit_code = 0
        self._wakeups = Wakeups()
        self._address = ServerAddress(url=_url(listener), token=home.token(), pid=os.getpid())
        self._presence = _Presence(create_app(self._parts(settings)))
        super().__init__(
            uvicorn.Config(
                self._presence,
                loop="uvloop",
                http="httptools",
                ws="none",
                lifespan="on",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=5,
            )
        )

    def serve_until_told(self) -> int:
        # uvicorn sends itself the signal it stopped for once more; ours must still put things in order after that.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        logger.info("serving %s at %s", self._home.root, self._address.url)
        if sys.stderr.isatty():
            sys.stderr.write(f"Serving {self._home.root} at {self._address.url}; Ctrl-C ends it.\n")
        try:
            self.run(sockets=[self._listener])
        finally:
            self._forget()
            logger.info("ended; runs go on")
        return self._exit_code

    def leave(self) -> None:
        self._forget()  # who looks for a server from now on starts the next one, which waits until this one is gone
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._home.write_server(self._address)

    async def on_tick(self, counter: int) -> bool:
        if counter % _LOOK_TICKS == 0 and not self.should_exit:
            await asyncio.to_thread(self._look)
        return await super().on_tick(counter)

    def _look(self) -> None:
        """Whether to go on."""
        try:
            if not self._store.is_ours():
                logger.error("another server has taken the database; this one ends, and its runs are for the other")
                self._exit_code = ConflictError.exit_code
                self.leave()
            elif self._presence.idle_s() > self._idle_exit_s and not self._store.has_work():
                logger.info("nothing to do for %g s", self._idle_exit_s)
                self.leave()
        except StokerError as error:  # the database does not answer at the moment
            logger.warning("%s", error)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._forget()
        self._wakeups.close()  # followers and supervisors that wait are answered, or they would hold the door open
        await super().shutdown(sockets)

    def _forget(self) -> None:
        self._home.server_file.unlink(missing_ok=True)

    def _parts(self, settings: Settings) -> Server:
        engines = Engines(self._home, {"local": LocalEngine(self._home)})
        config = self._home.config
        pools = Pools(
            settings, config=config, engines=engines, load=lambda: load_settings(config, capacity=local_capacity)
        )
        scheduler = Scheduler(self._store, engines=engines, pools=pools, home=self._home, wakeups=self._wakeups)
        pools.start(scheduler.wake, seen_anew=self._wakeups.pools_changed)
        return Server(
            store=self._store,
            scheduler=scheduler,
            clusters=pools,
            wakeups=self._wakeups,
            settings=settings,
            home=self._home,
            token=self._address.token,
            owner=_user(),
            is_local=ipaddress.ip_address(self._listener.getsockname()[0]).is_loopback,
            shutdown=self.leave,
        )


class _Presence:
    """How long nobody has been here: no request being answered, none since."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._present = 0
        self._last = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._present += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._present -= 1
            self._last = time.monotonic()

    def idle_s(self) -> float:
        return 0.0 if self._present else time.monotonic() - self._last


def _where(given: argparse.Namespace, listen: str | None) -> tuple[str, int]:
    """Host and port: each by its flag, else config.toml's, else a free port on loopback."""
    host, _, port = (listen or "127.0.0.1:0").rpartition(":")
    return given.host or host.strip("[]"), int(port) if given.port is None else given.port


def _listen(host: str, port: int) -> socket.socket:
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise UsageError(f"--host {host}: give an IP address of this machine, such as 127.0.0.1, not a name.") from None
    listener = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((str(address), port))
    except OSError as error:
        listener.close()
        raise UsageError(
            f"Port {port} of {host} cannot be had: {error.strerror}. Choose another with --port."
        ) from error
    return listener


def _url(listener: socket.socket) -> str:
    """As this machine reaches it."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # all addresses: loopback is one of them
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _log_to(path: Path) -> None:
    """Append to the log; one that has grown large becomes the old one first."""
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        os.replace(path, path.with_name(path.name + ".1"))
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return str(os.getuid())


if __name__ == "__main__":
    sys.exit(main())
