"""What a job needs of its environment, as plain values: schema's EnvironmentSpec without pydantic.

The supervisor reads run.json without pydantic (140 ms on a small machine); it passes the JSON object itself.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.errors import StokerError, UsageError
from stoker.host.home import Home

if TYPE_CHECKING:
    from stoker.schema.job import EnvironmentSpec

_FORMAT = 3  # of environments; raised when they are made differently


@dataclass(frozen=True, slots=True)
class Needs:
    """EnvironmentSpec's fields, but for the variables, which are the replicas' and not the environment's."""

    runtime: str | None = None
    python: str | None = None
    requirements: tuple[str, ...] = ()
    archives: tuple[tuple[str, str], ...] = ()  # hash and filename
    prefer_runtime: bool = False

    @classmethod
    def of(cls, spec: "EnvironmentSpec | Mapping[str, Any]") -> "Needs":
        if not isinstance(spec, Mapping):
            return cls.of(spec.model_dump())
        return cls(
            runtime=spec.get("runtime"),
            python=spec.get("python"),
            requirements=tuple(line.strip() for line in spec.get("requirements", ()) if line.strip()),
            archives=tuple((archive["hash"], archive["filename"]) for archive in spec.get("archives", ())),
            prefer_runtime=bool(spec.get("prefer_runtime", False)),
        )

    def key(self, *, fingerprint: str, provided: str) -> str:
        """The name of the environment: the same needs on the same runtime are the same environment."""
        parts = [_FORMAT, fingerprint, provided, sorted(self.requirements), sorted(self.archives), self.prefer_runtime]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]

    def archive_files(self, home: Home) -> list[Path]:
        """Where the archives are; StokerError when one was not brought here."""
        files = []
        for hash, filename in self.archives:
            if Path(filename).name != filename or Path(hash).name != hash:
                raise UsageError(f"{filename!r} is not the name of an archive.")
            file = home.archive_file(hash, filename)
            if not file.is_file():
                raise StokerError(f"The archive {filename} is not here ({file}); it should have been brought first.")
            files.append(file)
        return files
