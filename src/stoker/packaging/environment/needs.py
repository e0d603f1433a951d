"""What a job needs of its environment: what an environment is made of, and named by."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.errors import StokerError
from stoker.host.home import Home
from stoker.schema.launch import EnvironmentSpec

_FORMAT = 3  # of environments; raised when they are made differently


@dataclass(frozen=True, slots=True)
class Needs:
    """EnvironmentSpec's fields, but for the variables, which are the replicas' and not the environment's."""

    runtime: str | None = None
    python: str | None = None
    requirements: tuple[str, ...] = ()
    archives: tuple[tuple[str, str], ...] = ()  # hash and filename
    prefer_runtime: bool = False
    as_of: str | None = None  # a day: nothing that was uploaded later is installed

    @classmethod
    def of(cls, spec: EnvironmentSpec | Mapping[str, Any]) -> "Needs":
        if isinstance(spec, Mapping):
            spec = EnvironmentSpec.from_json(spec)
        return cls(
            runtime=spec.runtime,
            python=spec.python,
            requirements=tuple(line.strip() for line in spec.requirements if line.strip()),
            archives=tuple((archive.hash, archive.filename) for archive in spec.archives),
            prefer_runtime=bool(spec.prefer_runtime),
            # `auto` and `today` are for submission, which leaves a day or nothing.
            as_of=spec.as_of if spec.as_of not in ("auto", "today") else None,
        )

    def key(self, *, fingerprint: str, provided: str) -> str:
        """The name of the environment: the same needs on the same runtime are the same environment."""
        parts = [_FORMAT, fingerprint, provided, sorted(self.requirements), sorted(self.archives), self.prefer_runtime]
        if self.as_of is not None:
            parts.append(self.as_of)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]

    def archive_files(self, home: Home) -> list[Path]:
        """Where the archives are; StokerError when one was not brought here."""
        files = []
        for hash, filename in self.archives:
            file = home.archive_file(hash, filename)
            if not file.is_file():
                raise StokerError(f"The archive {filename} is not here ({file}); it should have been brought first.")
            files.append(file)
        return files
