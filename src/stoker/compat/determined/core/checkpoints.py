"""`context.checkpoint`: folders by uuid, kept with the run; ranks may each add files of their own to one."""

import contextlib
import enum
import hashlib
import json
import os
import pathlib
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stoker.compat.determined.cluster import checkpoint_name
from stoker.context import Context

Selector = Callable[[str], bool]
_METADATA = "metadata.json"


class DownloadMode(enum.Enum):
    """Whether ranks of a node download once for all. Here a checkpoint is a folder that all of them see."""

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    NoSharedDownload = "NO_SHARED_DOWNLOAD"


class CheckpointContext:
    """A checkpoint is whole or not there: it is written under another name first."""

    def __init__(self, run: Context, distributed: Any, *, storage: str | None = None) -> None:
        self._run, self._distributed = run, distributed
        self._storage = storage

    @contextlib.contextmanager
    def store_path(
        self, metadata: Mapping[str, Any] | None = None, *, shard: bool = False
    ) -> Iterator[tuple[pathlib.Path, str]]:
        """A folder to write into, and the uuid it will be known by. With `shard`, every rank calls this."""
        self._check(metadata, shard)
        name = self._agree_on_name(shard)
        drafts = pathlib.Path(self._folder) / f".{name}.partial" / f"rank-{self._distributed.rank}"
        drafts.mkdir(parents=True)
        yield drafts, name
        self._finish(name, drafts.parent, dict(metadata or {}), shard=shard)

    def upload(
        self,
        ckpt_dir: "str | os.PathLike[str] | None",
        metadata: Mapping[str, Any] | None = None,
        *,
        shard: bool = False,
        selector: Selector | None = None,
    ) -> str:
        """Keep a folder as a checkpoint and return its uuid. With `shard`, every rank calls this; None adds nothing."""
        if ckpt_dir is None and not shard:
            raise ValueError("upload(None) is for ranks that have nothing to add to a sharded checkpoint (shard=True).")
        with self.store_path(metadata, shard=shard) as (path, name):
            if ckpt_dir is not None:
                _copy(pathlib.Path(ckpt_dir), path, selector)
        return name

    def download(
        self,
        storage_id: str,
        ckpt_dir: "str | os.PathLike[str]",
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> None:
        """Copy a checkpoint's files to a folder of yours."""
        shared = download_mode is DownloadMode.LocalWorkersShareDownload and self._distributed.local_size > 1
        if not shared or self._distributed.local_rank == 0:
            _copy(self._find(storage_id), pathlib.Path(ckpt_dir), selector)
        if shared:
            self._distributed.broadcast_local(None)

    @contextlib.contextmanager
    def restore_path(
        self,
        storage_id: str,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> Iterator[pathlib.Path]:
        """The checkpoint's own folder: read it, and leave it as it is."""
        yield self._find(storage_id)

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        path = self._find(storage_id) / _METADATA
        if not path.exists():
            return {}
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def delete(self, storage_id: str, globs: list[str] | None = None) -> None:
        folder = self._find(storage_id)
        if globs is None or globs == ["**/*"]:
            shutil.rmtree(folder)
            return
        for path in {found for pattern in globs for found in folder.glob(pattern) if found.is_file()}:
            path.unlink()

    @property
    def _folder(self) -> str:
        if self._storage is None:
            return self._run.checkpoint_dir
        if "://" in self._storage:
            raise ValueError(
                f"checkpoint_storage={self._storage!r}: checkpoints are kept with the run, or in a folder of a shared"
                " file system. Drop the argument, or give a path."
            )
        return os.path.abspath(self._storage)

    def _check(self, metadata: Mapping[str, Any] | None, shard: bool) -> None:
        if not shard and self._distributed.rank != 0:
            raise RuntimeError("A checkpoint is written by the chief alone (rank 0), unless shard=True on every rank.")
        chief = self._distributed.rank == 0
        if chief and (metadata is None or "steps_completed" not in metadata):
            raise ValueError(
                "A checkpoint's metadata must hold 'steps_completed', by which a search knows how far it is."
            )

    def _agree_on_name(self, shard: bool) -> str:
        name = str(uuid.uuid4())
        return str(self._distributed.broadcast(name)) if shard and self._distributed.size > 1 else name

    def _finish(self, name: str, drafts: pathlib.Path, metadata: dict[str, Any], *, shard: bool) -> None:
        """All ranks' files in one folder under its real name; then it is reported."""
        together = shard and self._distributed.size > 1
        everyone = self._distributed.gather(metadata) if together else [metadata]
        problem: str | None = None
        if everyone is not None:  # the chief
            try:
                self._merge(name, drafts, everyone)
            except RuntimeError as error:
                problem = str(error)
        problem = self._distributed.broadcast(problem) if together else problem
        if problem is not None:
            raise RuntimeError(problem)

    def _merge(self, name: str, drafts: pathlib.Path, metadata: list[dict[str, Any]]) -> None:
        merged: dict[str, Any] = {}
        for rank, given in enumerate(metadata):
            _merge_metadata(merged, given, rank=rank)
        whole = drafts / "whole"
        for part in sorted(drafts.glob("rank-*"), key=lambda path: int(path.name.partition("-")[2])):
            _merge_files(part, whole)
        whole.mkdir(exist_ok=True)
        (whole / _METADATA).write_text(json.dumps(merged, indent=2, default=str))
        kept = pathlib.Path(self._folder) / name
        os.replace(whole, kept)
        shutil.rmtree(drafts)
        rest = {key: value for key, value in merged.items() if key not in ("path", "step")}
        if self._storage is None:
            self._run.save_checkpoint(kept, int(merged["steps_completed"]), **{**rest, "uuid": name})

    def _find(self, storage_id: str) -> pathlib.Path:
        """By path, or by uuid: of this storage, of this trial's runs, of any run beside this one."""
        if os.path.isdir(storage_id):
            return pathlib.Path(storage_id)
        latest = self._run.latest_checkpoint
        if latest is not None and checkpoint_name(latest) == storage_id and os.path.isdir(latest):
            return pathlib.Path(latest)
        run_dir = pathlib.Path(self._run.run_dir)
        places = [pathlib.Path(self._folder), *run_dir.parent.glob("*/checkpoints")]
        roots = [folder for folder in run_dir.parents if folder.name == "runs"][:1]
        for folder in places:
            if (folder / storage_id).is_dir():
                return folder / storage_id
        for root in roots:
            for found in root.glob(f"*/*/*/checkpoints/{storage_id}"):
                return found
        raise FileNotFoundError(f"No checkpoint {storage_id!r} in {places[0]} or in any run beside it.")


def _copy(source: pathlib.Path, target: pathlib.Path, selector: Selector | None) -> None:
    if not source.is_dir():
        raise ValueError(f"A checkpoint is a folder, and {source} is none.")
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_dir() or (selector is not None and not selector(relative.as_posix())):
            continue
        (target / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target / relative)


def _merge_files(part: pathlib.Path, whole: pathlib.Path) -> None:
    for path in sorted(part.rglob("*")):
        place = whole / path.relative_to(part)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            continue
        if place.exists() and _digest(place) != _digest(path):
            raise RuntimeError(f"Two ranks wrote {path.relative_to(part)} into one checkpoint, and not the same bytes.")
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, place)


def _digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _merge_metadata(merged: dict[str, Any], given: Mapping[str, Any], *, rank: int) -> None:
    for key, value in given.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), dict):
            _merge_metadata(merged[key], value, rank=rank)
        elif key in merged and merged[key] != value:
            raise RuntimeError(
                f"Ranks disagree on the checkpoint's metadata {key!r}: {merged[key]!r}, and {value!r} on {rank}."
            )
        else:
            merged[key] = value
