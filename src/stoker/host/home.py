"""Where stoker keeps things on this machine: one folder, and the names inside it.

config.toml          written by people: pools, storage
runtimes.json        `stoker runtimes add`
server.json, token   how to reach the running server; readable by the owner alone
server.lock          held by the server for its whole life, so there is one
server.log
stoker.db            the store
packages/            HASH.tar.gz, and archives as HASH/FILENAME
environments/        one folder per content key
runs/                JOB/TRIAL/ATTEMPT/, a run directory each
models/              MODEL/VERSION/, a bundle each: what is registered
zygotes/             Pythons that have imported what trials import, to fork them from
provided/            links to the modules and commands that every job can use
projects/            what a look at a package found, by the hash of its files
cache/               copies of models, tables and token files that can be made again
buckets/             a folder for each bucket that is kept here
shim/                gcloud, gsutil and det, for `stoker gcloud-shim`
ray/                 of each pool's bridge to Ray: socket, lock, log
gpus.json            which process has which GPU
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from stoker.atomic import replace_file
from stoker.errors import UsageError
from stoker.run_dir import RunDir

MIN_TOKEN = 32


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where the running server is and what it takes to speak to it."""

    url: str
    token: str
    pid: int


@dataclass(frozen=True, slots=True)
class Home:
    """The folder itself; `STOKER_HOME` moves it."""

    root: Path

    @classmethod
    def find(cls) -> "Home":
        if given := os.environ.get("STOKER_HOME"):
            return cls(Path(given).expanduser().absolute())
        # Loaded when needed: supervisors are always given their home, and user code waits for every import.
        import platformdirs  # noqa: PLC0415

        return cls(Path(platformdirs.user_data_dir("stoker", appauthor=False)).absolute())

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def runtimes(self) -> Path:
        return self.root / "runtimes.json"

    @property
    def database(self) -> Path:
        return self.root / "stoker.db"

    @property
    def packages(self) -> Path:
        return self.root / "packages"

    @property
    def environments(self) -> Path:
        return self.root / "environments"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def provided(self) -> Path:
        return self.root / "provided"

    @property
    def projects(self) -> Path:
        return self.root / "projects"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def buckets(self) -> Path:
        return self.root / "buckets"

    @property
    def shim(self) -> Path:
        return self.root / "shim"

    @property
    def ray(self) -> Path:
        return self.root / "ray"

    @property
    def gpus(self) -> Path:
        return self.root / "gpus.json"

    @property
    def zygotes(self) -> Path:
        return self.root / "zygotes"

    @property
    def server_lock(self) -> Path:
        return self.root / "server.lock"

    @property
    def server_log(self) -> Path:
        return self.root / "server.log"

    @property
    def server_file(self) -> Path:
        return self.root / "server.json"

    def package_file(self, package: str) -> Path:
        return self.packages / f"{package}.tar.gz"

    def archive_file(self, archive: str, filename: str) -> Path:
        return self.packages / archive / filename

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    def run_dir(self, job: str, trial: int, attempt: int) -> RunDir:
        return RunDir(self.runs / job / str(trial) / str(attempt))

    def local_run_dir(self, name: str) -> RunDir:
        """Of a run in the foreground, which no server knows of."""
        return RunDir(self.runs / "local" / name)

    def make(self) -> "Home":
        """Create the folder, for its owner alone."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self

    def server(self) -> ServerAddress | None:
        """The address the last server wrote; it may be dead. STOKER_SERVER and STOKER_TOKEN name a remote one."""
        if url := os.environ.get("STOKER_SERVER"):
            return ServerAddress(url=url, token=os.environ.get("STOKER_TOKEN", ""), pid=0)
        try:
            found = json.loads(self.server_file.read_text())
            return ServerAddress(url=found["url"], token=found["token"], pid=found["pid"])
        except (OSError, ValueError, KeyError):
            return None

    def write_server(self, address: ServerAddress) -> None:
        replace_file(
            self.server_file, json.dumps({"url": address.url, "token": address.token, "pid": address.pid}), mode=0o600
        )

    def token(self) -> str:
        """This home's secret, made on first use."""
        path = self.root / "token"
        if not path.exists():
            import secrets  # noqa: PLC0415 -- as above

            replace_file(path, secrets.token_urlsafe(32), mode=0o600, sync=True)
        token = path.read_text().strip()
        if len(token) < MIN_TOKEN:
            raise UsageError(
                f"{path} holds {len(token)} characters, fewer than the {MIN_TOKEN} a token needs. Delete it: the next"
                " server writes a new one."
            )
        return token


def end_of(path: Path, *, size_bytes: int) -> str:
    """The last part of a text file; nothing when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size_bytes))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
