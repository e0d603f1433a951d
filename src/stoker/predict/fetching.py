"""Models that lie elsewhere: their files in a cache on this machine, fetched once for each state they had."""

import hashlib
import os
import shutil
import uuid
from pathlib import Path

from stoker.errors import ConfigError
from stoker.host.home import Home
from stoker.storage import Listed, Storage, StorageUrl

_MAX_FILES = 1000  # AI Platform's own limit


def local_folder(model_dir: str | os.PathLike[str], *, home: Home) -> Path:
    """Where the model is on this machine; fetched first when it is not here. NotFoundError, StokerError."""
    text = os.fspath(model_dir)
    if "://" not in text:
        return Path(text).expanduser()
    place = StorageUrl.parse(text)
    if place.scheme == "file":
        return Path(place.key)
    storage = Storage(home.root)
    here = storage.local_path(text)
    if here is not None and here.is_dir():
        return here
    return _fetched(text, storage, home.cache / "models")


def _fetched(url: str, storage: Storage, cache: Path) -> Path:
    listed = list(storage.list(url.rstrip("/") + "/", recursive=True))
    if len(listed) > _MAX_FILES:
        raise ConfigError(f"{url} holds {len(listed)} files; a model has at most {_MAX_FILES}. Give its own folder.")
    folder = cache / _state(url, listed) / StorageUrl.parse(url).name
    if folder.is_dir():
        return folder
    draft = cache / f".{uuid.uuid4().hex}.draft"
    try:
        storage.copy(url.rstrip("/"), f"{draft}/", recursive=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not folder.is_dir():  # somebody else may have been faster
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _state(url: str, listed: list[Listed]) -> str:
    """A name that changes when any of the files does."""
    told = repr((url.rstrip("/"), sorted((item.url, item.size_bytes, item.updated) for item in listed)))
    return hashlib.sha256(told.encode()).hexdigest()[:24]
