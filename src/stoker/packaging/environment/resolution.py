"""What to install for a job, worked out once: by `stoker check`, by submit, or by the run itself."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stoker.atomic import replace_file
from stoker.host.home import Home


@dataclass(frozen=True, slots=True)
class Resolution:
    """How to meet some needs: nothing to do, exact lines for uv to install, or the lines as they are for pip.

    An archive is "archive:FILENAME" in its line: where it lies when this is worked out is not where it will lie.
    """

    installer: Literal["none", "uv", "pip"]
    lines: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """For people: `six==1.17.0`."""
        return tuple(line.split(" --")[0].split(" @ ")[0].removeprefix("archive:") for line in self.lines)

    def located(self, archives: Sequence[Path]) -> "Resolution":
        """With the archives' places for their names."""
        lines = list(self.lines)
        for file in archives:
            lines = [line.replace(f"archive:{file.name}", file.as_uri()) for line in lines]
        return Resolution(self.installer, tuple(lines))


def remembered(home: Home, key: str) -> Resolution | None:
    try:
        kept = json.loads(_file(home, key).read_bytes())
        return Resolution(kept["installer"], tuple(kept["lines"]))
    except (OSError, ValueError, KeyError):
        return None


def remember(home: Home, key: str, resolution: Resolution) -> None:
    file = _file(home, key)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, json.dumps(dataclasses.asdict(resolution)), mode=0o600)


def forget(home: Home, key: str) -> None:
    """What was found to fit may have been withdrawn since; after a failed install it is worked out again."""
    _file(home, key).unlink(missing_ok=True)


def _file(home: Home, key: str) -> Path:
    return home.environments / "resolutions" / f"{key}.json"
