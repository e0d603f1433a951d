"""A checkpoint as Determined's SDK shows it, and the orders in which lists of them are asked for."""

import enum
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker.client.client import Client
from stoker.errors import NotFoundError
from stoker.schema.record import CheckpointRecord, MetricPoint


class OrderBy(enum.Enum):
    ASC = "asc"
    ASCENDING = "asc"
    DESC = "desc"
    DESCENDING = "desc"


class CheckpointSortBy(enum.Enum):
    UUID = "uuid"
    TRIAL_ID = "trial_id"
    BATCH_NUMBER = "batch_number"
    END_TIME = "end_time"
    STATE = "state"
    SEARCHER_METRIC = "searcher_metric"


class DownloadMode(enum.Enum):
    """Of no meaning here: files are copied."""

    DIRECT = "direct"
    MASTER = "master"
    AUTO = "auto"


class CheckpointState(enum.Enum):
    ACTIVE = "ACTIVE"
    COMPLETED = "COMPLETED"
    ERROR = "ERROR"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class TrainingMetadata:
    """Where a checkpoint comes from."""

    experiment_config: dict[str, Any]
    experiment_id: str
    trial_id: int
    hparams: dict[str, Any] = field(default_factory=dict)
    validation_metrics: dict[str, Any] = field(default_factory=dict)  # under avgMetrics, as the master had them


