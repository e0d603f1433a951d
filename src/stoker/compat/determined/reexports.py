"""Modules of Determined's library that hold other modules' names alone: a table, and the finder that reads it."""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

# What `determined` is imported as, and where in the table that is. `determined_common` is its name before 0.14.
_ROOTS = {"determined.": "", "determined_common.": "common.", "stoker.compat.determined.": ""}

# A module, and its names with the places they come from: in this package, unless `stoker.` or `.` (itself) says where.
MODULES: dict[str, dict[str, str]] = {
    "common.api": {"errors": ".errors"},  # of its REST bindings only the errors, for code that catches them
    "common.api.errors": {
        "APIException": "stoker.errors.ConflictError",
        "BadRequestException": "stoker.errors.StokerError",
        "NotFoundException": "stoker.errors.NotFoundError",
    },
    "common.experimental.checkpoint": {
        "Checkpoint": "sdk_checkpoint.Checkpoint",
        "CheckpointSortBy": "sdk_checkpoint.CheckpointSortBy",
        "CheckpointState": "sdk_checkpoint.CheckpointState",
        "DownloadMode": "sdk_checkpoint.DownloadMode",
    },
    "common.experimental.determined": {"Determined": "sdk.Determined"},
    "common.experimental.experiment": {
        "Experiment": "sdk.Experiment",
        "ExperimentOrderBy": "sdk_checkpoint.OrderBy",
        "ExperimentReference": "sdk.Experiment",
        "ExperimentSortBy": "sdk_orders.ExperimentSortBy",
        "ExperimentState": "sdk.ExperimentState",
    },
    "common.experimental.model": {"Model": "sdk_models.Model", "ModelVersion": "sdk_models.ModelVersion"},
    "common.experimental.trial": {
        "Trial": "sdk.Trial",
        "TrialOrderBy": "sdk_checkpoint.OrderBy",
        "TrialReference": "sdk.Trial",
        "TrialSortBy": "sdk_orders.TrialSortBy",
        "TrialState": "sdk.TrialState",
    },
    "horovod": {"hvd": "one_horovod.hvd"},  # for a trial on one slot; on several, torch's ranks do Horovod's work
    "lightning": {},
    "lightning.experimental": {"DetLogger": "det_logger.DetLogger"},
    "pytorch.dsat": {
        "dsat_reporting_context": "tuning.dsat_reporting_context",
        "get_ds_config_from_hparams": "tuning.get_ds_config_from_hparams",
        "get_hf_args_with_overwrites": "tuning.get_hf_args_with_overwrites",
    },
    "pytorch.experimental": {
        "TorchBatchProcessor": "stoker.pytorch.TorchBatchProcessor",
        "TorchBatchProcessorContext": "stoker.pytorch.TorchBatchProcessorContext",
        "torch_batch_process": "stoker.pytorch.torch_batch_process",
    },
    "pytorch.lightning": {"LightningAdapter": "lightning_adapter.LightningAdapter"},
    "tensorboard": {},
    "tensorboard.metric_writers": {},
    "tensorboard.metric_writers.pytorch": {"TorchWriter": "summaries.TorchWriter"},
    "transformers": {"DetCallback": "det_callback.DetCallback"},
    "util": {
        "download_gcs_blob_with_backoff": "blobs.download_gcs_blob_with_backoff",
        "merge_dicts": "merging.merge_dicts",
    },
}
_REFUSED = ("estimator", "pytorch.deepspeed", "searcher", "tensorpack")
_NO_DEEPSPEED = (
    "determined.pytorch.deepspeed is not supported: DeepSpeedTrial needs DeepSpeed and its GPUs. Use a PyTorchTrial"
    ' with init(strategy="fsdp"), or DeepSpeed itself through the Core API (determined.core).'
)


def install() -> None:
    """Find these modules from now on, after all that are files."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = _name_in_table(fullname)
        if name not in MODULES and name not in _REFUSED:
            return None
        is_package = any(other.startswith(f"{name}.") for other in MODULES)
        return ModuleSpec(fullname, _Loader(), origin=__file__, is_package=is_package)


class _Loader(Loader):
    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = _name_in_table(module.__name__)
        if name in _REFUSED:
            raise ImportError(_why_not(name))
        for own_name, place in MODULES[name].items():
            vars(module)[own_name] = _at(place, module.__name__)
        vars(module)["__all__"] = sorted(MODULES[name])


def _name_in_table(fullname: str) -> str:
    return next((place + fullname[len(root) :] for root, place in _ROOTS.items() if fullname.startswith(root)), "")


def _why_not(name: str) -> str:
    from stoker.compat.eras.refusals import UNSUPPORTED  # noqa: PLC0415 - only for the one that is refused

    if name == "pytorch.deepspeed":
        return _NO_DEEPSPEED
    return f"determined.{name} is imported. {UNSUPPORTED[f'determined.{name}']}."


def _at(place: str, package: str) -> object:
    """What is there: a module of the package itself, or a name in a module of ours."""
    if place.startswith("."):
        return importlib.import_module(place, package)
    holder, _, name = place.rpartition(".")
    found: object = getattr(
        importlib.import_module(holder if holder.startswith("stoker.") else f"{__package__}.{holder}"), name
    )
    return found
