"""Before user code can start: its package on disk, and a Python that satisfies it."""

import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stoker.errors import NotFoundError, ServerError, StokerError
from stoker.host.home import Home
from stoker.run_dir import RunDir
from stoker.schema.launch import Launch
from stoker.supervisor.spool import Entry, Spool
from stoker.supervisor.tails.reports import supervisor_log

_FETCH_RETRY_S = 0.5
_FETCH_FOR_S = 600.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """Where the code is, and what runs it."""

    root: Path
    python: Path
    variables: dict[str, str]  # of the environment: PATH, VIRTUAL_ENV


class Preparation(threading.Thread):
    """Prepares in the background, so that the supervisor can be told to stop meanwhile."""

    def __init__(
        self, launch: Launch, run_dir: RunDir, *, home: Home, spool: Spool, say: Callable[[str], None]
    ) -> None:
        super().__init__(name="prepare", daemon=True)
        self._launch, self._run_dir, self._home, self._spool = launch, run_dir, home, spool
        self._show = say
        self.phase = "package"
        self._result: Prepared | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            root = self._package()
            prepared = self._environment(root)
            if self._launch.latest_checkpoint is not None:
                from stoker.supervisor.artifacts import fetch_checkpoint  # noqa: PLC0415 -- as below

                fetch_checkpoint(self._launch, self._run_dir, home=self._home)
            self._result = prepared
        except BaseException as error:  # noqa: BLE001 -- raised again in `result`, where the run ends because of it
            self._error = error

    def result(self) -> Prepared:
        """What came of it, once it has ended."""
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def _package(self) -> Path:
        self._spool.add("phase", phase=self.phase)
        for archive in self._launch.environment.archives:
            file = self._home.archive_file(archive.hash, archive.filename)
            if not file.exists():
                self._fetch(f"/packages/{archive.hash}/{archive.filename}", file, sha256=archive.hash)
        if self._launch.source is not None:
            return Path(self._launch.source)
        root = self._run_dir.package
        if self._launch.package is None:
            root.mkdir(exist_ok=True)
            return root
        file = self._home.package_file(self._launch.package)
        if not file.exists():
            self._fetch(f"/packages/{self._launch.package}", file, sha256=self._launch.package)
        # Loaded here, when it is needed: user code waits for every import.
        from stoker.formats.archive import LIMIT_BYTES, unpack  # noqa: PLC0415
        from stoker.packaging.package.archive import content_limit  # noqa: PLC0415

        unpack(file, root, limit_bytes=max(content_limit(), LIMIT_BYTES))
        return root

    def _environment(self, root: Path) -> Prepared:
        self.phase = "environment"
        self._spool.add("phase", phase=self.phase)
        from stoker.packaging.environment.cache import prepare  # noqa: PLC0415 -- as above

        found = prepare(self._launch.environment, home=self._home, say=self._say)
        return Prepared(root, found.python, found.variables)

    def _say(self, text: str) -> None:
        self._spool.append([Entry(supervisor_log(text))])
        self._show(text)

    def _fetch(self, path: str, to: Path, *, sha256: str) -> None:
        """Download to where this home keeps packages; whole or not at all. Waits for a server that is away."""
        from stoker.client.connection import API, Connection  # noqa: PLC0415 -- as above

        to.parent.mkdir(parents=True, exist_ok=True)
        partial = to.with_name(f".{to.name}.{os.getpid()}")
        give_up = time.monotonic() + _FETCH_FOR_S
        while True:
            address = self._home.server()
            try:
                if address is None:
                    raise ServerError(f"There is no server to fetch {path} from.")
                with partial.open("w+b") as file:
                    Connection(address).download(API + path, file)
                    file.seek(0)
                    if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                        raise ServerError(f"{path} came damaged from {address.url}.")
                break
            except NotFoundError as error:
                raise StokerError(f"The server does not have {path}: {error} Submit the job again.") from error
            except ServerError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(_FETCH_RETRY_S)
        partial.replace(to)
