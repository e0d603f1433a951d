"""Determined's Python SDK over our client: experiments, trials, checkpoints and models as its objects."""

import enum
import getpass
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.client.client import Client, connect
from stoker.compat.determined.sdk_checkpoint import Checkpoint, TrainingMetadata, find_checkpoint, not_kept, order_of
from stoker.compat.determined.sdk_models import Model
from stoker.errors import NotFoundError, StokerError, UsageError
from stoker.host.home import Home
from stoker.schema.record import CheckpointRecord, Job, MetricPoint
from stoker.schema.record import Trial as TrialRecord
from stoker.schema.registry import NewModel
from stoker.schema.search import Goal
from stoker.schema.state import JobState

logger = logging.getLogger(__name__)

_PAGE = 1000


class ExperimentState(enum.Enum):
    """In Determined's words, with the values that its API gave them."""

    ACTIVE = "STATE_ACTIVE"
    PAUSED = "STATE_PAUSED"
    STOPPING_CANCELED = "STATE_STOPPING_CANCELED"
    COMPLETED = "STATE_COMPLETED"
    CANCELED = "STATE_CANCELED"
    ERROR = "STATE_ERROR"
    QUEUED = "STATE_QUEUED"
    # Never the state of one that is here, but code compares with them.
    STOPPING_COMPLETED = "STATE_STOPPING_COMPLETED"
    STOPPING_ERROR = "STATE_STOPPING_ERROR"
    STOPPING_KILLED = "STATE_STOPPING_KILLED"
    DELETED = "STATE_DELETED"
    DELETING = "STATE_DELETING"
    DELETE_FAILED = "STATE_DELETE_FAILED"

    @classmethod
    def of(cls, state: JobState) -> "ExperimentState":
        return cls[_STATES.get(state.value, "ACTIVE")]


TrialState = ExperimentState
_STATES = {
    "QUEUED": "QUEUED",
    "PAUSED": "PAUSED",
    "CANCELLING": "STOPPING_CANCELED",
    "SUCCEEDED": "COMPLETED",
    "CANCELLED": "CANCELED",
    "FAILED": "ERROR",
}


@dataclass(frozen=True, slots=True)
class TrialMetrics:
    """One report."""

    trial_id: int
    steps_completed: int
    metrics: dict[str, float]
    group: str
    report_time: float


