"""Determined's experiment file (0.38, and the older dialect) read into the fields of a JobSpec with a search.

What does not steer us, but steers its trainer, goes into the job's `origin`: the settings of the trainer (length,
periods, gradient aggregation), and the file itself, for `get_experiment_config()`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from stoker.compat.dialects.determined_2020 import in_later_words
from stoker.compat.dialects.determined_config import (
    AdaptiveAshaSearcher,
    AsyncHalvingSearcher,
    Experiment,
    GridSearcher,
    Length,
    RandomSearcher,
)
from stoker.errors import ConfigError
from stoker.schema.job import JobSpec
from stoker.schema.model import config_error
from stoker.schema.search import SearchSpec
from stoker.schema.space import Const, Errors, leaves
from stoker.submission.reading import Document, JobValues, Reading

DEFAULT_PRIORITY = 42  # Determined's, when a file has none

# What runs a legacy `model_def:Trial` entrypoint, whose code has no main of its own.
LEGACY_COMMAND = ("python", "-m", "stoker.compat.determined", "--trial")

_OWN_FIELDS = frozenset(Experiment.model_fields) - frozenset(JobSpec.model_fields)
_LEGACY_TRIAL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
# Stoker starts the ranks itself, with torchrun's variables, so the launcher in front of the script has nothing to do.
_LAUNCHER = re.compile(r"python3?\s+-m\s+determined\.launch\.torch_distributed\s+(?:(?:-\S+\s+)*--\s+)?(?=[^-\s])")

_RANKS = re.compile(r"\bdetermined\.launch\.|\btorchrun\b|\btorch\.distributed\.(run|launch)\b")
_PER_SLOT = re.compile(r"\bdetermined\.launch\.(torch_distributed|deepspeed|horovod|tensorflow)\b")

# Meaningless where there are no containers, no Kubernetes, no Slurm; or dead in Determined itself.
_MEANINGLESS = {
    "": (
        "idle_timeout",
        "integrations",
        "internal",
        "log_policies",
        "notebook_idle_type",
        "pbs",
        "project",
        "records_per_epoch",
        "retention_policy",
        "security",
        "slurm",
        "tensorboard_args",
        "tensorboard_storage",
        "data_layer",
        "work_dir",
        "workspace",
    ),
    "resources": ("weight", "shm_size", "devices", "native_parallel", "agent_label"),
    "environment": (
        "image",
        "force_pull_image",
        "registry_auth",
        "add_capabilities",
        "drop_capabilities",
        "pod_spec",
        "ports",
        "proxy_ports",
    ),
    "optimizations": (
        "average_training_metrics",
        "gradient_compression",
        "mixed_precision",
        "tensor_fusion_threshold",
        "tensor_fusion_cycle_time",
        "auto_tune_tensor_fusion",
        "grad_updates_size_file",
    ),
    "searcher": ("stop_once",),
}
_SECRET = frozenset({"registry_auth", "access_key", "secret_key", "connection_string", "credential"})
# Where a finding about our SearchSpec lies in their file.
_THEIR_PATHS = {
    "space": ("hyperparameters",),
    "metric": ("searcher", "metric"),
    "max_trials": ("searcher", "max_trials"),
    "stopping": ("searcher",),
    "sampler": ("searcher",),
    "max_slots": ("resources", "max_slots"),
}


def is_dialect(document: Mapping[str, Any]) -> bool:
    """Whether this looks like Determined's: it has a field that no other job file has."""
    return not _OWN_FIELDS.isdisjoint(document)


