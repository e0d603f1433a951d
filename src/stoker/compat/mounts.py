"""Where things were in Determined's containers, and where they are without one: the working directory, bind mounts.

Paths in a file's values are put right; a mount into the working directory is a link in the job's folder. Code that
itself names a path of the container is not touched.
"""

import os.path
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stoker.submission.reading import Document, JobValues, origin_of

WORKDIR = "/run/determined/workdir"
_FIELDS = ("data", "entrypoint", "environment", "hyperparameters")  # whose texts may be paths
_IN_ENVIRONMENT = "environment_variables"


@dataclass(frozen=True, slots=True)
class Outside:
    """A file whose paths are those of this machine."""

    document: Document
    notes: tuple[str, ...] = ()


def outside(document: Mapping[str, Any]) -> Outside:
    """The file for a machine without containers; as it is where nothing in it is of one."""
    mounts = dict(_mounts(document))
    here = {at: host for at, host in mounts.items() if os.path.exists(host) and not os.path.exists(at)}
    if not os.path.exists(WORKDIR):
        here.setdefault(WORKDIR, ".")
    changed = dict(document)
    used: set[str] = set()
    for name in (name for name in _FIELDS if name in document):
        changed[name] = _put_right(document[name], here, used, is_environment=name == "environment")
    notes = [f"{at} of the container is {_named(here[at])} here" for at in sorted(used)]
    for at, host in mounts.items():
        if not os.path.exists(at) and not os.path.exists(host):
            notes.append(f"bind_mounts: there is no {host} on this machine")
        elif at in here and at not in used and not at.startswith(WORKDIR):
            notes.append(f"bind_mounts: {host} is not mounted at {at}, should the code itself read that")
    return Outside(changed, tuple(notes))


def with_links(values: JobValues) -> JobValues:
    """The job with a link in its folder for each mount into the working directory; as it is without any."""
    document = origin_of(values).get("document", {})
    links = [
        (posixpath.relpath(at, WORKDIR), host)
        for at, host in _mounts(document)
        if at.startswith(f"{WORKDIR}/") and os.path.exists(host)
    ]
    if not links:
        return values
    # Ranks share the folder, and what the package has there itself stays.
    lines = [
        f"[ -e {name} ] || {{ mkdir -p {folder}; ln -s {shlex.quote(host)} {name} 2>/dev/null || true; }}\n"
        for name, folder, host in (
            (shlex.quote(at), shlex.quote(posixpath.dirname(at) or "."), host) for at, host in links
        )
    ]
    words = list(values["command"])
    entry = words[2] if words[:2] in (["sh", "-c"], ["bash", "-c"]) else f"exec {shlex.join(words)}"
    shell = "bash" if words[0] == "bash" else "sh"
    return {**values, "command": [shell, "-c", "".join(lines) + entry]}


def _named(path: str) -> str:
    return "the job's own folder" if path == "." else path


def _mounts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each path in the container, and the host's that is mounted there."""
    for mount in document.get("bind_mounts") or ():
        if isinstance(mount, Mapping) and mount.get("host_path") and mount.get("container_path"):
            at = posixpath.normpath(posixpath.join(WORKDIR, str(mount["container_path"])))
            yield at, posixpath.normpath(str(mount["host_path"]))


def _put_right(value: Any, here: Mapping[str, str], used: set[str], *, is_environment: bool = False) -> Any:
    if isinstance(value, Mapping):
        return {
            name: under if is_environment and name != _IN_ENVIRONMENT else _put_right(under, here, used)
            for name, under in value.items()
        }
    if isinstance(value, list | tuple):
        return [_put_right(under, here, used) for under in value]
    if not isinstance(value, str) or not here:
        return value

    def host(found: re.Match[str]) -> str:
        used.add(found.group())
        return here[found.group()]

    longest_first = sorted(here, key=len, reverse=True)
    return re.sub(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w.-])", host, value)
