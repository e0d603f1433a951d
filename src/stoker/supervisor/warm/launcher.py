"""Start a replica by asking a zygote for a fork, where that is safe and the program is plainly Python.

HOME/zygotes/ has a zygote for each host, interpreter, environment and list of imports, by their KEY:

    KEY.sock               where it listens
    KEY.lock               held by it for its whole life, and by who starts it before that, so there is one
    KEY.cold               why there is none: it could not be forked safely
    KEY.stdout, .stderr    what its imports said, which is repeated in each child
    PACKAGE-….imports      what a package's program imports, found out once
"""

import contextlib
import hashlib
import json
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stoker.atomic import replace_file
from stoker.host.locks import try_lock
from stoker.host.processes import ProcessId
from stoker.supervisor.warm import preload, zygote

_IDLE_S = 15.0  # trials of a search follow each other much faster
_WAIT_S = 300.0  # for its imports
_ANSWER_S = 30.0
_LOOK_S = 0.01
_COLD_S = 600.0  # how long what was found unsafe is not tried again
_RETRIES = 3
_PYTHONS = ("python", "python3")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=:,@%+- ")
SHOWN = ("STOKER_RUN_DIR", "STOKER_REPLICA")


class Cold(Exception):
    """It has to be a fresh interpreter; the text says why."""


class Program(NamedTuple):
    """A Python program on a command line: a module or a script, and its arguments."""

    kind: str  # "module" or "script"
    target: str
    arguments: list[str]


class Request(NamedTuple):
    """What a child of a zygote is to be: the message as it is sent."""

    kind: str
    target: str
    arguments: list[str]
    words: list[str]
    environment: dict[str, str]
    shown: list[str]  # of the environment, what others must see in the process table
    cwd: str
    roots: list[str]  # in front of the import path
    own: list[str]  # modules of the program itself
    stdout: str
    stderr: str


