"""A URL taken apart: which scheme, which bucket, which key inside it."""

import os
import re
from dataclasses import dataclass

from stoker.errors import UsageError

BUCKET_RULE = "3 to 222 of a-z, 0-9, '.', '_' and '-', starting and ending with a letter or digit"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_ALIASES = {"gcs": "gs", "s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True, slots=True)
class StorageUrl:
    """`gs://BUCKET/KEY`, `s3://BUCKET/KEY`, or a file: then the bucket is empty and the key an absolute path."""

    scheme: str
    bucket: str
    key: str

    @classmethod
    def parse(cls, url: str | os.PathLike[str]) -> "StorageUrl":
        """UsageError for what is no place at all. A trailing slash is kept: it says that a folder is meant."""
        text = os.fspath(url)
        match = _SCHEME.fullmatch(text)
        if match is None:
            return cls._file(text)
        scheme, rest = match[1].lower(), match[2]
        scheme = _ALIASES.get(scheme, scheme)
        if scheme == "file":
            return cls._file("/" + rest.removeprefix("localhost").lstrip("/"))
        if scheme not in ("gs", "s3"):
            raise UsageError(f"{text}: no storage of the kind {scheme}://. Give a path, file://, gs:// or s3://.")
        bucket, _, key = rest.partition("/")
        if not is_bucket(bucket):
            raise UsageError(f"{text}: {bucket!r} is no bucket's name. Write {scheme}://BUCKET/KEY ({BUCKET_RULE}).")
        return cls(scheme, bucket, key)

    @classmethod
    def _file(cls, path: str) -> "StorageUrl":
        if not path:
            raise UsageError("An empty path is no place. Give a path, file://, gs:// or s3://.")
        folder = "/" if path.endswith("/") else ""
        absolute = os.path.abspath(path)
        return cls("file", "", absolute if absolute == "/" else absolute + folder)

    @property
    def bucket_url(self) -> str:
        return "file://" if self.scheme == "file" else f"{self.scheme}://{self.bucket}"

    @property
    def name(self) -> str:
        """The last word of the key."""
        return self.key.rstrip("/").rpartition("/")[2]

    def at(self, key: str) -> "StorageUrl":
        """Another key of the same bucket."""
        return StorageUrl(self.scheme, self.bucket, key)

    def __str__(self) -> str:
        return self.key if self.scheme == "file" else f"{self.scheme}://{self.bucket}/{self.key}"


def is_bucket(name: str) -> bool:
    return _BUCKET.fullmatch(name) is not None


def as_folder(key: str) -> str:
    """The prefix of all that is under a key."""
    return key if not key or key.endswith("/") else key + "/"