class Trial:
    """One trial of an experiment."""

    def __init__(self, client: Client, job: str, record: TrialRecord) -> None:
        self._client, self._job, self._record = client, job, record
        self.id = self.trial_id = record.id
        self.experiment_id = job

    @property
    def hparams(self) -> dict[str, Any]:
        return self._record.hparams

    @property
    def state(self) -> ExperimentState:
        return ExperimentState.of(self.reload()._record.state)

    @property
    def summary_metrics(self) -> dict[str, float]:
        return self.reload()._record.metrics

    def reload(self) -> "Trial":
        self._record = self._client.trials(self._job, trial=self._record.number, limit=1).trials[0]
        return self

    def iter_logs(self, follow: bool = False, **filters: Any) -> Iterator[str]:
        """Its lines, oldest first."""
        wanted = {"trial": self._record.number}
        if follow:
            blocks: Iterable[Any] = self._client.follow(self._job, **wanted)
        else:
            blocks = self._client.logs(self._job, **wanted).blocks
        for block in blocks:
            yield from (line + "\n" for line in block.text.splitlines())

    logs = iter_logs

    def iter_metrics(self, group: str | None = None) -> Iterator[TrialMetrics]:
        for point in self._client.metrics(self._job):
            if point.trial == self._record.number and group in (None, point.group):
                yield _report(self.id, point)

    stream_metrics = iter_metrics

    def get_experiment(self) -> "Experiment":
        return Experiment(self._client, self._client.job(self._job))

    def stream_training_metrics(self) -> Iterator[TrialMetrics]:
        return self.iter_metrics("training")

    def stream_validation_metrics(self) -> Iterator[TrialMetrics]:
        return self.iter_metrics("validation")

    def list_checkpoints(
        self, sort_by: Any = None, order_by: Any = None, max_results: int | None = None
    ) -> list[Checkpoint]:
        """Newest first, if nothing else is asked for; by a metric's name, what was reported where each was saved."""
        own = [found for found in self._client.checkpoints(self._job) if found.trial == self._record.number]
        if sort_by is None and order_by is None:
            ordered = sorted(own, key=lambda record: -record.step)
        else:
            order = order_of(sort_by, order_by, None, searcher=searcher_of(self._client.job(self._job)))
            ordered = order.apply(own, self._client.metrics(self._job))
        return [checkpoint_of(self._client, record, self._job) for record in ordered][:max_results]

    get_checkpoints = list_checkpoints

    def select_checkpoint(
        self,
        latest: bool = False,
        best: bool = False,
        uuid: str | None = None,
        sort_by: str | None = None,
        smaller_is_better: bool | None = None,
    ) -> Checkpoint:
        """The newest, the best by the searched or a named metric, or the one of this uuid."""
        if best:
            order = order_of(sort_by, None, smaller_is_better, searcher=searcher_of(self._client.job(self._job)))
            own = [found for found in self._client.checkpoints(self._job) if found.trial == self._record.number]
            found = [
                checkpoint_of(self._client, record, self._job)
                for record in order.apply(sorted(own, key=lambda r: -r.step), self._client.metrics(self._job))
            ]
        else:
            found = self.list_checkpoints()
        for checkpoint in found:
            if uuid is None or checkpoint.uuid == uuid:
                return checkpoint
        raise NotFoundError(f"Trial {self.id} has no checkpoint{f' {uuid}' if uuid else ''}.")

    def top_checkpoint(self, sort_by: str | None = None, smaller_is_better: bool | None = None) -> Checkpoint:
        return self.select_checkpoint(best=True, sort_by=sort_by, smaller_is_better=smaller_is_better)

    def kill(self) -> None:
        """Ends its experiment: trials are not ended one by one here."""
        self._client.kill(self._job)


