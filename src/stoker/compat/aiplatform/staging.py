"""`--staging-bucket`: the code that a job ships, laid out as AI Platform did: BUCKET/JOB/HASH/NAME.tar.gz."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.host.home import Home
    from stoker.submission.shipment import Code, Shipment


def checked_bucket(text: str) -> str:
    """A bucket, and nothing in it, as gcloud has it. UsageError."""
    if not re.fullmatch(r"(?:gs|s3)://[^/]+/?", text):
        raise UsageError(f"--staging-bucket {text}: must be of form gs://bucket.")
    return text.rstrip("/")


def stage(shipment: "Shipment", code: "Code | None", *, bucket: str, job: str, home: "Home") -> tuple[str, ...]:
    """Copy the package and the archives beside it; returns their URLs in AI Platform's order: archives, then package.

    HASH is the sha256 of all their contents, one after another.
    """
    from stoker.storage import Storage

    files = {archive.file.name: archive.file for archive in shipment.archives}
    if shipment.package is not None:
        files[package_name(code)] = shipment.package.file
    if not files:
        return ()
    storage = Storage(home.root)
    folder = f"{bucket}/{job}/{_hash(files.values())}"
    for name, file in files.items():
        storage.copy(file, f"{folder}/{name}")
    return tuple(f"{folder}/{name}" for name in files)


def package_name(code: "Code | None") -> str:
    """`taxifare-1.0.tar.gz`, as its own setup.py would call it; after its folder without one."""
    name = code.project.name if code is not None else None
    version = code.project.version if code is not None else None
    if code is not None and name is None:
        name = code.tree.source.root.resolve().name
    word = re.sub(r"[^A-Za-z0-9._-]+", "_", name or "package").strip("._-") or "package"
    return f"{word}-{version or '0.0.0'}.tar.gz"


def _hash(files: "Iterable[Path]") -> str:
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()
