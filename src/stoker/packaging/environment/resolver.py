"""Find out what has to be installed on top of a runtime to meet a job's needs, and why it cannot be where it cannot."""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from stoker.errors import UsageError
from stoker.host.home import Home
from stoker.packaging.environment.dates import flags_as_of
from stoker.packaging.environment.distributions import Installed
from stoker.packaging.environment.needs import Needs
from stoker.packaging.environment.resolution import Resolution
from stoker.packaging.environment.resolver_venv import shadow_of
from stoker.packaging.environment.runtimes import Runtime
from stoker.packaging.environment.uv import Uv, short_reason
from stoker.packaging.package.requirements import OVERRIDE, PASSED_ON, hashes_of, name_of, without_hashes

# uv reads no metadata that breaks today's standard, and pip of the time does: pandas 0.24 asks for "pytz >=2011k".
_PIP_CAN = re.compile(r"invalid metadata|could not be parsed|failed to parse", re.IGNORECASE)
_OLDEST_FOR_UV = (3, 8)
# Of no library's to run with, though torch says it needs a late setuptools: what a package pins of them holds, or
# `setuptools==59.5.0` would bring another torch, with all of CUDA.
_TOOLS = frozenset(("pip", "setuptools", "wheel"))
# " + six==1.17.0", " + x==1.0 (from file:///…)", " + x @ file:///…"; "~" where a version is put in place of itself.
_WOULD_INSTALL = re.compile(
    r"^ [+~] (?P<name>[\w.-]+)(?:==(?P<version>\S+)(?: \(from (?P<from>.+)\))?| @ (?P<url>\S+))$", re.MULTILINE
)


_PATIENCE_S = 60.0
_ENDLESS = (
    f"no releases that go together were found within {_PATIENCE_S:g} s. Pin the versions that you had, at least of the"
    " largest of them."
)


class Unresolvable(UsageError):
    """The needs cannot be met; `reason` is the resolver's own explanation, short."""

    def __init__(self, message: str, *, reason: str) -> None:
        self.reason = reason
        super().__init__(message)


class Endless(Unresolvable):
    """It was not found out whether they can be."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Needs, sorted out: requirements that apply on the runtime, constraints, and options for the installer."""

    requirements: tuple[str, ...]
    constraints: tuple[str, ...]
    options: tuple[str, ...]

    @classmethod
    def of(cls, needs: Needs, installed: Installed) -> "Wanted":
        standing = [line.removeprefix(OVERRIDE).strip() for line in needs.requirements if line.startswith(OVERRIDE)]
        settled = {name_of(line) for line in standing}
        others = [line for line in needs.requirements if not line.startswith(OVERRIDE)]
        lines = [line for line in others if (name_of(line.removeprefix("-c ")) or line) not in settled] + standing
        strange = [line for line in lines if line.startswith("-") and not line.startswith(("-c ", *PASSED_ON))]
        if strange:
            raise UsageError(f"{strange[0]!r} cannot be a requirement here. Options that can: {', '.join(PASSED_ON)}.")
        requirements = [line for line in lines if not line.startswith("-") and _applies(line, installed)]
        constraints = [line.removeprefix("-c ").strip() for line in lines if line.startswith("-c ")]
        options = [line for line in lines if line.startswith("--")]
        return cls(tuple(requirements), tuple(constraints), tuple(options))


def resolve_needs(needs: Needs, installed: Installed, *, home: Home, archives: Sequence[Path]) -> Resolution:
    """Work out what to install. UsageError, with the resolver's reason, when it cannot be done.

    As of a date, of all that the runtime has only torch counts: another one would be gigabytes.
    """
    if needs.as_of is not None and not needs.prefer_runtime:
        installed = installed.only("torch")
    wanted = Wanted.of(needs, installed)
    if not archives and all(is_met(line, installed, needs, wanted) for line in wanted.requirements):
        return Resolution("none")
    return _ask_uv(needs, wanted, installed, home=home, archives=archives)


def is_met(line: str, installed: Installed, needs: Needs, wanted: Wanted) -> bool:
    """Whether the runtime has what a requirement line asks for, within the constraints."""
    requirement = parse(line)
    if requirement is None:
        return False
    if needs.prefer_runtime and requirement.url is None:
        return installed.satisfies(Requirement(f"{requirement.name}{_extras(requirement)}"))
    limits = [limit for limit in map(parse, wanted.constraints) if limit is not None]
    same = [limit for limit in limits if name_of(limit.name) == name_of(requirement.name)]
    return all(installed.satisfies(one) for one in (requirement, *(one for one in same if installed.applies(one))))


def without_wheel(lines: Sequence[str], installed: Installed) -> set[str]:
    """Of some `name==version` lines, those that have no wheel for the runtime: they are built from source."""
    pins = [line for line in map(without_hashes, lines) if "==" in line]
    if not pins or has_wheels(pins, installed.runtime):
        return set()
    return {pin for pin in pins if not has_wheels([pin], installed.runtime)}


def has_wheels(lines: Sequence[str], runtime: Runtime, *, python: str | None = None) -> bool:
    """Whether each line can be had as a wheel, for the runtime's own Python or for another version of it."""
    with tempfile.TemporaryDirectory(prefix="stoker-wheels-") as scratch:
        (Path(scratch) / "pins.in").write_text("\n".join([*map(without_hashes, lines), ""]))
        words = ["pip", "compile", "pins.in", "--no-deps", "--only-binary", ":all:", "-q"]
        words += ["--python", str(runtime.python), *(["--python-version", python] if python else [])]
        return Uv(runtime, Path(scratch)).run(words).returncode == 0