class Experiment:
    """A job with a search."""

    def __init__(self, client: Client, job: Job) -> None:
        self._client, self._job = client, job
        self.id = self.name = job.id

    @property
    def state(self) -> ExperimentState:
        return ExperimentState.of(self.reload()._job.state)

    @property
    def config(self) -> dict[str, Any]:
        origin = self._job.spec.origin
        return origin.document if origin and origin.document else self._job.spec.model_dump(mode="json")

    @property
    def progress(self) -> float | None:
        return self.reload()._job.progress

    def reload(self) -> "Experiment":
        self._job = self._client.job(self.id)
        return self

    def wait(self, interval: float = 5.0) -> ExperimentState:
        """Until it has ended."""
        return ExperimentState.of(self._client.wait(self.id).state)

    def await_first_trial(self, interval: float = 0.1) -> Trial:
        while True:
            trials = self.list_trials()
            if trials:
                return trials[0]
            if self.reload()._job.state.is_final:
                raise StokerError(f"Experiment {self.id} ended without a trial: {self._job.reason}")
            time.sleep(interval)

    def list_trials(self, **settings: Any) -> list[Trial]:
        found: list[Trial] = []
        after = 0
        while True:
            page = self._client.trials(self.id, limit=_PAGE, after=after).trials
            found += [Trial(self._client, self.id, record) for record in page]
            if len(page) < _PAGE:
                return found
            after = page[-1].number

    get_trials = list_trials

    def iter_trials(self, **settings: Any) -> Iterator[Trial]:
        return iter(self.list_trials(**settings))

    def list_checkpoints(
        self,
        sort_by: Any = None,
        order_by: Any = None,
        max_results: int | None = None,
        smaller_is_better: bool | None = None,
    ) -> list[Checkpoint]:
        """The best by the searched metric first, if nothing else is asked for."""
        order = order_of(sort_by, order_by, smaller_is_better, searcher=searcher_of(self._job))
        newest_first = sorted(self._client.checkpoints(self.id), key=lambda record: -record.step)
        ordered = order.apply(newest_first, self._client.metrics(self.id))
        return [checkpoint_of(self._client, record, self.id) for record in ordered][:max_results]

    def top_n_checkpoints(
        self, limit: int, sort_by: str | None = None, smaller_is_better: bool | None = None
    ) -> list[Checkpoint]:
        return self.list_checkpoints(sort_by, max_results=limit, smaller_is_better=smaller_is_better)

    def top_checkpoint(self, sort_by: str | None = None, smaller_is_better: bool | None = None) -> Checkpoint:
        for checkpoint in self.top_n_checkpoints(1, sort_by, smaller_is_better):
            return checkpoint
        raise NotFoundError(f"Experiment {self.id} has no checkpoint.")

    @property
    def labels(self) -> set[str]:
        return set(self.reload()._job.labels)

    @property
    def description(self) -> str:
        return str(self.config.get("description") or "")

    def add_label(self, label: str) -> None:
        self._client.update(self.id, labels={**self.reload()._job.labels, label: ""})

    def remove_label(self, label: str) -> None:
        kept = {name: value for name, value in self.reload()._job.labels.items() if name != label}
        self._client.update(self.id, labels=kept)

    def set_labels(self, labels: Iterable[str]) -> None:
        self._client.update(self.id, labels=dict.fromkeys(labels, ""))

    def archive(self) -> None:
        self.add_label("archived")

    def unarchive(self) -> None:
        self.remove_label("archived")

    def set_name(self, name: str) -> None:
        not_kept(f"another name of the experiment {self.id}")

    set_description = set_notes = set_name

    def move_to_project(self, workspace_name: str, project_name: str) -> None:
        """There are none."""

    def download_code(self, output_dir: str | None = None) -> str:
        """Unpacked into a folder, which is returned; named by the experiment if none is."""
        folder = output_dir or f"experiment_{self.id}_model_def"
        from stoker.compat.experiments import download_code  # noqa: PLC0415  as in create_experiment

        download_code(self._client, self._client.job(self.id), Path(folder))
        return folder

    def pause(self) -> None:
        self._client.pause(self.id)

    def activate(self) -> None:
        self._client.resume(self.id)

    def cancel(self) -> None:
        self._client.cancel(self.id)

    def kill(self) -> None:
        self._client.kill(self.id)

    def __repr__(self) -> str:
        return f"Experiment(id={self.id})"