def read(document: Mapping[str, Any], *, source: str) -> Reading:
    """Part of a JobSpec, in the shape of stoker.yaml. ConfigError names every bad field at once, with its path."""
    later, changes = in_later_words(document)
    experiment = Experiment.parse(later, source=source)
    search = _search(experiment, source=source)
    name = _job_name(experiment.name)
    values: JobValues = {
        "kind": "command",
        "command": list(_command(experiment)),
        "data": dict(experiment.data),
        "origin": _origin(experiment, document),
        "resources": _resources(experiment),
        "environment": {"variables": {**_of_ranks(experiment), **_variables(experiment)}},
        "restarts": {"max_restarts": _max_restarts(experiment)},
        "priority": _priority(experiment.resources.priority),
        "seed": experiment.reproducibility.experiment_seed or 0,
        "labels": _labels(experiment.labels),
    }
    if name:
        values["name"] = name
    if search is not None:
        values["search"] = search.model_dump(mode="json")
    else:
        values["hparams"] = _constants(experiment, source=source)
    if experiment.resources.resource_pool:
        values["pool"] = experiment.resources.resource_pool
    if experiment.preemption_timeout is not None:
        values["limits"] = {"grace_s": float(experiment.preemption_timeout)}
    return Reading(values=values, ignored=tuple(_ignored(experiment)), notes=(*changes, *_notes(experiment, name)))


def _resources(experiment: Experiment) -> Document:
    """A process for each slot where a launcher of ranks was named; else one process, which has all the slots.

    `entrypoint_script` is the Trainer API proposal's word, and there the ranks are the platform's.
    """
    asked = _slots(experiment)
    slots = max(asked, 1)
    # There a slot is a GPU; none is a CPU alone.
    more: Document = {"slot_is_gpu": True} if asked else {}
    if experiment.resources.is_single_node:
        more["single_node"] = True
    if slots == 1 or _legacy_trial(experiment) is not None or experiment.entrypoint is None:
        return {"slots": slots, **more}
    words = experiment.entrypoint if isinstance(experiment.entrypoint, str) else " ".join(experiment.entrypoint)
    return {**({"slots": slots} if _PER_SLOT.search(words) else {"slots": 1, "cpus": float(slots)}), **more}


def _of_ranks(experiment: Experiment) -> dict[str, str]:
    """Ranks ask for NCCL, whatever there is: what to do without a GPU, for code that does not import determined."""
    words = experiment.entrypoint if isinstance(experiment.entrypoint, str) else " ".join(experiment.entrypoint or ())
    is_of_ranks = _legacy_trial(experiment) is None and (_RANKS.search(words) or _slots(experiment) > 1)
    return {"STOKER_NCCL": "gloo"} if is_of_ranks else {}


def _search(experiment: Experiment, *, source: str) -> SearchSpec | None:
    searcher = experiment.searcher
    if searcher is None:
        return None
    values: Document = {
        "space": experiment.hyperparameters,
        "metric": searcher.metric,
        "goal": "minimize" if searcher.smaller_is_better else "maximize",
        "group": "validation",
        "max_slots": experiment.resources.max_slots or None,
        "seed": experiment.reproducibility.experiment_seed or 0,
        **_method(experiment, source=source),
    }
    if searcher.source_trial_id is not None:
        values["warm_start"] = {"trial": searcher.source_trial_id}
    if searcher.source_checkpoint_uuid is not None:
        values["warm_start"] = {"checkpoint": searcher.source_checkpoint_uuid}
    try:
        spec = SearchSpec.model_validate(values)
    except ValidationError as error:
        raise _in_their_words(error, source) from error
    slots = _slots(experiment)
    if spec.max_slots is not None and spec.max_slots < slots:
        raise ConfigError(
            f"{source} has 1 bad field:",
            [f"resources.max_slots: is less than one trial needs, which is {slots} (got {spec.max_slots})"],
        )
    return spec


def _method(experiment: Experiment, *, source: str) -> Document:
    match experiment.searcher:
        case AdaptiveAshaSearcher() as searcher:
            kept = {name: getattr(searcher, name) for name in ("mode", "divisor", "max_rungs", "bracket_rungs")}
            stopping = {"name": "asha", **kept, **_time(searcher, experiment, source=source)}
            return {"sampler": "random", "stopping": stopping, **_limits(searcher)}
        case AsyncHalvingSearcher() as searcher:
            kept = {"num_rungs": searcher.num_rungs, "divisor": searcher.divisor}
            stopping = {"name": "async_halving", **kept, **_time(searcher, experiment, source=source)}
            return {"sampler": "random", "stopping": stopping, **_limits(searcher)}
        case RandomSearcher() as searcher:
            return {"sampler": "random", **_limits(searcher)}
        case GridSearcher() as searcher:
            return {"sampler": "grid", "max_concurrent_trials": searcher.max_concurrent_trials}
        case _:
            return {"sampler": "single"}


