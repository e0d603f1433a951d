"""Keep a run's checkpoints and models at a storage URL, and fetch the checkpoint it goes on from.

For nodes with disks of their own: what one of them has saved another could not read when it is lost.
"""

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.errors import NotFoundError, StokerError
from stoker.host.home import Home
from stoker.run_dir import RunDir
from stoker.schema.launch import Launch
from stoker.supervisor.spool import acked_before
from stoker.supervisor.tails.reports import supervisor_log

if TYPE_CHECKING:
    from stoker.storage import Storage

_TRIES = 3  # of a copy: what is being deleted or saved again fails the first
_TRY_S = 0.5
_LOOK_S = 1.0  # how often it is seen what user code has deleted
_END_S = 60.0


class Copy:
    """A checkpoint or a model on its way to its URL."""

    def __init__(self, event: dict[str, Any], url: str) -> None:
        self.event = event  # once it is done: what to tell
        self.path, self.url = str(event["path"]), url
        self._done = threading.Event()
        self._lock = threading.Lock()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def wait(self, timeout_s: float) -> bool:
        return self._done.wait(timeout_s)

    def finish(self, event: dict[str, Any]) -> None:
        """Say what to tell of it; who says it first decides."""
        with self._lock:
            if not self.is_done:
                self.event = event
                self._done.set()


@dataclass(frozen=True, slots=True)
class _Told:
    """A checkpoint whose URL the server is told in the event of this number, or one before it."""

    path: str
    url: str
    seq: int


class Artifacts:
    """Copies what it is given, in that order, by a thread of its own; and deletes the copy of what user code deletes.

    What is told of a checkpoint or a model is told when it is there, whole. A copy is deleted only when the server has
    heard of a later one: it is what the trial goes on from if this machine is lost.
    """

    def __init__(
        self,
        launch: Launch,
        run_dir: RunDir,
        *,
        home: Home,
        say: Callable[[str], None],
        storage: "Storage | None" = None,
    ) -> None:
        """`say` is for the job's log; it is called from any thread."""
        assert launch.artifacts is not None
        self._base = f"{launch.artifacts.rstrip('/')}/{launch.job}/{launch.trial}/{launch.attempt}"
        self._run_dir, self._home, self._say = run_dir, home, say
        self._storage = storage
        self._orders: queue.SimpleQueue[Copy | _Told | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._told: list[_Told] = []  # the thread's own, as is what follows
        self._missing: set[str] = set()

    def keep(self, event: dict[str, Any]) -> Copy:
        """Begin to copy. When it is done, its event has the URL in place of the path; or the path, when it cannot be
        kept: better there than nowhere. One that user code has deleted meanwhile is not told of, but for a line."""
        folder = self._run_dir.checkpoints if event["type"] == "checkpoint" else self._run_dir.models
        copy = Copy(event, f"{self._base}/{folder.name}/{Path(event['path']).name}")
        self._orders.put(copy)
        if self._thread is None:
            # A daemon: a store that does not answer must not keep a supervisor that was told to leave.
            self._thread = threading.Thread(target=self._work, name="artifacts", daemon=True)
            self._thread.start()
        return copy

    def told(self, copy: Copy, *, seq: int) -> None:
        """That a copy is done is in the spool, up to this number."""
        if copy.event["type"] == "checkpoint" and copy.event["path"] == copy.url:
            self._orders.put(_Told(copy.path, copy.url, seq))

    def finish(self, *, is_told: Callable[[], bool] = lambda: False) -> None:
        """Delete what is left to be, when all was told and nobody writes any more; or until told to leave."""
        if self._thread is None:
            return
        self._orders.put(None)
        until = time.monotonic() + _END_S
        while self._thread.is_alive() and time.monotonic() < until and not is_told():
            self._thread.join(_TRY_S)

    def _work(self) -> None:
        while True:
            try:
                order = self._orders.get(timeout=_LOOK_S)
            except queue.Empty:
                self._delete_deleted()
                continue
            match order:
                case Copy():
                    order.finish(self._copy(order))
                case _Told():
                    self._told = [*(known for known in self._told if known.url != order.url), order]
                case None:
                    self._delete_deleted(at_once=True)
                    return

    def _copy(self, copy: Copy) -> dict[str, Any]:
        """What to tell of it."""
        for attempt in range(_TRIES):
            try:
                self._store().copy(copy.path, copy.url, recursive=True)
                trouble = None
                break
            except Exception as error:  # noqa: BLE001 -- whatever a store's library raises: the run waits for an answer
                trouble = error
            if not _is_there(copy.path) or attempt == _TRIES - 1:
                break
            time.sleep(_TRY_S)
        if not _is_there(copy.path):
            self._remove(copy.path, copy.url)
            return supervisor_log(f"{copy.path} was deleted before it was kept at {copy.url}: it is not listed.")
        if trouble is None:
            return {**copy.event, "path": copy.url}
        self._warn(f"{copy.path} could not be kept at {copy.url}: {trouble}")
        return copy.event

    def _delete_deleted(self, *, at_once: bool = False) -> None:
        acked = acked_before(self._run_dir.spool_ack)
        heard = [told for told in self._told if told.seq <= acked]
        for told in heard[:-1]:
            # What is saved again is missing for a moment: only at the second look is it gone. Where its folder is
            # gone too, that was not user code's doing.
            is_missing = not _is_there(told.path) and os.path.isdir(os.path.dirname(told.path))
            if is_missing and (at_once or told.path in self._missing):
                self._told.remove(told)
                self._remove(told.path, told.url)
            elif is_missing:
                self._missing.add(told.path)
            else:
                self._missing.discard(told.path)

    def _remove(self, path: str, url: str) -> None:
        try:
            self._store().remove(url, recursive=True)
        except NotFoundError:
            pass  # nothing of it had come there, or somebody else was faster
        except Exception as error:  # noqa: BLE001 -- as above; the thread must survive
            why = f"{path} was deleted, but not its copy at {url}: {error}"
            self._warn(f"{why} Delete that with `stoker storage rm -r {url}`.")

    def _store(self) -> "Storage":
        if self._storage is None:
            self._storage = _storage(self._home)
        return self._storage

    def _warn(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
        self._say(text)


def fetch_checkpoint(launch: Launch, run_dir: RunDir, *, home: Home) -> None:
    """Have the checkpoint it goes on from on this machine, and say in run.json where. StokerError if it is not."""
    found = launch.latest_checkpoint
    if found is None:
        return
    if "://" not in found:
        if Path(found).is_absolute() and not Path(found).exists():
            raise StokerError(
                f"The checkpoint {found} is not on this machine. Nodes with disks of their own need a place for"
                " checkpoints that all of them reach: artifacts = URL under the pool, or its home on a shared disk."
            )
        return
    to = run_dir.fetched / found.rstrip("/").rpartition("/")[2]
    to.parent.mkdir(exist_ok=True)
    _storage(home).copy(found, str(to), recursive=True)
    run_dir.write_launch(json.dumps({**run_dir.read_launch(), "latest_checkpoint": str(to)}))


def _storage(home: Home) -> "Storage":
    from stoker.storage import Storage  # noqa: PLC0415 -- few runs need it

    return Storage(home.root)


def _is_there(path: str) -> bool:
    return os.path.lexists(path)
