"""Trials out of checkpoints, those that Determined itself wrote among them: their weights, read without unpickling.

state_dict.pth     {"models_state_dict": [...], ...}; a single "model_state_dict" in the oldest
load_data.json     {"trial_cls_spec": "model_def:MyTrial", "hparams": {...}, "experiment_config": {...}}
code/              the package, as it was
"""

import importlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import torch

from stoker import pytorch
from stoker.compat.determined import old_trial
from stoker.compat.determined.importing import import_from_path
from stoker.compat.determined.trial_context import with_old_names
from stoker.errors import UsageError
from stoker.pytorch.checkpoint import read_description

_WEIGHTS = "state_dict.pth"


def load_trial_from_checkpoint_path(
    path: "str | os.PathLike[str]",
    trial_class: type[pytorch.PyTorchTrial] | None = None,
    trial_kwargs: Mapping[str, Any] | None = None,
    torch_load_kwargs: Mapping[str, Any] | None = None,
    **old_names: Any,
) -> pytorch.PyTorchTrial:
    """A trial with a checkpoint's weights. `torch_load_kwargs` is taken and not needed."""
    folder = Path(path)
    if not (folder / _WEIGHTS).is_file():
        return _load_ours(folder, trial_class, trial_kwargs)
    described = _described(folder)
    context = with_old_names(
        pytorch.CheckpointLoadContext(
            hparams=described.get("hparams") or {}, exp_conf=described.get("experiment_config") or {}
        )
    )
    cls = trial_class or _find_class(folder, described)
    trial = old_trial.build(cls, context) if old_trial.is_old(cls) else cls(context, **dict(trial_kwargs or {}))
    _put(read_weights(folder / _WEIGHTS), context.models, folder)
    return trial


def _load_ours(
    folder: Path, trial_class: type[pytorch.PyTorchTrial] | None, trial_kwargs: Mapping[str, Any] | None
) -> pytorch.PyTorchTrial:
    """Where the class's file imports others that lie beside it, as the file of another job does: with that folder."""
    try:
        return pytorch.load_trial_from_checkpoint_path(folder, trial_class, trial_kwargs)
    except ModuleNotFoundError:
        code = os.path.dirname((read_description(folder).get("trial_class") or {}).get("file") or "")
        if trial_class is not None or not os.path.isdir(code):
            raise
        with import_from_path(code):
            return pytorch.load_trial_from_checkpoint_path(folder, None, trial_kwargs)


def read_weights(path: "str | os.PathLike[str]") -> list[dict[str, Any]]:
    """The models' weights. The file's random generators are numpy's, so those types are let through, and no others."""
    import numpy._core.multiarray as multiarray  # noqa: PLC0415 - where numpy keeps what its pickles name

    names = [
        multiarray._reconstruct,
        numpy.ndarray,
        numpy.dtype,
        type(numpy.dtype("uint32")),
        type(numpy.dtype("int64")),
    ]
    renamed: Any = [*names, (multiarray._reconstruct, "numpy.core.multiarray._reconstruct")]
    with torch.serialization.safe_globals(renamed):
        found = torch.load(path, map_location="cpu", weights_only=True)
    if "models_state_dict" in found:
        return list(found["models_state_dict"])
    if "model_state_dict" in found:
        return [found["model_state_dict"]]
    raise UsageError(f"{path} has no models in it: expected models_state_dict, found {', '.join(map(str, found))}.")


def _described(folder: Path) -> dict[str, Any]:
    file = folder / "load_data.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return found


def _find_class(folder: Path, described: Mapping[str, Any]) -> type[pytorch.PyTorchTrial]:
    module, _, name = str(described.get("trial_cls_spec") or "").partition(":")
    if not name:
        raise UsageError(f"{folder} does not say which class it is of. Pass trial_class=MyTrial.")
    code = folder / "code"
    if not code.is_dir():
        raise UsageError(f"{folder} has no code/ to find {module}:{name} in. Pass trial_class=MyTrial.")
    with import_from_path(code):
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _put(weights: list[dict[str, Any]], models: list[Any], folder: Path) -> None:
    if len(weights) != len(models):
        raise UsageError(f"{folder} holds {len(weights)} model(s), and the trial wrapped {len(models)}.")
    for state, model in zip(weights, models, strict=True):
        # DistributedDataParallel's names have a prefix that a model on its own does not.
        plain = {name.removeprefix("module."): value for name, value in state.items()}
        model.load_state_dict(plain)
        model.eval()
