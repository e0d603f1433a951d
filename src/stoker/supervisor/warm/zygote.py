"""A Python that has imported what trials import, and forks a clean child for each replica that a supervisor asks for.

Run as a script by the user's interpreter, so standard library only and valid on Python 3.7. It listens on a Unix
socket, one connection a replica, one message a packet:

    supervisor   the fields of `Request` in warm.py
    child        {"pid", "start"}       before any of the user's code
    zygote       {"exit"}               as subprocess gives it: negative for a signal; or {"refused"} instead of all

A connection that ends before its child does means that its supervisor is gone: the child is killed. A zygote that ends
takes its children with it. Whether it can be forked safely it finds out by itself; if not, it says why in KEY.cold.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import stat
import sys
import types
import weakref
from typing import Any

ROOM = "STOKER_ROOM"  # a variable and a word full of blanks, to be overwritten: see `Title`
ROOM_BYTES = 4096
MAX_MESSAGE_BYTES = 1 << 20
_MAX_SAID_BYTES = 1 << 18
_PR_SET_PDEATHSIG = 1
# They survive a fork by handlers of their own.
_FORK_SAFE_THREADS = ("jemalloc_bg_thd",)
_TORCH_FIXED_SEED = 67280421310721  # what every process began with before torch drew one
_COLD = 3  # exit code: it has said why


class Unsafe(Exception):
    """Children of this process would not be what a fresh interpreter is."""


class Title:
    """What the kernel shows of this process: its words and its first variables, which lie in its own memory.

    A forked child has those of its parent. They are how the processes of a run are found when nothing else is left of
    it, so they are overwritten; `os.environ` would not reach them.
    """

    def __init__(self) -> None:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        self.start = int(fields[19])
        begin, end, first_variable, last_variable = [int(field) for field in fields[45:49]]
        if not begin or end - begin < ROOM_BYTES:
            raise Unsafe("there is no room for another command line")
        self._words = (begin, end - begin)
        self._variables: tuple[int, int] | None = None
        room = (ROOM + "=").encode()
        at = ctypes.string_at(first_variable, last_variable - first_variable).find(room)
        if at >= 0:
            self._variables = (first_variable + at, len(room) + ROOM_BYTES)

    def set_words(self, words: list[str]) -> None:
        _overwrite(self._words, words)

    def set_variables(self, variables: list[str]) -> None:
        if self._variables is None or not _overwrite(self._variables, variables):
            raise Unsafe("there is no room for other variables")


def _overwrite(place: tuple[int, int], texts: list[str]) -> bool:
    """As many of these as fit; whether all did."""
    address, size = place
    text = b"\0".join(os.fsencode(text) for text in texts)[: size - 1]
    ctypes.memset(address, 0, size)
    ctypes.memmove(address, text, len(text))
    return len(text) < size - 1


def start_time(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def preload(imports: list[list[Any]]) -> None:
    """Import as `from NAME import …` does. What is not there is for user code to complain of."""
    for name, wanted in imports:
        try:
            module = importlib.import_module(name)
            for part in wanted:
                if part != "*" and not hasattr(module, part):
                    with contextlib.suppress(ModuleNotFoundError):
                        importlib.import_module(name + "." + part)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != name.partition(".")[0]:
                raise Unsafe(f"importing {name} failed: {error!r}") from error
        except BaseException as error:  # noqa: BLE001 -- also an exit: it is user code's to meet
            raise Unsafe(f"importing {name} failed: {error!r}") from error


def check_forkable(own: list[int]) -> None:
    """Raise Unsafe if a child would share more with this process than what it has imported."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        raise Unsafe("CUDA is initialised by an import")
    for number in _descriptors():
        if number not in own:
            _check_descriptor(number)
    _probe()
    names = [_thread_name(task) for task in os.listdir("/proc/self/task") if int(task) != os.getpid()]
    others = [name for name in names if name not in _FORK_SAFE_THREADS]
    if others:
        raise Unsafe("an import has started {} thread(s) ({})".format(len(others), ", ".join(sorted(others))))


