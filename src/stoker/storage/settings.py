"""The `[storage]` table of config.toml: which bucket lives where.

    [storage.buckets]
    "gs://my-bucket" = "/data/my-bucket"          # a folder, which must be there
    "gs://*" = "/data/buckets"                    # every other bucket: a folder of its own in this one
    "gs://models" = "s3://other/prefix"           # another store
    "gs://archive" = "gcs"                        # the real Google Cloud Storage, whatever `gs://*` says
    "s3://*" = { root = "s3", endpoint_url = "http://minio:9000", key_variable = "MINIO_KEY",
                 secret_variable = "MINIO_SECRET" }

Read without pydantic: supervisors and the gateway read it at their start, and it would double their time.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.errors import ConfigError
from stoker.storage.url import BUCKET_RULE, is_bucket

_SOURCE = re.compile(r"(gs|s3)://(\*|[^/*]+)")
_REMOTE = re.compile(r"(gs|s3)://([^/]+)(?:/(.*))?", re.DOTALL)
_OPTIONS = {
    "endpoint_url": str,
    "region": str,
    "project": str,
    "anonymous": bool,
    "key_variable": str,
    "secret_variable": str,
}
_ONLY_FOR = {"region": "s3", "key_variable": "s3", "secret_variable": "s3", "project": "gs"}


@dataclass(frozen=True, slots=True)
class Target:
    """Where a bucket lives. `scheme` is file, gs or s3; an empty `bucket` means the same name as was asked for."""

    scheme: str
    path: str = ""  # the folder; or the prefix inside the bucket
    bucket: str = ""
    endpoint_url: str = ""
    region: str = ""
    project: str = ""
    anonymous: bool = False
    key_variable: str = ""
    secret_variable: str = ""


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """By source: `gs://my-bucket`, `gs://*`."""

    buckets: Mapping[str, Target]

    def find(self, scheme: str, bucket: str) -> tuple[str, Target] | None:
        """The setting for a bucket, and the source it was written under."""
        for source in (f"{scheme}://{bucket}", f"{scheme}://*"):
            if source in self.buckets:
                return source, self.buckets[source]
        return None


def read_settings(config: Path) -> StorageSettings:
    """Of this table alone; the others in the file are for others to read. ConfigError names every bad field."""
    try:
        text = config.read_text(encoding="utf-8")
    except FileNotFoundError:
        return StorageSettings({})
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{config} cannot be read: {error}.") from error
    import tomllib  # noqa: PLC0415  only homes with settings pay for it

    try:
        table = tomllib.loads(text).get("storage", {})
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{config} is not TOML: {error}.") from error
    return parse_settings(table, source=str(config))


def parse_settings(table: object, *, source: str) -> StorageSettings:
    problems: list[str] = []
    buckets: dict[str, Target] = {}
    if not isinstance(table, dict):
        raise ConfigError(f"{source} has 1 bad field:", ["storage: must be a table"])
    problems += [f"storage.{name}: no such field" for name in table if name != "buckets"]
    entries = table.get("buckets", {})
    if not isinstance(entries, dict):
        problems.append("storage.buckets: must be a table of bucket = root")
        entries = {}
    for name, value in entries.items():
        path = f'storage.buckets."{name}"'
        problems += _bad_source(name, path)
        target = _target(value, path, problems)
        if target is not None:
            buckets[name] = target
    if problems:
        raise ConfigError(f"{source} has {len(problems)} bad field{'s' if len(problems) > 1 else ''}:", problems)
    return StorageSettings(buckets)


def _bad_source(name: str, path: str) -> list[str]:
    match = _SOURCE.fullmatch(name)
    if match is None:
        return [f"{path}: must be gs://BUCKET, s3://BUCKET, gs://* or s3://*, without a path"]
    if match[2] != "*" and not is_bucket(match[2]):
        return [f"{path}: {match[2]!r} is no bucket's name ({BUCKET_RULE})"]
    return []


def _target(value: object, path: str, problems: list[str]) -> Target | None:
    if isinstance(value, str):
        return _root(value, path, {}, problems)
    if not isinstance(value, dict):
        problems.append(f"{path}: must be a root, or a table with `root` (got {value!r})")
        return None
    options: dict[str, Any] = {}
    for name, given in value.items():
        if name == "root":
            continue
        if name not in _OPTIONS:
            problems.append(f"{path}.{name}: no such field. Known: root, {', '.join(_OPTIONS)}")
        elif type(given) is not _OPTIONS[name]:
            problems.append(f"{path}.{name}: must be a {_OPTIONS[name].__name__} (got {given!r})")
        else:
            options[name] = given
    root = value.get("root")
    if not isinstance(root, str):
        problems.append(f"{path}.root: is required, and text")
        return None
    return _root(root, f"{path}.root", options, problems)


def _root(text: str, path: str, options: dict[str, Any], problems: list[str]) -> Target | None:
    target = _folder(text) if text.startswith(("/", "~", "file://")) else _remote(text)
    if target is None:
        problems.append(f"{path}: must be an absolute folder, gcs, s3, gs://BUCKET/… or s3://BUCKET/… (got {text!r})")
        return None
    for name in options:
        only_for = _ONLY_FOR.get(name, target.scheme)
        if target.scheme == "file" or only_for != target.scheme:
            problems.append(f"{path.removesuffix('.root')}.{name}: means nothing for {text}")
            return None
    return Target(scheme=target.scheme, path=target.path, bucket=target.bucket, **options)


def _folder(text: str) -> Target:
    return Target("file", path=str(Path(text.removeprefix("file://")).expanduser()))


def _remote(text: str) -> Target | None:
    if text in ("gcs", "s3"):
        return Target("gs" if text == "gcs" else "s3")
    match = _REMOTE.fullmatch(text)
    if match is None or not is_bucket(match[2]):
        return None
    return Target(match[1], bucket=match[2], path=(match[3] or "").strip("/"))
