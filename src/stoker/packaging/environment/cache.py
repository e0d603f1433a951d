"""A Python that satisfies a job: made once for the same needs on the same runtime, then found again by its key.

HOME/environments/KEY/ is a virtual environment. It is made in place, because scripts in it hold its path, and counts
only once its record is there, which is written last; what a crash leaves behind is thrown away by the next to come.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.atomic import replace_file
from stoker.host.home import Home
from stoker.host.locks import locked
from stoker.packaging.environment.fingerprint import fingerprint
from stoker.packaging.environment.layer import (
    PATCH_VERSION,
    installed_in,
    make_layer,
    patch_environment,
    provided_commands,
    provided_folder,
)
from stoker.packaging.environment.needs import Needs
from stoker.packaging.environment.resolution import Resolution, forget, remember, remembered
from stoker.packaging.environment.runtimes import Choice, Runtime, choose
from stoker.schema.launch import EnvironmentSpec

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PreparedEnvironment:
    """A Python to run user code with, and what to set for it."""

    python: Path
    key: str
    runtime: str
    installed: tuple[str, ...]  # on top of the runtime: "six 1.17.0"
    cached: bool  # nothing had to be made
    variables: dict[str, str]  # PATH (its commands, then the runtime's) and VIRTUAL_ENV


def prepare(
    spec: EnvironmentSpec | Mapping[str, Any], *, home: Home, say: Say = lambda line: None
) -> PreparedEnvironment:
    """Find or make the environment; `say` gets a line for each thing that takes time.

    Takes a few milliseconds and starts nothing when it was made before. Two that want the same one at the same time
    make it once. UsageError when the needs cannot be met; StokerError when an install fails.
    """
    order = _Request.of(spec, home)
    if order.choice.note:
        say(order.choice.note)
    ready = order.find()
    if ready is not None:
        return ready
    with _only_one(home, order.key, say):
        ready = order.find()  # the one that held the lock before may have made it
        if ready is not None:
            return ready
        return order.ready(_make(order, say=say), cached=False)


def resolve(
    spec: "EnvironmentSpec | Mapping[str, Any]",
    *,
    home: Home,
    archives: Sequence[Path] | None = None,
    choice: Choice | None = None,
) -> Resolution:
    """What `prepare` would install, found out without installing it; UsageError when the needs cannot be met.

    For submit: takes milliseconds and starts nothing when it was found out before. `archives` are the spec's, where
    they are not in HOME yet; `choice` is its runtime, where that was chosen already.
    """
    return _resolve(_Request.of(spec, home, choice), archives)


@dataclass(frozen=True, slots=True)
class _Request:
    """An environment that is wanted."""

    needs: Needs
    choice: Choice
    home: Home
    provided: Path
    key: str

    @classmethod
    def of(cls, spec: EnvironmentSpec | Mapping[str, Any], home: Home, choice: Choice | None = None) -> "_Request":
        needs = Needs.of(spec)
        choice = choice or choose(home, runtime=needs.runtime, python=needs.python)
        provided = provided_folder(home)
        key = needs.key(fingerprint=fingerprint(choice.runtime), provided=provided.name)
        return cls(needs, choice, home, provided, key)

    @property
    def runtime(self) -> Runtime:
        return self.choice.runtime

    @property
    def folder(self) -> Path:
        return self.home.environments / self.key

    @property
    def record(self) -> Path:
        return self.folder / "environment.json"

    def find(self) -> PreparedEnvironment | None:
        """The environment, when it is finished and its Python still exists."""
        try:
            record = json.loads(self.record.read_bytes())
            installed = tuple(record["installed"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not (self.folder / "bin" / "python").exists():
            return None
        if record.get("mends") != PATCH_VERSION:  # made by an older stoker
            patch_environment(self.folder, self.runtime, installed)
            replace_file(self.record, json.dumps({**record, "mends": PATCH_VERSION}, indent=1), mode=0o600)
        return self.ready(installed, cached=True)

    def ready(self, installed: tuple[str, ...], *, cached: bool) -> PreparedEnvironment:
        binaries = [str(self.folder / "bin")]
        inherited = os.environ.get("PATH", os.defpath).split(os.pathsep)
        if str(self.runtime.python.parent) not in inherited:  # else it keeps its place: /usr/bin is no venv's folder
            binaries.append(str(self.runtime.python.parent))
        own = [str(provided_commands(self.home))]
        # A machine's own gsutil speaks to Google alone, which is meant where there are credentials for it.
        places = [*inherited, *own] if "GOOGLE_APPLICATION_CREDENTIALS" in os.environ else [*own, *inherited]
        return PreparedEnvironment(
            python=self.folder / "bin" / "python",
            key=self.key,
            runtime=self.runtime.name,
            installed=installed,
            cached=cached,
            variables={"VIRTUAL_ENV": str(self.folder), "PATH": os.pathsep.join([*binaries, *places])},
        )


def _resolve(order: _Request, archives: Sequence[Path] | None) -> Resolution:
    if not order.needs.requirements and not order.needs.archives:
        return Resolution("none")
    known = remembered(order.home, order.key)
    if known is not None:
        return known
    from stoker.packaging.environment.distributions import Installed  # noqa: PLC0415  50 ms, not on a cached path
    from stoker.packaging.environment.resolver import resolve_needs  # noqa: PLC0415

    files = (
        order.needs.archive_files(order.home)
        if archives is None
        else [Path(os.path.abspath(file)) for file in archives]
    )
    resolution = resolve_needs(order.needs, Installed(order.runtime), home=order.home, archives=files)
    remember(order.home, order.key, resolution)
    return resolution


def _make(order: _Request, *, say: Say) -> tuple[str, ...]:
    resolution = _resolve(order, None)
    if resolution.lines:
        say(f"Installing on top of {order.runtime}: {', '.join(resolution.labels)}")
    shutil.rmtree(order.folder, ignore_errors=True)
    try:
        python = make_layer(order.folder, order.runtime, provided=order.provided)
        if resolution.lines:
            from stoker.packaging.environment.install import install  # noqa: PLC0415  as above

            files = order.needs.archive_files(order.home)
            install(resolution.located(files), order.needs, order.runtime, python=python)
    except BaseException:
        forget(order.home, order.key)
        shutil.rmtree(order.folder, ignore_errors=True)
        raise
    installed = installed_in(order.folder, order.runtime)
    patch_environment(order.folder, order.runtime, installed)
    needs = {"requirements": order.needs.requirements, "as_of": order.needs.as_of}
    record = {"installed": installed, "runtime": str(order.runtime), **needs, "mends": PATCH_VERSION}
    replace_file(order.record, json.dumps(record, indent=1), mode=0o600)
    return installed


@contextmanager
def _only_one(home: Home, key: str, say: Say) -> Iterator[None]:
    """Held while an environment is made. The lock goes with its holder, however that ends."""
    home.make()
    home.environments.mkdir(exist_ok=True)
    wait = "Waiting for another run that makes the same environment"
    with locked(home.environments / f"{key}.lock", on_wait=lambda: say(wait)):
        yield