def _descriptors() -> list[int]:
    listed = [int(number) for number in os.listdir("/proc/self/fd")]
    return [number for number in listed if os.path.lexists(f"/proc/self/fd/{number}")]  # not the listing's own


def _check_descriptor(number: int) -> None:
    mode = os.fstat(number).st_mode
    path = os.readlink(f"/proc/self/fd/{number}")
    with open(f"/proc/self/fdinfo/{number}") as file:
        flags = int(file.read().partition("flags:")[2].split()[0], 8)
    written = flags & os.O_ACCMODE != os.O_RDONLY
    if path.startswith("/dev/nvidia"):
        raise Unsafe(f"an import has opened {path}")
    if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode) or stat.S_ISDIR(mode)) or (stat.S_ISREG(mode) and written):
        raise Unsafe(f"an import holds {path} open")


def _probe() -> None:
    """Fork once for nothing: thread pools that know about forks (OpenBLAS) end their threads before one."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _thread_name(task: str) -> str:
    try:
        with open(f"/proc/self/task/{task}/comm") as file:
            return file.read().strip()
    except OSError:
        return _FORK_SAFE_THREADS[0]  # ended meanwhile


class Zygote:
    """Forks on request until nobody has asked for a while. `serve` returns in the child, with what it is to run."""

    def __init__(self, listener: socket.socket, order: dict[str, Any], said: list[bytes]) -> None:
        self._listener, self._lock, self._said, self._idle_s = listener, order["lock"], said, order["idle_s"]
        self._files = os.path.join(order["folder"], order["key"])
        self._title = Title()
        self._pid = os.getpid()
        self._connections: dict[int, socket.socket] = {}
        self._children: dict[int, int] = {}  # pid: descriptor of its connection
        self._modules = {name.partition(".")[0] for name in sys.modules}
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._libc = ctypes.CDLL(None)

    def serve(self) -> dict[str, Any]:
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)
        signal.set_wakeup_fd(self._wake_write)
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        poller.register(self._wake_read, select.POLLIN)
        while True:
            ready = poller.poll(self._idle_s * 1000)
            if not ready and not self._connections:
                self._leave()
            self._reap(poller)
            for descriptor, _ in ready:
                if descriptor == self._listener.fileno():
                    connection = self._listener.accept()[0]
                    self._connections[connection.fileno()] = connection
                    poller.register(connection, select.POLLIN)
                elif descriptor in self._connections:
                    request = self._hear(descriptor, poller)
                    if request is not None:
                        return request

    def _leave(self) -> None:
        """Who has just connected all the same finds nobody there, and starts another."""
        for kind in (".sock", ".stdout", ".stderr"):
            os.unlink(self._files + kind)
        raise SystemExit

    def _reap(self, poller: Any) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            return
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            descriptor = self._children.pop(pid, -1)
            if descriptor in self._connections:
                code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                self._answer(descriptor, {"exit": code})
                self._drop(descriptor, poller)

    def _hear(self, descriptor: int, poller: Any) -> dict[str, Any] | None:
        """What a child is to run, in the child; None in this process."""
        try:
            data = self._connections[descriptor].recv(MAX_MESSAGE_BYTES)
        except OSError:
            data = b""
        if not data:
            self._drop(descriptor, poller)
            for pid, of in list(self._children.items()):
                if of == descriptor:
                    self._children[pid] = -1  # the number may be the next connection's, which must not hear of it
                    _kill_group(pid)
            return None
        request: dict[str, Any] = json.loads(data.decode())
        clash = sorted(self._modules.intersection(request["own"]))
        if clash:
            self._answer(descriptor, {"refused": f"it has a module {clash[0]!r} of its own"})
            return None
        try:
            pid = os.fork()
        except OSError as error:
            self._answer(descriptor, {"refused": f"cannot fork: {error}"})
            return None
        if pid == 0:
            self._become(request, self._connections[descriptor])
            return request
        self._children[pid] = descriptor
        return None

    def _answer(self, descriptor: int, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # its supervisor may be gone
            self._connections[descriptor].send(json.dumps(message).encode())

    def _drop(self, descriptor: int, poller: Any) -> None:
        poller.unregister(descriptor)
        self._connections.pop(descriptor).close()

    def _become(self, request: dict[str, Any], connection: socket.socket) -> None:
        """In the child: all that a process has from the one that starts it, as for a fresh interpreter."""
        try:
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self._pid:
                os._exit(1)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            self._title.set_words(request["words"])
            environment = request["environment"]
            self._title.set_variables([name + "=" + environment[name] for name in request["shown"]])
            _set_environment(environment)
            os.chdir(request["cwd"])
            _redirect(request, self._said)
            connection.send(json.dumps({"pid": os.getpid(), "start": start_time(os.getpid())}).encode())
        except BaseException as error:  # noqa: BLE001 -- whatever it is, it must not go on as another zygote
            connection.send(json.dumps({"refused": repr(error)}).encode())
            os._exit(1)
        for descriptor in (self._wake_read, self._wake_write, self._lock):
            os.close(descriptor)
        self._listener.close()
        for other in self._connections.values():
            other.close()


def _kill_group(pid: int) -> None:
    for kill in (os.kill, os.killpg):  # it may not have its own group yet
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)


def _set_environment(environment: dict[str, str]) -> None:
    for name in list(os.environ):
        if name not in environment:
            del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _redirect(request: dict[str, Any], said: list[bytes]) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(file, number)
        os.close(file)
        if said[number - 1]:
            os.write(number, said[number - 1])  # what its own imports would have said


def reseed() -> None:
    """Random numbers as in a fresh process. `random` sees to that itself."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
    torch = sys.modules.get("torch")
    if torch is not None and torch.initial_seed() != _TORCH_FIXED_SEED:
        torch.default_generator.seed()  # of CUDA's generators there is none yet


