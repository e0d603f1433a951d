"""Find out what has to be installed on top of a runtime to meet a job's needs, and why it cannot be where it cannot."""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from stoker.errors import UsageError
from stoker.home import Home
from stoker.packaging.installed import Installed
from stoker.packaging.needs import Needs
from stoker.packaging.offer import index_url, offer
from stoker.packaging.requirements import hashes_of, name_of, without_hashes
from stoker.packaging.resolution import Resolution
from stoker.packaging.uv import Uv, short_reason

# uv reads no metadata that breaks today's standard, and pip of the time does: pandas 0.24 asks for "pytz >=2011k".
_PIP_CAN = re.compile(r"invalid metadata|could not be parsed|failed to parse|unsupported python", re.IGNORECASE)
_OLDEST_FOR_UV = (3, 8)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Needs, sorted out: requirements that apply on the runtime, constraints, and options for the installer."""

    requirements: tuple[str, ...]
    constraints: tuple[str, ...]
    options: tuple[str, ...]

    @classmethod
    def of(cls, needs: Needs, installed: Installed) -> "Wanted":
        lines = needs.requirements
        requirements = [line for line in lines if not line.startswith("-") and _applies(line, installed)]
        constraints = [line.removeprefix("-c ").strip() for line in lines if line.startswith("-c ")]
        options = [line for line in lines if line.startswith("--")]
        return cls(tuple(requirements), tuple(constraints), tuple(options))


def resolve_needs(needs: Needs, installed: Installed, *, home: Home, archives: Sequence[Path]) -> Resolution:
    """Work out what to install. UsageError, with the resolver's reason, when it cannot be done."""
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
    """First with the runtime's versions as the only ones of what it has; then with them as mere preferences.

    The first asks no network about what is there. The second also looks at every index for every version, as pip
    does, where uv by itself would stop at the first index that knows a name.
    """
    folder = offer(installed, home=home)
    with tempfile.TemporaryDirectory(prefix="stoker-resolve-") as scratch:
        request = _Request(needs, wanted, installed, archives, Path(scratch))
        uv = Uv(installed.runtime, Path(scratch))
        for strategy in ("first-index", "unsafe-best-match"):
            words = request.words(prefer=strategy == "unsafe-best-match")
            words += ["--find-links", str(folder / "wheels")]
            done = uv.run(words, first_index=index_url(folder), strategy=strategy)
            if done.returncode == 0:
                compiled = request.output.read_text()
                for file in archives:
                    compiled = compiled.replace(file.as_uri(), f"archive:{file.name}")
                return Resolution("uv", _new_lines(compiled, wanted, installed))
    is_old = installed.runtime.interpreter.numbers < _OLDEST_FOR_UV
    if installed.get("pip") is not None and (is_old or _PIP_CAN.search(done.stderr)):
        lines = [line for line in wanted.requirements if not is_met(line, installed, needs, wanted)]
        return Resolution("pip", (*lines, *(f"archive:{file.name}" for file in archives)))
    raise UsageError(
        f"The requirements cannot be met on {installed.runtime}: {short_reason(done.stderr)}"
        f"{_hint(needs, wanted, installed)}"
    )


def _hint(needs: Needs, wanted: Wanted, installed: Installed) -> str:
    unmet = [parse(line) for line in wanted.requirements if not is_met(line, installed, needs, wanted)]
    held = [f"{one.name} {installed.version(one.name)}" for one in unmet if one and installed.version(one.name)]
    return f" --prefer-runtime would take {', '.join(held)} as it is." if held and not needs.prefer_runtime else ""


@dataclass(frozen=True, slots=True)
class _Request:
    """The files of a `uv pip compile`."""

    needs: Needs
    wanted: Wanted
    installed: Installed
    archives: Sequence[Path]
    folder: Path

    @property
    def output(self) -> Path:
        return self.folder / "pins.txt"

    def words(self, *, prefer: bool) -> list[str]:
        asked = [without_hashes(line) for line in self.wanted.requirements]
        asked += [archive.as_uri() for archive in self.archives]
        options = [option for option in self.wanted.options if option != "--pre"]
        (self.folder / "requirements.in").write_text("\n".join([*options, *asked, ""]))
        (self.folder / "constraints.txt").write_text("\n".join([*self.wanted.constraints, ""]))
        self.output.write_text("\n".join([*self._runtime_pins(), ""]) if prefer else "")
        words = ["pip", "compile", "requirements.in", "--python", str(self.installed.runtime.python)]
        words += ["-c", "constraints.txt", "-o", self.output.name, "--no-header", "--no-annotate", "-q"]
        if "--pre" in self.wanted.options:
            words += ["--prerelease", "allow"]
        if self.needs.prefer_runtime:
            # An override stands in for every wish about a package, also those of other packages.
            (self.folder / "overrides.txt").write_text("\n".join([*self._runtime_pins(), ""]))
            words += ["--override", "overrides.txt"]
        return words

    def _runtime_pins(self) -> list[str]:
        versions = ((one.name, self.installed.version(one.name)) for one in self.installed)
        return [f"{name}=={version}" for name, version in versions if version is not None]


def _new_lines(compiled: str, wanted: Wanted, installed: Installed) -> tuple[str, ...]:
    """What uv chose, without what the runtime has in that version; hashes the user gave are put back."""
    hashes = {name_of(line): hashes_of(line) for line in wanted.requirements if hashes_of(line)}
    lines = []
    for line in compiled.splitlines():
        text = line.strip()
        if not text or text.startswith(("#", "-")):
            continue
        name = name_of(text)
        pinned = re.fullmatch(r"[^=]+==(\S+).*", text)
        if name and pinned and installed.version(name) == pinned[1]:
            continue
        lines.append(" ".join([text, *(f"--hash={one}" for one in hashes.get(name, ()))]))
    return tuple(lines)
