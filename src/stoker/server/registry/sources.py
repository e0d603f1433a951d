"""What a trial left to register: the model it saved, else a model file in its job-dir, else its best checkpoint."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stoker.errors import ConflictError, NotFoundError, UsageError
from stoker.predict.frameworks import found_among
from stoker.schema.bundle import CARD, Origin
from stoker.schema.job import JobSpec
from stoker.schema.record import CheckpointRecord, Job, Trial
from stoker.schema.registry import SavedModel
from stoker.server.scheduling.launch import job_dir_of
from stoker.server.searches.status import search_status
from stoker.server.store.store import Store
from stoker.storage import Storage

_MAX_LISTED = 20_000
_WHOLE_FOLDERS = frozenset({"tensorflow", "transformers", "custom"})  # their model is more than one file
_URL = re.compile(r"(?:gs|s3|file)://\S+")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a version's files come from; `files` are those of the folder to take, all if none are named."""

    url: str
    files: tuple[str, ...] = ()
    origin: Origin = Origin()
    metrics: Mapping[str, float] = field(default_factory=dict)
    is_checkpoint: bool = False


def source_of_job(
    store: Store, storage: Storage, *, job: str, trial: int | None, checkpoint: str | None = None
) -> Source:
    """Of this trial, or of a search's best. NotFoundError, with all that was looked for, if it left nothing.

    With the path of a checkpoint it is that one, whatever else the trial left.
    """
    found = store.job(job)
    chosen = _trial(store, found, trial)
    origin = _origin(found, chosen)
    metrics = {name: value for name, value in chosen.metrics.items() if math.isfinite(value)}
    if checkpoint is not None:
        which = _named_checkpoint(store, job, chosen, path=checkpoint)
        where = origin.with_(checkpoint=which.path, run=which.run)
        return Source(which.path, origin=where, metrics=metrics, is_checkpoint=True)
    saved = [each for each in store.models.saved_models(job) if each.trial == chosen.number]
    if (model := _newest(storage, saved)) is not None:
        return Source(model.path, origin=origin.with_(run=model.run), metrics={**metrics, **model.metrics})
    job_dir = job_dir_of(found.spec, chosen)
    if job_dir is not None and (bare := _in_job_dir(storage, job_dir)) is not None:
        return Source(bare[0], files=bare[1], origin=origin, metrics=metrics)
    if (best := _best_checkpoint(store, storage, found, chosen)) is not None:
        where = origin.with_(checkpoint=best.path, run=best.run)
        return Source(best.path, origin=where, metrics=metrics, is_checkpoint=True)
    looked = "no model that its code said it saved (ctx.save_model)"
    looked += f", no model file under {job_dir}" if job_dir else ", no job-dir"
    raise NotFoundError(f"Trial {chosen.number} of job {job!r} left nothing to register: {looked}, no checkpoint.")


def _trial(store: Store, job: Job, number: int | None) -> Trial:
    if number is None and job.spec.search is not None:
        best = search_status(store, job.id, best=1).best
        if not best:
            raise ConflictError(f"The search of job {job.id!r} has no best trial yet. Say which by --trial.")
        number = best[0].number
    found = store.trials(job.id, only=number or 1).trials
    if not found:
        raise NotFoundError(f"Job {job.id!r} has no trial {number}.")
    return found[0]


def _origin(job: Job, trial: Trial) -> Origin:
    run = trial.runs[-1].id if trial.runs else None
    return Origin(
        job=job.id,
        trial=trial.number,
        run=run,
        package=job.spec.package,
        hparams=trial.hparams,
        data=tuple(dict.fromkeys(_data_urls(job.spec))),
    )


def _data_urls(spec: JobSpec) -> Iterator[str]:
    """The URLs among its arguments and data: what it was trained on, as far as can be told from outside."""
    for text in (*spec.args, *_texts(spec.data), *_texts(spec.hparams)):
        for url in _URL.findall(text):
            if url.rstrip("/") != (spec.job_dir or "").rstrip("/"):
                yield url


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for below in value.values():
            yield from _texts(below)
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _texts(below)


def _newest(storage: Storage, saved: list[SavedModel]) -> SavedModel | None:
    return next((each for each in reversed(saved) if storage.exists(each.path)), None)


def _in_job_dir(storage: Storage, job_dir: str) -> tuple[str, tuple[str, ...]] | None:
    """The one folder under it that holds a model, and which of its files that is (all, if none are named)."""
    names: dict[str, list[str]] = defaultdict(list)
    try:
        for count, item in enumerate(storage.list(f"{job_dir.rstrip('/')}/", recursive=True)):
            if count >= _MAX_LISTED:
                raise UsageError(f"{job_dir} holds more than {_MAX_LISTED} files. Name the model's folder by --origin.")
            folder, _, name = item.url.rpartition("/")
            names[folder].append(name)
    except NotFoundError:
        return None
    found = {folder: kinds for folder, inside in names.items() if (kinds := found_among(inside))}
    # A bundle or SavedModel may hold folders with model files of their own.
    outer = [folder for folder in found if not any(folder.startswith(f"{other}/") for other in found)]
    if len(outer) > 1:
        raise ConflictError(
            f"There are several models under {job_dir}: {', '.join(sorted(outer)[:5])}. Say which by --origin."
        )
    if not outer:
        return None
    kinds = found[outer[0]]
    if CARD in kinds or not _WHOLE_FOLDERS.isdisjoint(kinds.values()):
        return outer[0], ()
    return outer[0], tuple(kinds)


def _named_checkpoint(store: Store, job: str, trial: Trial, *, path: str) -> CheckpointRecord:
    """Only what a run of the trial reported: not any folder of this machine under the trial's name."""
    for each in reversed(store.checkpoints(job)):
        if each.trial == trial.number and each.path == path:
            return each
    raise NotFoundError(f"Trial {trial.number} of job {job!r} reported no checkpoint {path}.")


def _best_checkpoint(store: Store, storage: Storage, job: Job, trial: Trial) -> CheckpointRecord | None:
    """By the search's metric at the checkpoint's step; the newest without one. Checkpoints come and go: those there."""
    there = [each for each in store.checkpoints(job.id) if each.trial == trial.number and storage.exists(each.path)]
    if not there:
        return None
    search = job.spec.search
    values = _values(store, job, trial.number)
    known = [each for each in there if each.step in values]
    if search is None or not known:
        return there[-1]
    sign = -1.0 if search.goal == "maximize" else 1.0
    return min(known, key=lambda each: (sign * values[each.step], -each.step))


def _values(store: Store, job: Job, trial: int) -> dict[int, float]:
    """What was reported of the searched metric, by step."""
    search = job.spec.search
    if search is None or search.metric is None:
        return {}
    values: dict[int, float] = {}
    cursor = 0
    while points := (page := store.metric_page(job.id, after=cursor)).points:
        cursor = page.cursor
        for point in points:
            counts = point.trial == trial and search.group in (None, point.group)
            if counts and math.isfinite(value := point.values.get(search.metric, math.nan)):
                values[point.step] = value
    return values