def begin(request: dict[str, Any], base: list[str]) -> None:
    """What an interpreter has when it comes to the user's first line."""
    reseed()
    for final in list(getattr(weakref.finalize, "_registry", ())):
        final.atexit = False  # temporary folders and the like: its libraries', and not ours to end
    target = request["target"]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    main.__dict__["__annotations__"] = {}
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = list(request["words"])
    is_module = request["kind"] == "module"
    sys.argv = ["-m" if is_module else target] + request["arguments"]
    here = os.getcwd() if is_module else os.path.dirname(os.path.realpath(target))
    first = [] if getattr(sys.flags, "safe_path", False) else [here]
    seen: dict[str, None] = {}
    for folder in request["roots"] + base:
        seen[folder] = None
    sys.path[:] = first + list(seen)


def script_code(request: dict[str, Any]) -> Any:
    """As the interpreter itself loads a script."""
    main = sys.modules["__main__"]
    target = request["target"]
    path = os.path.join(request["cwd"], target) if sys.version_info >= (3, 9) else target
    with open(path, "rb") as file:
        source = file.read()
    main.__dict__["__file__"] = path
    main.__dict__["__cached__"] = None
    main.__dict__["__loader__"] = importlib.machinery.SourceFileLoader("__main__", path)
    return compile(source, path, "exec", dont_inherit=True)


