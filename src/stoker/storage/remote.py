"""A bucket in an object store far away, by fsspec: Google Cloud Storage or anything that speaks S3."""

import contextlib
import errno
import importlib
import os
import re
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

from stoker.errors import NotFoundError, StokerError, UsageError
from stoker.formats.checksum import is_crc32c_fast, md5_from_hex
from stoker.storage.draft import Draft
from stoker.storage.files import make_draft
from stoker.storage.object_store import Check, DeniedError, Folder, StoredObject, no_check
from stoker.storage.settings import Target

_GCS_FIELDS = ("contentType", "contentEncoding", "contentDisposition", "contentLanguage", "cacheControl", "customTime")
_S3_FIELDS = {"contentType": "ContentType", "contentEncoding": "ContentEncoding", "cacheControl": "CacheControl"}
_S3_OURS = "stoker-"  # checksums ride along as user metadata: S3 tells none of a multipart upload


class RemoteBucket:
    """Drafts are spooled in a folder of this machine and uploaded whole, so that nothing half is ever seen there."""

    def __init__(self, target: Target, *, bucket: str, url: str, spool: Path, environment: Mapping[str, str]) -> None:
        self.url = url
        self._target = target
        self._spool = spool
        self._environment = environment
        self._bucket = target.bucket or bucket
        self._base = f"{self._bucket}/{target.path}".rstrip("/")
        self._lock = threading.Lock()
        self._opened: Any = None

    def stat(self, key: str) -> StoredObject | None:
        if not key or key.endswith("/"):
            return None
        with self._explained(key):
            try:
                if self._target.scheme == "s3":
                    return _from_s3(key, self._fs.call_s3("head_object", **self._s3_name(key)))
                found = self._fs.info(f"{self._base}/{key}")
            except FileNotFoundError:
                return None
            return _from_gcs(key, found) if found["type"] == "file" else None

    def with_checksums(self, found: StoredObject) -> StoredObject:
        return found

    def list(self, prefix: str = "", *, folders: bool = False, after: str = "") -> Iterator[StoredObject | Folder]:
        start = prefix.rpartition("/")[0]
        folder = f"{self._base}/{start}".rstrip("/")
        with self._explained(prefix):
            try:
                if folders:
                    found = {item["name"]: item for item in self._fs.ls(folder, detail=True)}
                else:
                    found = self._fs.find(folder, detail=True)
            except FileNotFoundError:
                return
            shown = []
            for name, item in found.items():
                if item["type"] == "directory":
                    name = name.rstrip("/") + "/"
                elif name.endswith("/") and not item["size"]:
                    continue  # an empty `folder/`, as web consoles make them
                key = name.removeprefix(f"{self._base}/")
                if key.startswith(prefix) and key > after and key not in ("", start + "/"):
                    shown.append((key, item))
            for key, item in sorted(shown, key=lambda each: each[0]):
                yield Folder(key) if item["type"] == "directory" else self._stored(key, item)

    def open(self, key: str) -> BinaryIO:
        with self._explained(key):
            return cast(BinaryIO, self._fs.open(f"{self._base}/{key}", "rb", block_size=8 << 20))

    def draft(self, key: str, *, resume: str | None = None) -> Draft:
        self._spool.mkdir(parents=True, exist_ok=True)
        return make_draft(self._spool, prefix="", key=f"{self.url}/{key}", resume=resume)

    def commit(
        self, key: str, draft: Draft, *, attributes: Mapping[str, Any] | None = None, check: Check = no_check
    ) -> StoredObject:
        # Held within this process only: between processes these stores decide who is first to create, and who is last.
        with self._lock, self._explained(key):
            self._upload(key, draft, self._upload_options(draft, attributes or {}), check)
            made = self.stat(key)
            if made is None or made.size != draft.size or (made.md5 and made.md5 != draft.md5):
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm_file(f"{self._base}/{key}")
                raise StokerError(f"{self.url}/{key}: what arrived is not what was sent; it was removed. Try again.")
        draft.discard()
        return replace(made, md5=draft.md5, crc32c=made.crc32c or draft.crc32c)

    def _upload(self, key: str, draft: Draft, options: Mapping[str, Any], check: Check) -> None:
        """With a check, an object that was not there is created on condition that it still is not."""
        source, target = str(draft.path), f"{self._base}/{key}"
        current = self.stat(key) if check is not no_check else None
        check(current)
        if check is not no_check and current is None:
            try:
                self._fs.put_file(source, target, mode="create", **options)
                return
            except OSError as error:
                if not _is_refused_create(error):
                    raise
            check(self.stat(key))
        self._fs.put_file(source, target, **options)

    def update(self, key: str, attributes: Mapping[str, Any], *, check: Check = no_check) -> StoredObject:
        with self._lock, self._explained(key):
            current = self.stat(key)
            check(current)
            if current is None:
                raise NotFoundError(f"{self.url}/{key}: no such object ({self.where()}).")
            if self._target.scheme == "gs":
                metadata = {**dict.fromkeys(current.attributes.get("metadata", {})), **_metadata(attributes)}
                self._fs.setxattrs(f"{self._base}/{key}", content_type=attributes.get("contentType"), **metadata)
            else:
                name = self._s3_name(key)
                options = _s3_options(attributes, md5=current.md5, crc32c=current.crc32c)
                self._fs.call_s3("copy_object", CopySource=name, MetadataDirective="REPLACE", **name, **options)
        found = self.stat(key)
        if found is None:
            raise NotFoundError(f"{self.url}/{key}: it vanished while its attributes were changed.")
        return found

    def remove(self, key: str, *, check: Check = no_check) -> None:
        with self._lock, self._explained(key):
            current = self.stat(key)
            check(current)
            if current is None:
                raise NotFoundError(f"{self.url}/{key}: no such object ({self.where()}).")
            self._fs.rm_file(f"{self._base}/{key}")

    def local_path(self, key: str) -> Path | None:
        return None

    def exists(self) -> bool:
        with self._explained(""):
            return bool(self._fs.exists(self._bucket))

    def where(self) -> str:
        scheme = self._target.scheme
        at = f" at {self._target.endpoint_url}" if self._target.endpoint_url else ""
        return f"{scheme}://{self._base}{at}"

    @property
    def _fs(self) -> Any:
        if self._opened is None:
            self._opened = self._connect()
        return self._opened

    def _connect(self) -> Any:
        """The file system of gcsfs or s3fs; a missing extra or credential is one line."""
        module, extra = ("gcsfs", "gcs") if self._target.scheme == "gs" else ("s3fs", "s3")
        try:
            # Not gcsfs.GCSFileSystem: where it can, that is a subclass which asks Google by gRPC what kind of bucket
            # this is, before each operation and whatever the endpoint.
            library = importlib.import_module("gcsfs.core" if module == "gcsfs" else module)
        except ImportError as error:
            raise UsageError(
                f"{self.url} ({self.where()}) needs {module}. Install it with `pip install 'stoker[{extra}]'`."
            ) from error
        if self._target.scheme == "gs":
            return library.GCSFileSystem(**self._gcs_options())
        return library.S3FileSystem(**self._s3_options())

    def _gcs_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
        if self._target.endpoint_url:
            options["endpoint_url"] = self._target.endpoint_url
        if self._target.project:
            options["project"] = self._target.project
        if self._target.anonymous:
            options["token"] = "anon"
        elif file := self._environment.get("GOOGLE_APPLICATION_CREDENTIALS"):
            if not os.path.isfile(file):
                raise UsageError(f"{self.url}: GOOGLE_APPLICATION_CREDENTIALS names {file}, which is not there.")
            options["token"] = file
        return options

    def _s3_options(self) -> dict[str, Any]:
        target = self._target
        options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True, "anon": target.anonymous}
        if target.endpoint_url:
            options["endpoint_url"] = target.endpoint_url
        if target.region:
            options["client_kwargs"] = {"region_name": target.region}
        for option, variable in (("key", target.key_variable), ("secret", target.secret_variable)):
            if variable:
                if not self._environment.get(variable):
                    raise UsageError(f"{self.url}: its {option} is to be in {variable}, which is not set.")
                options[option] = self._environment[variable]
        return options

    def _upload_options(self, draft: Draft, attributes: Mapping[str, Any]) -> dict[str, Any]:
        if self._target.scheme == "gs":
            fixed = {_snake(name): attributes[name] for name in _GCS_FIELDS[1:] if name in attributes}
            return {
                "content_type": attributes.get("contentType"),
                "metadata": _metadata(attributes) or None,
                "fixed_key_metadata": fixed or None,
            }
        return _s3_options(attributes, md5=draft.md5, crc32c=draft.crc32c if is_crc32c_fast() else "")

    def _s3_name(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._base}/{key}".partition("/")[2]}

    def _stored(self, key: str, found: Mapping[str, Any]) -> StoredObject:
        if self._target.scheme == "gs":
            return _from_gcs(key, found)
        return _from_s3(key, found)

    @contextlib.contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        """Whatever fsspec and the libraries below it raise, as one line with the URL and the variable to look at."""
        url = f"{self.url}/{key}".rstrip("/")
        try:
            yield
        except (StokerError, GeneratorExit):
            raise
        except FileNotFoundError as error:
            raise NotFoundError(f"{url}: not there ({self.where()}).") from error
        except Exception as error:  # noqa: BLE001  gcsfs, s3fs, aiohttp, botocore and google.auth share no base class
            said = _one_line(str(error))
            if isinstance(error, PermissionError) or re.search(r"Forbidden|Unauthorized|Access ?Denied", said):
                hint = self._credentials_hint()
                raise DeniedError(f"{url}: permission denied by {self.where()} ({said}). {hint}") from error
            raise StokerError(f"{url}: {self._in_words(type(error).__name__, said)}") from error

    def _in_words(self, kind: str, said: str) -> str:
        if re.search("Credential|RefreshError|TransportError|InvalidAccessKey|SignatureDoesNotMatch", kind + said):
            return f"no valid credentials for {self.where()} ({said}). {self._credentials_hint()}"
        if re.search("Connect|Timeout|NameResolution|Cannot reach", kind):
            return f"cannot reach {self.where()} ({said})."
        return f"{self.where()} answered: {said or kind}"

    def _credentials_hint(self) -> str:
        if self._target.scheme == "gs":
            return "Look at GOOGLE_APPLICATION_CREDENTIALS."
        key = self._target.key_variable or "AWS_ACCESS_KEY_ID"
        secret = self._target.secret_variable or "AWS_SECRET_ACCESS_KEY"
        return f"Look at {key} and {secret}."