class Checkpoint:
    """A checkpoint of a trial, kept with its run."""

    def __init__(
        self, record: CheckpointRecord, job: str, *, training: "Callable[[], TrainingMetadata] | None" = None
    ) -> None:
        self._record, self.experiment = record, job
        self.experiment_id, self.batch_number = job, record.step
        self.uuid = str(record.metadata.get("uuid") or record.path)
        self.metadata = {"steps_completed": record.step, **record.metadata}
        self.report_time = record.time
        self._training = training

    @property
    def training(self) -> TrainingMetadata | None:
        return self._training() if self._training is not None else None

    @property
    def state(self) -> CheckpointState:
        gone = "://" not in self._record.path and not os.path.exists(self._record.path)
        return CheckpointState.DELETED if gone else CheckpointState.COMPLETED

    @property
    def resources(self) -> dict[str, int]:
        """Its files, and how long they are."""
        root = Path(self._record.path)
        files = [path for path in root.rglob("*") if path.is_file()] if root.is_dir() else [root]
        return {str(path.relative_to(root)) if root.is_dir() else path.name: path.stat().st_size for path in files}

    def download(self, path: "str | os.PathLike[str] | None" = None, mode: Any = None) -> str:
        """Copy it to a folder and return that; `checkpoints/UUID` if none is named."""
        target = Path(path) if path is not None else Path("checkpoints") / Path(self._record.path).name
        source = Path(self._record.path)
        if not source.exists():
            raise NotFoundError(f"The checkpoint {source} is not there any more.")
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        if not (target / "metadata.json").exists():
            self.write_metadata_file(target / "metadata.json")
        return str(target)

    @property
    def trial_id(self) -> int | None:
        return found.trial_id if (found := self.training) is not None else None

    @property
    def hparams(self) -> dict[str, Any]:
        return found.hparams if (found := self.training) is not None else {}

    @property
    def experiment_config(self) -> dict[str, Any]:
        return found.experiment_config if (found := self.training) is not None else {}

    @property
    def validation(self) -> dict[str, Any]:
        """As it was before 0.18."""
        found = self.training
        values = found.validation_metrics.get("avgMetrics", {}) if found is not None else {}
        return {"metrics": {"validationMetrics": values}}

    def load(self, path: "str | os.PathLike[str] | None" = None, **settings: Any) -> Any:
        """Of a trial class: copied, and the trial or model with its weights, as before 0.18."""
        return self.load_from_path(self.download(path), **settings)

    @staticmethod
    def load_from_path(path: "str | os.PathLike[str]", **settings: Any) -> Any:
        from stoker.compat.determined import pytorch  # noqa: PLC0415 - torch

        return pytorch.load_trial_from_checkpoint_path(os.fspath(path), **settings)

    def write_metadata_file(self, path: "str | os.PathLike[str]") -> None:
        Path(path).write_text(json.dumps(self.metadata, indent=2, default=str))

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        self.metadata |= metadata
        not_kept(f"the metadata of the checkpoint {self.uuid}")

    def remove_metadata(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.metadata.pop(key, None)
        not_kept(f"the metadata of the checkpoint {self.uuid}")

    def delete(self) -> None:
        """Its files; what is known of it stays."""
        shutil.rmtree(self._record.path, ignore_errors=True)

    def reload(self) -> None:
        """Nothing of it changes."""

    def __repr__(self) -> str:
        return f"Checkpoint(uuid={self.uuid}, steps_completed={self._record.step})"


def not_kept(what: str) -> None:
    sys.stderr.write(f"determined: {what}: not kept by stoker.\n")


def find_checkpoint(client: Client, uuid: str) -> tuple[str, CheckpointRecord]:
    """Its job and what is known of it, by its uuid or path; the newest jobs are looked at first."""
    for job in client.jobs(limit=1000):
        for record in client.checkpoints(job.id):
            if uuid in (record.path, record.metadata.get("uuid")):
                return job.id, record
    raise NotFoundError(f"No checkpoint {uuid}.")


@dataclass(frozen=True, slots=True)
class CheckpointOrder:
    """How checkpoints are sorted: by the value of a metric where they were saved, or by something of their own."""

    by: "CheckpointSortBy | str"
    is_descending: bool

    def apply(self, records: Iterable[CheckpointRecord], points: Iterable[MetricPoint]) -> list[CheckpointRecord]:
        """Those without a value come last, whichever way."""
        key = self._key(_values(points))
        known = [(value, record) for record in records if (value := key(record)) is not None]
        rest = [record for record in records if key(record) is None]
        ordered = sorted(known, key=lambda pair: pair[0], reverse=self.is_descending)
        return [record for _, record in ordered] + rest

    def _key(self, values: Mapping[tuple[int, int], Mapping[str, float]]) -> Callable[[CheckpointRecord], Any]:
        match self.by:
            case CheckpointSortBy.UUID:
                return lambda record: str(record.metadata.get("uuid") or record.path)
            case CheckpointSortBy.TRIAL_ID:
                return lambda record: record.trial
            case CheckpointSortBy.BATCH_NUMBER:
                return lambda record: record.step
            case CheckpointSortBy.END_TIME | CheckpointSortBy.STATE:
                return lambda record: record.time
        name = str(self.by)
        return lambda record: values.get((record.trial, record.step), {}).get(name)


def order_of(
    sort_by: Any, order_by: Any, smaller_is_better: bool | None, *, searcher: tuple[str, bool]
) -> CheckpointOrder:
    """Of the SDK's arguments; `searcher` is the experiment's metric, and whether less of it is better."""
    metric, smaller = searcher
    if sort_by in (None, CheckpointSortBy.SEARCHER_METRIC):
        by: CheckpointSortBy | str = metric
        smaller = smaller if smaller_is_better is None else smaller_is_better
    else:
        by, smaller = sort_by, smaller_is_better is not False
    wanted = getattr(order_by, "value", order_by)
    return CheckpointOrder(by, is_descending=str(wanted).lower().startswith("desc") if wanted else not smaller)


def _values(points: Iterable[MetricPoint]) -> dict[tuple[int, int], dict[str, float]]:
    """By trial and step; a validation's value wins over training's of the same name."""
    found: dict[tuple[int, int], dict[str, float]] = {}
    for point in sorted(points, key=lambda point: point.group == "validation"):
        found.setdefault((point.trial, point.step), {}).update(point.values)
    return found