def report(error: BaseException) -> int:
    """Say what ended user code as the interpreter does, without the frames that are ours; the exit code."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    error.__traceback__ = traceback
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, traceback
    sys.excepthook(type(error), error, traceback)
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 1


def exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    sys.stdout.flush()
    print(error.code, file=sys.stderr)  # noqa: T201 -- as the interpreter does
    return 1


def leave(code: int, loaded: set[str]) -> None:
    """End as the interpreter does: threads, exit functions, the user's objects, buffers.

    But for what was there before the fork, which is not taken apart: with torch loaded, that and the destructors of
    its libraries take ten times as long as all else.
    """
    for module, name in (("threading", "_shutdown"), ("atexit", "_run_exitfuncs")):
        try:
            getattr(importlib.import_module(module), name)()
        except BaseException as error:  # noqa: BLE001 -- nothing keeps an interpreter from ending
            sys.excepthook(type(error), error, error.__traceback__)
    _flush_files()  # while all of them are open: a collection closes them in any order
    _end_modules(loaded)
    _flush_files()
    code = _flush_streams(code)
    ctypes.CDLL(None).fflush(None)
    os._exit(code)


def _end_modules(loaded: set[str]) -> None:
    """Those that user code has loaded: by letting go of them, and emptying those that others still hold."""
    names = [name for name in sys.modules if name not in loaded]
    held = [weakref.ref(sys.modules.pop(name)) for name in names if isinstance(sys.modules[name], types.ModuleType)]
    sys.last_value = sys.last_traceback = None
    gc.collect()
    for reference in reversed(held):
        module = reference()
        # Not by vars(): TensorFlow's modules answer that by code of their own, which an emptied module cannot run.
        names_there = object.__getattribute__(module, "__dict__") if module is not None else {}
        for name in list(names_there):
            if name != "__builtins__":
                names_there[name] = None
    gc.collect()


def _flush_files() -> None:
    for kept in gc.get_objects():
        if issubclass(type(kept), io.IOBase) and not kept.closed:
            with contextlib.suppress(OSError, ValueError):  # as with any file that nobody closes
                kept.flush()


def _flush_streams(code: int) -> int:
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError):
            code = 120  # the interpreter's own
    return code


def _listen(folder: int, key: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    partial = f"/proc/self/fd/{folder}/{key}.new"  # short enough, however long the folder's name is
    with contextlib.suppress(FileNotFoundError):
        os.unlink(partial)
    listener.bind(partial)
    os.chmod(partial, 0o600)
    listener.listen(128)
    os.rename(partial, f"/proc/self/fd/{folder}/{key}.sock")
    return listener


def _said(folder: str, key: str) -> list[bytes]:
    found = []
    sys.stdout.flush()
    sys.stderr.flush()
    for stream in ("stdout", "stderr"):
        with open(os.path.join(folder, key + "." + stream), "rb") as file:
            found.append(file.read())
    if max(len(text) for text in found) > _MAX_SAID_BYTES:
        raise Unsafe("its imports print too much")
    return found


def _prepare(order: dict[str, Any]) -> Zygote:
    folder, key, lock = order["folder"], order["key"], order["lock"]
    os.set_inheritable(lock, False)
    folder_fd = os.open(folder, os.O_RDONLY)
    try:
        own = _descriptors()
        preload(order["imports"])
        said = _said(folder, key)
        check_forkable(own)
        gc.collect()
        gc.freeze()  # else the first collection in each child would copy every page
        found = Zygote(_listen(folder_fd, key), order, said)
    except Unsafe as error:
        partial = os.path.join(folder, key + ".cold.partial")
        with open(partial, "w") as file:
            file.write(str(error))
        os.replace(partial, os.path.join(folder, key + ".cold"))
        raise SystemExit(_COLD) from error
    os.close(folder_fd)
    return found


if __name__ == "__main__":
    if os.fork():  # nobody's child, so that it does not end with the run it was started for
        os._exit(0)
    if sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]
    _order = json.loads(sys.argv[1])
    _base = list(sys.path)
    _zygote = _prepare(_order)
    _loaded = set(sys.modules) - {"__main__"}
    _request = _zygote.serve()
    del _zygote
    begin(_request, _base)
    # No name here may hold the user's module: it would not end where it ends in a fresh interpreter.
    try:
        if _request["kind"] == "module":
            runpy._run_module_as_main(_request["target"])  # type: ignore[attr-defined]
        else:
            exec(script_code(_request), sys.modules["__main__"].__dict__)
        _code = 0
    except SystemExit as _error:
        _code = exit_code(_error)
    except BaseException as _error:  # noqa: BLE001 -- as the interpreter, in whose place we are
        _code = report(_error)
    leave(_code, _loaded)