class Forked:
    """A child of a zygote. Has Popen's `poll`."""

    def __init__(self, connection: socket.socket, identity: ProcessId) -> None:
        self._connection = connection
        self.identity = identity
        self.is_lost = False  # its zygote has ended, and it with it
        connection.setblocking(False)

    def fileno(self) -> int:
        """Readable when it has ended."""
        return self._connection.fileno()

    def poll(self) -> int | None:
        try:
            message = self._connection.recv(zygote.MAX_MESSAGE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            message = b""
        if message:
            return int(json.loads(message)["exit"])
        self.is_lost = True
        return -9

    def close(self) -> None:
        self._connection.close()


def program(words: Sequence[str], python: Path) -> Program:
    """What these words run. Cold if they are more than a Python with a module or a script."""
    words = list(words)
    if len(words) == 3 and words[:2] == ["sh", "-c"] and _PLAIN.issuperset(words[2]):
        words = shlex.split(words[2])
        if words and words[0] in _PYTHONS:
            words[0] = str(python)
    if not words or words[0] != str(python):
        raise Cold("its command is more than a Python program")
    rest = words[1:]
    if rest[:1] == ["-u"]:  # as PYTHONUNBUFFERED, which is set
        del rest[0]
    if len(rest) >= 2 and rest[0] == "-m":
        return Program("module", rest[1], rest[2:])
    if rest and rest[0].endswith(".py") and not rest[0].startswith("-"):
        return Program("script", rest[0], rest[1:])
    raise Cold("its command is more than a Python program")


class Zygotes:
    """The zygotes of a home, for one run."""

    def __init__(self, folder: Path, *, package: str | None, go_on: Callable[[], bool]) -> None:
        """`go_on` is asked while waiting; False gives up, and `start` returns None."""
        self._folder, self._package, self._go_on = folder, package, go_on

    def start(
        self,
        words: Sequence[str],
        *,
        python: Path,
        environment: Mapping[str, str],
        volatile: frozenset[str],
        roots: Sequence[str],
        cwd: Path,
        output: Callable[[str], Path],
    ) -> Forked | None:
        """A child that runs these words; Cold if it cannot be one. `volatile` names variables that differ by run."""
        found = program(words, python)
        first = cwd if found.kind == "module" else (cwd / found.target).resolve().parent
        folders = [first, *map(Path, roots)]
        self._folder.mkdir(mode=0o700, exist_ok=True)
        own, imports = self._look(found, folders, cwd)
        order = _ZygoteRequest(self._folder, python, _lasting(environment, volatile, roots), imports)
        request = Request(
            **found._asdict(),
            words=list(words),
            environment=dict(environment),
            shown=list(SHOWN),
            cwd=str(cwd),
            roots=list(roots),
            own=own,
            stdout=str(output("stdout")),
            stderr=str(output("stderr")),
        )
        for _ in range(_RETRIES):
            connection = self._connect(order)
            if connection is None:
                return None
            with contextlib.suppress(EOFError):  # it went away just now
                return _ask(connection, request)
        raise Cold("its zygotes do not live")

    def _look(self, found: Program, folders: list[Path], cwd: Path) -> tuple[list[str], list[list[Any]]]:
        """The program's own modules, and what it imports; found out once for a package."""
        known = None
        if self._package is not None:
            where = [os.path.relpath(folder, cwd) for folder in folders]
            name = hashlib.sha256(json.dumps([found.kind, found.target, where]).encode()).hexdigest()[:16]
            known = self._folder / f"{self._package[:32]}-{name}.imports"
            with contextlib.suppress(OSError, ValueError):
                looked = json.loads(known.read_bytes())
                return looked["own"], looked["imports"]
        own = preload.own_modules(folders)
        if {"sitecustomize", "usercustomize"}.intersection(own):
            raise Cold("it has a sitecustomize of its own")
        files = preload.module_files(found.target, folders) if found.kind == "module" else [cwd / found.target]
        try:
            imports = [[wanted.name, list(wanted.parts)] for wanted in preload.imports_of(files, folders)]
        except (SyntaxError, OSError, ValueError, RecursionError) as error:
            raise Cold(f"what it imports cannot be found out: {error}") from error
        if known is not None:
            replace_file(known, json.dumps({"own": own, "imports": imports}))
        return own, imports

    def _connect(self, order: "_ZygoteRequest") -> socket.socket | None:
        give_up = time.monotonic() + _WAIT_S
        has_started = False
        while True:
            connection = order.connect()
            if connection is not None:
                return connection
            if (why := order.why_cold()) is not None:
                raise Cold(why)
            if (lock := order.lock()) is not None:
                if has_started and not order.is_there():
                    os.close(lock)
                    order.write_cold("its zygote ended while it imported")
                    continue
                order.start(lock)
                has_started = True
            if time.monotonic() > give_up:
                raise Cold(f"its imports took more than {_WAIT_S:g} s")
            if not self._go_on():
                return None
            time.sleep(_LOOK_S)


class _ZygoteRequest:
    """A zygote that is wanted."""

    def __init__(self, folder: Path, python: Path, environment: dict[str, str], imports: list[list[Any]]) -> None:
        self._folder, self._python, self._environment, self._imports = folder, python, environment, imports
        # A cluster's nodes may share their home, but no host can fork a process for another.
        where = [socket.gethostname(), str(python)]
        what = json.dumps([where, environment, imports, os.stat(zygote.__file__).st_mtime_ns], sort_keys=True)
        self._key = hashlib.sha256(what.encode()).hexdigest()[:32]

    def connect(self) -> socket.socket | None:
        if not self.is_there():
            return None
        folder = os.open(self._folder, os.O_RDONLY)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{self._key}.sock")  # however long the folder's name is
        except OSError:
            connection.close()
            return None
        finally:
            os.close(folder)
        return connection

    def is_there(self) -> bool:
        return self._file("sock").exists()

    def why_cold(self) -> str | None:
        try:
            file = self._file("cold")
            return file.read_text() if time.time() - file.stat().st_mtime < _COLD_S else None
        except OSError:
            return None

    def write_cold(self, why: str) -> None:
        replace_file(self._file("cold"), why)

    def lock(self) -> int | None:
        """None while there is a zygote, or one is being started."""
        return try_lock(self._file("lock"))

    def start(self, lock: int) -> None:
        """Leave the lock to a zygote, which begins to import."""
        for kind in ("sock", "cold"):
            self._file(kind).unlink(missing_ok=True)
        order = {"folder": str(self._folder), "key": self._key, "lock": lock, "imports": self._imports}
        room = " " * zygote.ROOM_BYTES
        with open(self._file("stdout"), "wb") as out, open(self._file("stderr"), "wb") as err:
            try:
                subprocess.run(
                    [str(self._python), zygote.__file__, json.dumps({**order, "idle_s": _IDLE_S}), room],
                    env={**self._environment, zygote.ROOM: room},
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    pass_fds=[lock],
                    start_new_session=True,
                    check=False,
                )
            except OSError as error:
                raise Cold(f"its zygote cannot be started: {error}") from error
            finally:
                os.close(lock)

    def _file(self, kind: str) -> Path:
        return self._folder / f"{self._key}.{kind}"


def _ask(connection: socket.socket, request: Request) -> Forked:
    """EOFError when the zygote went away without having forked."""
    connection.settimeout(_ANSWER_S)
    try:
        connection.send(json.dumps(request._asdict()).encode())
        message = connection.recv(zygote.MAX_MESSAGE_BYTES)
    except (BrokenPipeError, ConnectionResetError):
        message = b""
    except OSError as error:  # too large, or no answer
        connection.close()
        raise Cold(f"its zygote does not answer: {error}") from error
    if not message:
        connection.close()
        raise EOFError
    answer = json.loads(message)
    if "pid" not in answer:
        connection.close()
        raise Cold(answer.get("refused", "its zygote could not fork"))
    return Forked(connection, ProcessId(answer["pid"], answer["start"]))


def _lasting(environment: Mapping[str, str], volatile: frozenset[str], roots: Sequence[str]) -> dict[str, str]:
    """The environment without what differs by run: the zygote's own."""
    found = {name: value for name, value in environment.items() if name not in volatile}
    path = found.pop("PYTHONPATH", "").removeprefix(os.pathsep.join(roots)).removeprefix(os.pathsep)
    return {**found, "PYTHONPATH": path} if path else found