def parse(line: str) -> Requirement | None:
    """None for a bare URL, which only an installer can read."""
    try:
        return Requirement(without_hashes(line))
    except InvalidRequirement:
        return None


def _applies(line: str, installed: Installed) -> bool:
    requirement = parse(line)
    return requirement is None or installed.applies(requirement)


def _extras(requirement: Requirement) -> str:
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


def _ask_uv(needs: Needs, wanted: Wanted, installed: Installed, *, home: Home, archives: Sequence[Path]) -> Resolution:
    """Ask what uv would install in the runtime's shadow: first with all that is there held fast, then freely.

    Held fast, `torchvision` comes in the version that goes with the runtime's torch; freely, it would come in its
    newest, and bring another torch with it. Only what the package itself contradicts is let go from the start.
    """
    as_of = needs.as_of
    python = shadow_of(installed, home=home, name="-torch" if as_of and not needs.prefer_runtime else "")
    with tempfile.TemporaryDirectory(prefix="stoker-resolve-") as scratch:
        request = _Request(needs, wanted, installed, archives, Path(scratch))
        uv = Uv(installed.runtime, Path(scratch))
        for hold in (True, False) if as_of is None else (False,):
            words = [*request.words(hold=hold), *flags_as_of(as_of), "--python", str(python)]
            try:
                done = uv.run(words, within_s=_PATIENCE_S)
            except TimeoutError as error:
                text = f"The requirements cannot be met on {_place(needs, installed)}: {_ENDLESS}"
                raise Endless(text, reason=_ENDLESS) from error
            if done.returncode == 0:
                return Resolution("uv", _new_lines(done.stderr + done.stdout, wanted, archives))
    is_old = as_of is None and installed.runtime.interpreter.numbers < _OLDEST_FOR_UV
    too_old = is_old and "No solution found" not in done.stderr
    if Installed(installed.runtime).get("pip") is not None and (too_old or _PIP_CAN.search(done.stderr)):
        lines = [line for line in wanted.requirements if not is_met(line, installed, needs, wanted)]
        return Resolution("pip", (*lines, *(f"archive:{file.name}" for file in archives)))
    reason = short_reason(done.stderr)
    hint = _hint(needs, wanted, installed)
    text = f"The requirements cannot be met on {_place(needs, installed)}: {reason}{hint}"
    raise Unresolvable(text, reason=reason)


def _place(needs: Needs, installed: Installed) -> str:
    return f"{installed.runtime} as of {needs.as_of}" if needs.as_of else str(installed.runtime)


def _hint(needs: Needs, wanted: Wanted, installed: Installed) -> str:
    unmet = [parse(line) for line in wanted.requirements if not is_met(line, installed, needs, wanted)]
    held = [f"{one.name} {installed.version(one.name)}" for one in unmet if one and installed.version(one.name)]
    return f" --prefer-runtime would take {', '.join(held)} as it is." if held and not needs.prefer_runtime else ""


@dataclass(frozen=True, slots=True)
class _Request:
    """The files of a `uv pip install --dry-run`."""

    needs: Needs
    wanted: Wanted
    installed: Installed
    archives: Sequence[Path]
    folder: Path

    def words(self, *, hold: bool) -> list[str]:
        """Write the files; `hold` makes the runtime's versions constraints."""
        asked = [without_hashes(line) for line in self.wanted.requirements]
        asked += [archive.as_uri() for archive in self.archives]
        options = [option for option in self.wanted.options if option != "--pre"]
        self._write("requirements.txt", [*options, *asked])
        self._write("constraints.txt", [*self.wanted.constraints, *(self._held() if hold else [])])
        words = ["pip", "install", "--dry-run", "-r", "requirements.txt", "-c", "constraints.txt"]
        if "--pre" in self.wanted.options:
            words += ["--prerelease", "allow"]
        # An override stands in for every wish about a package, also those of other packages.
        overrides = self._pins(but=set()) if self.needs.prefer_runtime else self._tools()
        if overrides:
            self._write("overrides.txt", overrides)
            words += ["--override", "overrides.txt"]
        return words

    def _tools(self) -> list[str]:
        return [without_hashes(line) for line in self.wanted.requirements if name_of(line) in _TOOLS]

    def _held(self) -> list[str]:
        unmet = {
            name_of(line)
            for line in self.wanted.requirements
            if not is_met(line, self.installed, self.needs, self.wanted)
        }
        return self._pins(but=unmet)

    def _pins(self, *, but: set[str | None]) -> list[str]:
        versions = ((one.name, self.installed.version(one.name)) for one in self.installed if one.name not in but)
        return [f"{name}=={version}" for name, version in versions if version is not None]

    def _write(self, name: str, lines: list[str]) -> None:
        (self.folder / name).write_text("\n".join([*lines, ""]), encoding="utf-8")


def _new_lines(said: str, wanted: Wanted, archives: Sequence[Path]) -> tuple[str, ...]:
    """The lines to install, from what uv says it would; hashes the user gave are put back."""
    hashes = {name_of(line): hashes_of(line) for line in wanted.requirements if hashes_of(line)}
    places = {archive.as_uri(): f"archive:{archive.name}" for archive in archives}
    lines = []
    for would in _WOULD_INSTALL.finditer(said):
        name, version, url = would["name"], would["version"], would["from"] or would["url"]
        line = f"{name} @ {places.get(url, url)}" if url else f"{name}=={version}"
        lines.append(" ".join([line, *(f"--hash={one}" for one in hashes.get(name_of(name), ()))]))
    return tuple(lines)
