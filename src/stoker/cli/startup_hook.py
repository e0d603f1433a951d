"""Determined's startup-hook.sh: sourced before the entrypoint. Its `pip install` lines become the job's requirements.

In a container they were installed again for every trial; as requirements they are installed once, and checked before
the job is stored.
"""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.cli.output import say
from stoker.schema.dialects.reading import Values, overlay

if TYPE_CHECKING:
    from stoker.cli.shipment import Code

NAME = "startup-hook.sh"
# One rank at a time: a hook may write to the package's folder, which all ranks share.
_LOCKED = "exec 9>.startup-hook.lock; flock 9 2>/dev/null || true; set -e\n{hook}\nset +e; exec 9>&-\n"


def with_startup_hook(values: Values, code: "Code") -> Values:
    """The job with its hook in front of its command; as it is when it has none, or is not of Determined's making."""
    if NAME not in code.tree.paths or "stoker" not in values.get("data", {}):
        return values
    root = code.tree.source.root
    hook, requirements = split_hook((root / NAME).read_text(encoding="utf-8", errors="replace"), beside=root)
    if requirements:
        say(f"{NAME} installs {', '.join(requirements)}: installed with the job's environment instead.")
        own = list(values.get("environment", {}).get("requirements", ()))
        values = overlay(values, {"environment": {"requirements": [*own, *requirements]}})
    if not hook:
        return values
    words = list(values["command"])
    entry = words[2] if words[:2] == ["sh", "-c"] else f"exec {shlex.join(words)}"
    return {**values, "command": ["bash", "-c", _LOCKED.format(hook=hook) + entry]}


def split_hook(text: str, *, beside: Path) -> tuple[str, list[str]]:
    """What is left of a hook to be run, and what it would have installed."""
    from stoker.compat.migrate.containers import PIP, pip_packages

    rest: list[str] = []
    requirements: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        found = PIP.fullmatch(line.strip().removeprefix("sudo ").strip())
        if found:
            requirements += pip_packages(found[1], beside=beside)
        else:
            rest.append(line)
    is_code = any(line.strip() and not line.lstrip().startswith("#") for line in rest)
    only_settings = all(re.fullmatch(r"\s*(#.*|set [-+]\w+)?\s*", line) for line in rest)
    return ("\n".join(rest) if is_code and not only_settings else ""), requirements