class Determined:
    """The SDK's entry: every argument of its sign-in is taken, and the server is stoker's own way of finding one."""

    def __init__(
        self, master: str | None = None, user: str | None = None, password: str | None = None, **more: Any
    ) -> None:
        self._client = connect()

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> "Determined":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_experiment(
        self,
        config: "str | os.PathLike[str] | Mapping[str, Any]",
        model_dir: "str | os.PathLike[str] | None" = None,
        includes: Iterable["str | os.PathLike[str]"] | None = None,
        parent_id: int | None = None,
        project_id: int | None = None,
        template: str | None = None,
    ) -> Experiment:
        """The same as `stoker experiment create CONFIG MODEL_DIR`. What that would print goes to the log."""
        # Jobs import the SDK to read; what submits needs libraries that their Pythons may lack.
        from stoker.compat.experiments import create_experiment  # noqa: PLC0415
        from stoker.compat.search_config import load_config  # noqa: PLC0415

        job = create_experiment(
            load_config(
                dict(config) if isinstance(config, Mapping) else Path(config),
                notify=logger.info,
                template=Path(template) if template else None,
            ),
            _code_directory(config, model_dir),
            source="experiment.yaml" if isinstance(config, Mapping) else os.fspath(config),
            home=Home.find().make(),
            notify=logger.info,
            include=[Path(path) for path in includes or ()],
        )
        return self.get_experiment(job["id"])

    def get_experiment(self, experiment_id: "int | str") -> Experiment:
        """By its number or name."""
        text = str(experiment_id)
        if text.isdecimal():
            named = (job.id for job in self._client.jobs(limit=10_000) if job.number == int(text))
            text = next(named, text)
        return Experiment(self._client, self._client.job(text))

    def list_experiments(self, **settings: Any) -> list[Experiment]:
        jobs = [job for job in self._client.jobs(limit=1000) if job.search is not None]
        return [Experiment(self._client, self._client.job(job.id)) for job in jobs]

    get_experiments = list_experiments

    def get_trial(self, trial_id: int) -> Trial:
        found = self._client.trial(int(trial_id))
        return Trial(self._client, found.job, found)

    def get_checkpoint(self, uuid: str) -> Checkpoint:
        job, record = find_checkpoint(self._client, uuid)
        return checkpoint_of(self._client, record, job)

    def create_model(self, name: str, description: str | None = "", metadata: Any = None, **settings: Any) -> Model:
        new = self._client.create_model(NewModel(name=name, description=description or ""))
        model = Model(self._client, new, checkpoint_of)
        model.set_labels(settings.get("labels") or ())
        model.add_metadata(metadata or {})
        return model

    def get_model(self, identifier: str) -> Model:
        return Model(self._client, self._client.model(str(identifier)), checkpoint_of)

    def list_models(self, **settings: Any) -> list[Model]:
        return [Model(self._client, record, checkpoint_of) for record in self._client.models()]

    get_models = list_models
    get_model_by_id = get_model

    def get_model_labels(self) -> list[str]:
        return sorted({label for model in self.list_models() for label in model.labels})

    def get_session_username(self) -> str:
        return getpass.getuser()

    def logout(self) -> None:
        """Nobody is logged in."""

    def list_workspaces(self) -> list[Any]:
        return []

    def get_workspace(self, name: str) -> Any:
        raise NotFoundError(f"There is no workspace {name!r}: experiments are not sorted into workspaces here.")

    create_workspace = get_workspace

    def iter_trials_metrics(self, trial_ids: list[int], group: str) -> Iterator[TrialMetrics]:
        for trial_id in trial_ids:
            yield from self.get_trial(trial_id).iter_metrics(group)

    stream_trials_metrics = iter_trials_metrics

    def stream_trials_training_metrics(self, trial_ids: list[int]) -> Iterator[TrialMetrics]:
        return self.iter_trials_metrics(trial_ids, "training")

    def stream_trials_validation_metrics(self, trial_ids: list[int]) -> Iterator[TrialMetrics]:
        return self.iter_trials_metrics(trial_ids, "validation")


def searcher_of(job: Job) -> tuple[str, bool]:
    """The metric that is searched for, and whether less of it is better."""
    search = job.spec.search
    if search is None or search.metric is None:
        return "", True
    return search.metric, search.goal is Goal.MINIMIZE


def checkpoint_of(client: Client, record: CheckpointRecord, job: str) -> Checkpoint:
    def training() -> TrainingMetadata:
        experiment = Experiment(client, client.job(job))
        trial = client.trials(job, trial=record.trial, limit=1).trials[0]
        at_step = {
            name: value
            for point in client.metrics(job)
            if (point.trial, point.step, point.group) == (record.trial, record.step, "validation")
            for name, value in point.values.items()
        }
        metrics = {"avgMetrics": at_step, "batchMetrics": []}
        return TrainingMetadata(experiment.config, job, trial.id, trial.hparams, metrics)

    return Checkpoint(record, job, training=training)


def _report(trial_id: int, point: MetricPoint) -> TrialMetrics:
    return TrialMetrics(trial_id, point.step, dict(point.values), point.group, point.time)


def _code_directory(
    config: "str | os.PathLike[str] | Mapping[str, Any]", model_dir: "str | os.PathLike[str] | None"
) -> Path:
    if model_dir is not None:
        return Path(model_dir)
    if isinstance(config, Mapping):
        raise UsageError("Missing model_dir: the directory of the code that the config is about.")
    return Path(config).parent
