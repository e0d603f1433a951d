"""Determined's startup-hook.sh: sourced before the entrypoint. Its `pip install` lines become the job's requirements.

In a container they were installed again for every trial; as requirements they are installed once, and checked before
the job is stored.
"""

import shlex
from typing import TYPE_CHECKING

from stoker.compat.migrate.hooks import read_hook
from stoker.compat.mounts import with_links
from stoker.submission.reading import JobValues, origin_of, overlay

if TYPE_CHECKING:
    from stoker.submission.shipment import Code, Notify

NAME = "startup-hook.sh"
# One rank at a time: a hook may write to the package's folder, which all ranks share.
_LOCKED = "exec 9>.startup-hook.lock; flock 9 2>/dev/null || true; set -e\n{hook}\nset +e; exec 9>&-\n"


def apply_startup_hook(values: JobValues, code: "Code", notify: "Notify") -> tuple[JobValues, "Code"]:
    """The job with its mounts and hook in front of its command; unchanged without any, and if not Determined's."""
    return with_links(_with_hook(values, code, notify)), code


def _with_hook(values: JobValues, code: "Code", notify: "Notify") -> JobValues:
    if NAME not in code.tree.paths or origin_of(values).get("platform") != "determined":
        return values
    hook = read_hook(code.tree.source.root)
    if hook.system:
        notify(f"{NAME} wants {', '.join(hook.system)} of apt: the machines that run the job must have it.")
    if hook.requirements:
        notify(f"{NAME} installs {', '.join(hook.requirements)}: installed with the job's environment instead.")
        own = list(values.get("environment", {}).get("requirements", ()))
        values = overlay(values, {"environment": {"requirements": [*own, *hook.requirements]}})
    if not hook.left:
        return values
    words = list(values["command"])
    entry = words[2] if words[:2] == ["sh", "-c"] else f"exec {shlex.join(words)}"
    return {**values, "command": ["bash", "-c", _LOCKED.format(hook=hook.left) + entry]}
