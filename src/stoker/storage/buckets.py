"""Find where each bucket really is: by the settings, or in the home when there are no credentials."""

import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from stoker.host.home import Home
from stoker.storage.bucket import BucketFolder
from stoker.storage.credentials import CREDENTIALS, has_credentials
from stoker.storage.files import Files
from stoker.storage.object_store import ObjectStore
from stoker.storage.settings import StorageSettings, Target, read_settings
from stoker.storage.url import StorageUrl, is_bucket


class Buckets:
    """Settings first. Without one, `s3://` is S3, and `gs://` is Google's if its credentials variable is set."""

    def __init__(self, home: Path, settings: StorageSettings, environment: Mapping[str, str]) -> None:
        self._home = home
        self._settings = settings
        self._environment = environment
        self._stores: dict[tuple[str, str], ObjectStore] = {}
        self._lock = threading.Lock()

    @classmethod
    def of_home(cls, home: Path, environment: Mapping[str, str] | None = None) -> "Buckets":
        """As the home's config.toml says; ConfigError."""
        return cls(home, read_settings(home / "config.toml"), os.environ if environment is None else environment)

    def store(self, place: StorageUrl) -> ObjectStore:
        """The place's bucket; the same object each time."""
        with self._lock:
            key = (place.scheme, place.bucket)
            if key not in self._stores:
                self._stores[key] = self._open_store(place)
            return self._stores[key]

    def where(self, place: StorageUrl) -> str:
        """One line for a person: where this leads, and by which setting."""
        if place.scheme == "file":
            return f"{place} is a file of this machine"
        store = self.store(place)
        found = self._settings.find(place.scheme, place.bucket)
        if found is not None:
            return f"{place.bucket_url} is {store.where()} (config.toml: {found[0]})"
        if self.is_by_default(place):
            return (
                f"{place.bucket_url} is {store.where()}, because there are no Google credentials ({CREDENTIALS})"
                " and no setting for it ([storage.buckets] in config.toml)"
            )
        return f"{place.bucket_url} is {store.where()}"

    def is_by_default(self, place: StorageUrl) -> bool:
        """Whether the bucket is in the home because nobody said anything: worth a line to the person."""
        return place.scheme == "gs" and isinstance(self.store(place), BucketFolder) and not self._is_set(place)

    def names(self, scheme: str) -> Iterator[str]:
        """The buckets that are known here: those in the settings, and the folders that are there."""
        start = f"{scheme}://"
        found = {source[len(start) :] for source in self._settings.buckets if source.startswith(start)} - {"*"}
        folder = self._open_folder(scheme)
        if folder is not None and folder.is_dir():
            found |= {path.name for path in folder.iterdir() if path.is_dir() and is_bucket(path.name)}
        yield from sorted(found)

    def is_open(self, place: StorageUrl) -> bool:
        """Whether a bucket of any name is there as soon as somebody writes to it, this one too."""
        return self._open_folder(place.scheme) is not None and place.bucket_url not in self._settings.buckets

    def needs_gateway(self) -> bool:
        """Whether some `gs://` bucket is elsewhere than at Google, so that Google's clients must be led there."""
        mapped = [target for source, target in self._settings.buckets.items() if source.startswith("gs://")]
        return self._open_folder("gs") is not None or any(target.scheme != "gs" for target in mapped)

    def folders(self, scheme: str) -> dict[str, str]:
        """By bucket, and `*` for all others: the folder it is in (of `*`, one for each), or the store's name."""
        start = f"{scheme}://"
        found = {}
        for source, target in self._settings.buckets.items():
            if source.startswith(start):
                is_same = target.scheme == scheme and not target.bucket and not target.endpoint_url
                other = f"{target.scheme}://{target.bucket}".removesuffix("://")
                found[source[len(start) :]] = target.path if target.scheme == "file" else scheme if is_same else other
        folder = self._open_folder(scheme)
        return found if folder is None else {**found, "*": str(folder)}

    def _open_store(self, place: StorageUrl) -> ObjectStore:
        if place.scheme == "file":
            return Files()
        folder = self._open_folder(place.scheme)
        if folder is not None and self.is_open(place):
            return BucketFolder(folder / place.bucket, url=place.bucket_url, may_make=True)
        found = self._settings.find(place.scheme, place.bucket)
        target = found[1] if found else Target(place.scheme)
        if target.scheme == "file":
            return BucketFolder(Path(target.path), url=place.bucket_url, may_make=False)
        from stoker.storage.remote import RemoteBucket  # noqa: PLC0415  most homes have all on their disks

        return RemoteBucket(
            target,
            bucket=place.bucket,
            url=place.bucket_url,
            spool=Home(self._home).buckets / ".spool",
            environment=self._environment,
        )

    def _open_folder(self, scheme: str) -> Path | None:
        """The folder that takes buckets nobody named: that of `SCHEME://*`, or the home's own without credentials."""
        target = self._settings.buckets.get(f"{scheme}://*")
        if target is not None:
            return Path(target.path) if target.scheme == "file" else None
        return Home(self._home).buckets if scheme == "gs" and not has_credentials(self._environment) else None

    def _is_set(self, place: StorageUrl) -> bool:
        return self._settings.find(place.scheme, place.bucket) is not None
