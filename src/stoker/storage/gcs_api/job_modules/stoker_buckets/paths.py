"""Where gs:// paths are on this machine's disks, as the supervisor's variable says."""

from __future__ import annotations

import json
import os
from typing import Any

VARIABLE = "STOKER_GS_FOLDERS"
_START = "gs://"
_GOOGLE = "gs"
_KEPT = "stoker-kept://"


class Folders:
    """`{"my-bucket": FOLDER, "*": the folder of all others' folders, "archive": "gs", "models": "s3://…"}`."""

    def __init__(self, entries: dict[str, str]) -> None:
        self._entries = entries

    @classmethod
    def of_environment(cls) -> Folders:
        return cls(json.loads(os.environ.get(VARIABLE) or "{}"))

    def local(self, path: Any) -> Any:
        """The same kind of text: the path of a gs:// URL on this machine; anything else as it came.

        FileNotFoundError when a bucket's own folder is not there (a disk that is not mounted), NotImplementedError
        when the bucket is in another store, ValueError when no file can have the key's name.
        """
        if isinstance(path, bytes):
            return os.fsencode(self.local(os.fsdecode(path))) if path.startswith(_START.encode()) else path
        text = os.fspath(path) if isinstance(path, os.PathLike) else path
        if not isinstance(text, str) or not text.startswith(_START):
            return path
        bucket, _, key = text[len(_START) :].partition("/")
        folder = self.folder(bucket)
        if folder is None:
            return path
        parts = key.split("/")
        if ".." in parts or parts[0] == ".stoker":
            raise ValueError(f"{text}: no file of the bucket's folder can have this name.")
        return f"{folder}/{key}" if key else folder

    def folder(self, bucket: str) -> str | None:
        """None: it is Google's."""
        own = self._entries.get(bucket)
        rest = self._entries.get("*", _GOOGLE)
        if own is None and rest.startswith("/"):
            return f"{rest}/{bucket}"
        found = rest if own is None else own
        if found == _GOOGLE:
            return None
        if not found.startswith("/"):
            raise NotImplementedError(
                f"gs://{bucket} is {found} (config.toml: storage.buckets), and TensorFlow reaches buckets that are"
                " folders of this machine alone. Copy with `stoker storage cp`, google.cloud.storage or gcsfs."
            )
        if not os.path.isdir(found):
            raise FileNotFoundError(f"gs://{bucket}: its folder {found} is not there. Make it, or mount it.")
        return found

    def url(self, path: Any) -> Any:
        """What `local` was given, when it gave this."""
        if isinstance(path, bytes):
            return os.fsencode(self.url(os.fsdecode(path)))
        for bucket, folder in self._folders():
            if path == folder or path.startswith(folder + "/"):
                rest = path[len(folder) :]
                return f"{_START}{rest.lstrip('/')}" if bucket == "*" else f"{_START}{bucket}{rest}"
        return path

    def there(self) -> list[tuple[str, str]]:
        """`local` as replacements of regular expressions (RE2), for paths that are known in a graph only."""
        found = []
        for bucket, folder in self._folders():
            if bucket == "*":
                kept = [name for name in self._entries if name != "*" and not self._entries[name].startswith("/")]
                found += [(f"^gs://{_quoted(name)}(/|$)", f"{_KEPT}{name}\\1") for name in kept]
                found += [("^gs://", _rewrite(folder) + "/")]
                found += [(f"^{_KEPT}", _START)] if kept else []
            else:
                found += [(f"^gs://{_quoted(bucket)}(/|$)", _rewrite(folder) + "\\1")]
        return found

    def back(self) -> list[tuple[str, str]]:
        """`url` as such."""
        found = []
        for bucket, folder in self._folders():
            if bucket == "*":
                found.append((f"^{_quoted(folder)}/", _START))
            else:
                found.append((f"^{_quoted(folder)}(/|$)", f"{_START}{bucket}\\1"))
        return found

    def _folders(self) -> list[tuple[str, str]]:
        """The folders, `*` last: a bucket with its own entry is not one of the others."""
        found = [item for item in self._entries.items() if item[1].startswith("/")]
        return sorted(found, key=lambda item: item[0] == "*")


def _quoted(text: str) -> str:
    """As RE2's QuoteMeta: everything but letters, digits and `_`, of ASCII."""
    return "".join(each if each.isalnum() or each == "_" or ord(each) > 127 else "\\" + each for each in text)


def _rewrite(text: str) -> str:
    return text.replace("\\", "\\\\")