def _is_refused_create(error: OSError) -> bool:
    """Another writer was first; or this is a server that speaks S3 without conditional writes."""
    reason = f"{error} {error.__cause__}"
    return (
        isinstance(error, FileExistsError)
        or error.errno == errno.ENOSYS
        or re.search("PreconditionFailed|ConditionalRequestConflict", reason) is not None
    )


def _from_gcs(key: str, found: Mapping[str, Any]) -> StoredObject:
    attributes = {name: found[name] for name in (*_GCS_FIELDS, "metadata", "componentCount") if name in found}
    return StoredObject(
        key=key,
        size=int(found["size"]),
        generation=int(found.get("generation") or 1),
        metageneration=int(found.get("metageneration") or 1),
        crc32c=found.get("crc32c", ""),
        md5=found.get("md5Hash", ""),
        created=_seconds(found.get("ctime")),
        updated=_seconds(found.get("mtime")),
        attributes=attributes,
    )


def _from_s3(key: str, found: Mapping[str, Any]) -> StoredObject:
    etag = str(found.get("ETag", "")).strip('"')
    written = _seconds(found.get("LastModified"))
    metadata = dict(found.get("Metadata") or {})
    ours = {name: metadata.pop(name) for name in list(metadata) if name.startswith(_S3_OURS)}
    attributes: dict[str, Any] = {name: found[given] for name, given in _S3_FIELDS.items() if found.get(given)}
    if metadata:
        attributes["metadata"] = metadata
    return StoredObject(
        key=key,
        size=int(found["size"] if "size" in found else found["ContentLength"]),
        # S3 tells whole seconds; the entity tag makes two writes within one distinct.
        generation=int(written) * 1_000_000 + zlib.crc32(etag.encode()) % 1_000_000 or 1,
        crc32c=ours.get(f"{_S3_OURS}crc32c", ""),
        md5=ours.get(f"{_S3_OURS}md5") or md5_from_hex(etag),
        created=written,
        updated=written,
        attributes=attributes,
    )


def _s3_options(attributes: Mapping[str, Any], *, md5: str, crc32c: str) -> dict[str, Any]:
    options = {_S3_FIELDS[name]: attributes[name] for name in _S3_FIELDS if name in attributes}
    sums = {f"{_S3_OURS}md5": md5, f"{_S3_OURS}crc32c": crc32c}
    return {**options, "Metadata": _metadata(attributes) | {name: value for name, value in sums.items() if value}}


def _metadata(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return dict(attributes.get("metadata") or {})


def _seconds(when: object) -> float:
    return when.timestamp() if isinstance(when, datetime) else 0.0


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda match: "_" + match[0].lower(), name)


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 200 else text[:197] + "..."
