"""The registry as Determined's SDK shows it: models, and versions that are checkpoints."""

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from stoker.client.client import Client
from stoker.compat.determined.sdk_checkpoint import Checkpoint, find_checkpoint, not_kept
from stoker.errors import NotFoundError
from stoker.schema.record import CheckpointRecord
from stoker.schema.registry import NewVersion, RegisteredModel, Version

_METADATA = "metadata."  # in front of the labels that a model's metadata are kept as
CheckpointOf = Callable[[Client, CheckpointRecord, str], Checkpoint]


class ModelVersion:
    """A version in the registry."""

    def __init__(self, client: Client, record: Version, checkpoint_of: CheckpointOf) -> None:
        self._client, self._record, self._checkpoint_of = client, record, checkpoint_of
        self.model_version = self.version = record.number
        self.name = record.name
        self.model_id = self.model_name = record.model
        self.notes = self.comment = record.description

    @property
    def metadata(self) -> dict[str, Any]:
        return dict(self._record.card.metadata)

    @property
    def checkpoint(self) -> Checkpoint:
        """The registry's copy of it, which stays when the trial's own goes."""
        origin = self._record.card.origin
        known: CheckpointRecord | None = None
        with contextlib.suppress(NotFoundError):  # the job may be gone
            reported = self._client.checkpoints(origin.job) if origin.job else ()
            known = next((each for each in reported if each.path == origin.checkpoint), None)
        if known is None:
            known = CheckpointRecord(
                run=origin.run or "",
                trial=origin.trial or 1,
                time=self._record.created,
                step=0,
                path=self._record.url,
                size_bytes=self._record.size_bytes,
                metadata=self.metadata,
            )
            return Checkpoint(known, origin.job or "")
        return self._checkpoint_of(self._client, known.with_(path=self._record.url), origin.job or "")

    def download(self, path: "str | os.PathLike[str] | None" = None, **settings: Any) -> str:
        return self.checkpoint.download(path)

    def set_notes(self, notes: str) -> None:
        self.notes = self.comment = notes
        not_kept(f"the notes of {self._record.reference}")

    def set_name(self, name: str) -> None:
        """As an alias, which may be given later: a version's own name stays."""
        self._client.set_alias(self._record.reference, name)

    def delete(self) -> None:
        self._client.delete_version(self._record.reference)


class Model:
    """A model in the registry."""

    def __init__(self, client: Client, record: RegisteredModel, checkpoint_of: CheckpointOf) -> None:
        self._client, self._checkpoint_of = client, checkpoint_of
        self.name = self.model_id = record.name
        self.archived = False
        self._take(record)

    def _take(self, record: RegisteredModel) -> None:
        self.description = record.description
        self.labels = sorted(name for name in record.labels if not name.startswith(_METADATA))
        self.metadata: dict[str, Any] = {
            name.removeprefix(_METADATA): json.loads(value)
            for name, value in record.labels.items()
            if name.startswith(_METADATA)
        }

    def reload(self) -> None:
        self._take(self._client.model(self.name))

    def _version(self, record: Version) -> ModelVersion:
        return ModelVersion(self._client, record, self._checkpoint_of)

    def register_version(self, checkpoint_uuid: str) -> ModelVersion:
        """Of a checkpoint, by its uuid or path, or of what a trial left: `JOB/TRIAL`."""
        job, _, trial = checkpoint_uuid.rpartition("/")
        if trial.isdecimal() and job and not os.path.exists(checkpoint_uuid):
            new = NewVersion(job=job, trial=int(trial))
        else:
            job, record = find_checkpoint(self._client, checkpoint_uuid)
            new = NewVersion(job=job, trial=record.trial, checkpoint=record.path, metadata=dict(record.metadata))
        return self._version(self._client.create_version(self.name, new))

    def list_versions(self, *order: Any, **more: Any) -> list[ModelVersion]:
        return [self._version(record) for record in self._client.versions(self.name)]

    get_versions = list_versions

    def get_version(self, version: int | None = -1) -> ModelVersion | None:
        """By its number; the newest without one, whichever is the default, and None where there is none."""
        if version is None or version < 0:
            return next(iter(self.list_versions()), None)
        return self._version(self._client.version(f"{self.name}:{version}"))

    def set_description(self, description: str) -> None:
        self._client.change_model(self.name, description=description)
        self.description = description

    def set_labels(self, labels: Iterable[str]) -> None:
        self.labels = sorted(labels)
        self._keep()

    def add_metadata(self, metadata: dict[str, Any]) -> None:
        self.metadata |= metadata
        self._keep()

    def remove_metadata(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.metadata.pop(key, None)
        self._keep()

    def _keep(self) -> None:
        metadata = {f"{_METADATA}{name}": json.dumps(value) for name, value in self.metadata.items()}
        self._client.change_model(self.name, labels={**dict.fromkeys(self.labels, ""), **metadata})

    def move_to_workspace(self, workspace_name: str) -> None:
        """There are none."""

    def archive(self) -> None:
        not_kept(f"that the model {self.name} is archived")

    unarchive = archive

    def delete(self) -> None:
        """With its versions, as there."""
        for version in self._client.versions(self.name)[::-1]:
            if not version.is_default:
                self._client.delete_version(version.reference)
        for version in self._client.versions(self.name):
            self._client.delete_version(version.reference)
        self._client.delete_model(self.name)