def _limits(searcher: RandomSearcher) -> Document:
    return {"max_trials": searcher.max_trials, "max_concurrent_trials": searcher.max_concurrent_trials}


def _time(searcher: AdaptiveAshaSearcher | AsyncHalvingSearcher, experiment: Experiment, *, source: str) -> Document:
    """When a trial is over, and in what that is counted. The older dialect says both with max_length."""
    if searcher.max_time is not None:
        return {"max_time": searcher.max_time, "time_metric": searcher.time_metric}
    assert searcher.max_length is not None  # required of a searcher without max_time
    length = _in_batches(searcher.max_length, experiment, source=source)
    metric = searcher.time_metric or (None if length.unit == "steps" else length.unit)
    return {"max_time": length.count, "time_metric": metric}


def _in_batches(length: Length, experiment: Experiment, *, source: str) -> Length:
    """Records as batches, as Determined has it; another length as it is."""
    if length.unit != "records":
        return length
    size = experiment.hyperparameters.get("global_batch_size")
    if not isinstance(size, Const) or not isinstance(size.value, int) or size.value < 1:
        why = "records become batches by hyperparameters.global_batch_size, which must be a constant"
        raise ConfigError(f"{source} has 1 bad field:", [f"searcher.max_length.records: {why} (got {length.count})"])
    return Length(batches=max(length.count // size.value, 1))


def _origin(experiment: Experiment, document: Mapping[str, Any]) -> Document:
    return {
        "platform": "determined",
        "document": _without_secrets({name: value for name, value in document.items() if name != "data"}),
        "trainer": _trainer(experiment),
        "slots": max(_slots(experiment), 1),
    }


def _without_secrets(value: Any) -> Any:
    """A run directory holds no secret."""
    if not isinstance(value, Mapping):
        return value
    return {name: _without_secrets(under) for name, under in value.items() if name not in _SECRET}


def _trainer(experiment: Experiment) -> Document:
    """Arguments of Trainer.fit and of init, by their names there; only those the file gives."""
    searcher = experiment.searcher
    optimizations = experiment.optimizations
    given = {
        "max_length": _period(searcher.max_length if searcher is not None else None),
        "validation_period": _period(experiment.min_validation_period),
        "checkpoint_period": _period(experiment.min_checkpoint_period),
        "reporting_period": {"batches": experiment.scheduling_unit} if experiment.scheduling_unit else None,
        "checkpoint_policy": experiment.checkpoint_policy,
        "step_zero_validation": experiment.perform_initial_validation,
        "profiling_enabled": experiment.profiling.enabled or None,
        "aggregation_frequency": optimizations.aggregation_frequency,
        "average_aggregated_gradients": optimizations.average_aggregated_gradients,
    }
    return {name: value for name, value in given.items() if value is not None}


def _period(length: Length | None) -> dict[str, int] | None:
    """{batches: 0} is how the older dialect says never."""
    return {length.unit: length.count} if length is not None and length.count else None


def _command(experiment: Experiment) -> tuple[str, ...]:
    legacy = _legacy_trial(experiment)
    if legacy is not None:
        return (*LEGACY_COMMAND, legacy)
    wanted = experiment.entrypoint if experiment.entrypoint is not None else experiment.entrypoint_script
    if isinstance(wanted, tuple):
        launched = _LAUNCHER.match(" ".join(wanted) + " ")
        return wanted[launched.group().count(" ") :] if launched else wanted
    return ("sh", "-c", _LAUNCHER.sub("", wanted or "", count=1))


def _legacy_trial(experiment: Experiment) -> str | None:
    wanted = experiment.entrypoint
    return wanted if isinstance(wanted, str) and _LEGACY_TRIAL.fullmatch(wanted) else None


def _max_restarts(experiment: Experiment) -> int:
    """Trials are restarted by default, and plain jobs are not."""
    plain = experiment.searcher is None and "max_restarts" not in experiment.model_fields_set
    return 0 if plain else experiment.max_restarts


def _slots(experiment: Experiment) -> int:
    asked = experiment.resources
    return next((slots for slots in (asked.slots_per_trial, asked.slots) if slots is not None), 1)


def _variables(experiment: Experiment) -> dict[str, str]:
    """Those for CPUs, and over them those for GPUs, which is what a file usually differs in."""
    found = experiment.environment.environment_variables
    pairs = (text.partition("=") for text in (*found.cpu, *found.gpu, *found.cuda))
    return {name: value for name, _, value in pairs}


def _priority(theirs: int | None) -> int:
    """Theirs runs from 1 (first) to 99 (last), ours from 1000 to 0."""
    return round((99 - (theirs or DEFAULT_PRIORITY)) / 98 * 1000)


def _labels(labels: tuple[str, ...]) -> dict[str, str]:
    """Their labels are words, ours are pairs: each becomes a key without a value."""
    return {key: "" for label in labels if (key := _label_key(label))}


def _label_key(label: str) -> str:
    return re.sub(r"^[^a-z]+", "", re.sub(r"[^a-z0-9_-]+", "-", label.lower()))[:63].rstrip("-")


def _job_name(name: str | None) -> str | None:
    """Their names are free text; ours are words."""
    word = re.sub(r"[^A-Za-z0-9_]+", "_", name or "").strip("_")
    return (word if word[:1].isalpha() else f"experiment_{word}")[:128] if word else None


def _constants(experiment: Experiment, *, source: str) -> Document:
    """The hyperparameters of a job that searches nothing."""
    errors = Errors()
    for path, parameter in leaves(experiment.hyperparameters).items():
        if not isinstance(parameter, Const):
            errors.add(("hyperparameters", *path), "varies, but there is no `searcher` to vary it", parameter.type)
    try:
        errors.raise_any(source)
    except ValidationError as error:
        raise config_error(error, source=source) from error
    return _plain(experiment.hyperparameters)


def _plain(space: Mapping[str, Any]) -> Document:
    return {name: _plain(node) if isinstance(node, dict) else node.value for name, node in space.items()}


def _ignored(experiment: Experiment) -> Iterator[str]:
    for section, names in _MEANINGLESS.items():
        settings = getattr(experiment, section) if section else experiment
        given = settings.model_fields_set if settings is not None else frozenset()
        yield from (f"{section}.{name}" if section else name for name in names if name in given)
    if experiment.checkpoint_storage is not None and "type" in experiment.checkpoint_storage.model_fields_set:
        yield "checkpoint_storage.type"


def _notes(experiment: Experiment, name: str | None) -> Iterator[str]:
    if experiment.name is not None and name != experiment.name:
        yield f"the job is called {name}: {experiment.name!r} is not a word"
    for label in experiment.labels:
        if _label_key(label) != label:
            yield f"label {label!r} is kept as {_label_key(label)!r}" if _label_key(label) else f"no label {label!r}"
    if _slots(experiment) == 0:
        yield "slots_per_trial is 0: each trial gets one process and one CPU"
    if (legacy := _legacy_trial(experiment)) is not None:
        yield f"entrypoint {legacy} names a trial class; it is run by {' '.join(LEGACY_COMMAND[:3])}"
    searcher = experiment.searcher
    if searcher is not None and searcher.metric is None:
        yield "searcher.metric is not set: trials are not compared"
    if isinstance(searcher, AdaptiveAshaSearcher | AsyncHalvingSearcher) and searcher.max_length is not None:
        if searcher.max_time is not None:
            yield "searcher.max_time decides when a trial is over, searcher.max_length what its trainer is told"


def _in_their_words(error: ValidationError, source: str) -> ConfigError:
    errors = Errors()
    errors.take((), error, rename=lambda loc: (*_THEIR_PATHS.get(str(loc[0]), loc[:1]), *loc[1:]) if loc else loc)
    return config_error(ValidationError.from_exception_data(source, errors.found), source=source)
