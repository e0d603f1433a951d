"""Trials out of checkpoints: find the checkpoint, find the class, put the weights in."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from stoker.context import Context
from stoker.errors import NotFoundError, UsageError
from stoker.pytorch.checkpoint import read_description, read_models
from stoker.pytorch.distributed import DistributedContext
from stoker.pytorch.run_info import Settings
from stoker.pytorch.snapshot import load_models
from stoker.pytorch.trial import PyTorchTrial
from stoker.pytorch.trial_context import PyTorchTrialContext
from stoker.run_dir import RunDir

T = TypeVar("T", bound=PyTorchTrial)


class CheckpointLoadContext(PyTorchTrialContext):
    """A context to build a trial with when there is nothing to train: `MyTrial(CheckpointLoadContext(hparams=…))`."""

    def __init__(self, hparams: Mapping[str, Any] | None = None, exp_conf: Mapping[str, Any] | None = None) -> None:
        run = Context(None, dict(hparams or {}))
        device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
        settings = Settings(exp_conf=dict(exp_conf or {}))
        super().__init__(run, DistributedContext(device=device), settings)


def load_trial_from_checkpoint_path(
    path: "str | os.PathLike[str]",
    trial_class: type[PyTorchTrial] | None = None,
    trial_kwargs: Mapping[str, Any] | None = None,
    torch_load_kwargs: Mapping[str, Any] | None = None,
) -> PyTorchTrial:
    """A trial with a checkpoint's weights, outside training: built with the checkpoint's hyperparameters.

    The class is found by its module's name, or else in the file it was defined in; that imports its code. Pass
    `trial_class` to choose it. `torch_load_kwargs` is taken for old code's sake: nothing here is unpickled.
    """
    description = read_description(path)
    cls = trial_class or _find_class(description["trial_class"])
    context = CheckpointLoadContext(hparams=description["hparams"])
    return build_with_weights(cls, context, path, trial_kwargs or {})


def build_with_weights(
    cls: type[T],
    context: PyTorchTrialContext,
    path: "str | os.PathLike[str]",
    trial_kwargs: Mapping[str, Any],
) -> T:
    """Build a trial and put a checkpoint's weights into its models, in eval mode."""
    trial = cls(context, **trial_kwargs)
    load_models(read_models(path), context.models)
    for model in context.models:
        model.eval()
    return trial


def find_checkpoint(run_dir: "str | os.PathLike[str]", trial_id: int) -> Path:
    """The newest checkpoint of a trial among the runs beside this one: run directories are …/runs/JOB/TRIAL/ATTEMPT.

    STOKER_HOME, where it is set, is searched too.
    """
    roots = [folder for folder in Path(run_dir).absolute().parents if folder.name == "runs"][:1]
    if home := os.environ.get("STOKER_HOME"):
        roots.append(Path(home) / "runs")
    found = [path for root in roots for path in _checkpoints_of(root, trial_id)]
    if not found:
        raise NotFoundError(
            f"No checkpoint of trial {trial_id} under {' or '.join(map(str, roots)) or 'any folder of runs'}."
            " Pass its folder instead: load_checkpoint_trial(…, path=…)."
        )
    return max(found, key=lambda path: (read_description(path)["step"], path.stat().st_mtime))


def _checkpoints_of(root: Path, trial_id: int) -> Iterator[Path]:
    for run_dir in RunDir.under(root):
        try:
            launch = run_dir.read_launch()
        except (OSError, ValueError):
            continue  # another run's folder, in the making or in the removing
        if launch.get("trial_id") == trial_id:
            yield from (path.parent for path in run_dir.checkpoints.glob("step-*/checkpoint.json"))


def _find_class(reference: Mapping[str, Any]) -> type[PyTorchTrial]:
    module = _import(reference["module"], reference["file"])
    found: Any = module
    for part in reference["name"].split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, PyTorchTrial)):
        raise UsageError(
            f"The checkpoint's class {reference['module']}:{reference['name']} was not found in {module.__name__}."
            " Pass it: load_trial_from_checkpoint_path(path, trial_class=MyTrial)."
        )
    return found


def _import(name: str, file: str | None) -> Any:
    if name != "__main__":
        try:
            return importlib.import_module(name)
        except ImportError as error:
            if file is None or not Path(file).is_file():
                raise UsageError(
                    f"The checkpoint's class is in module {name!r}, which cannot be imported ({error})."
                    " Put its folder on PYTHONPATH, or pass trial_class=MyTrial."
                ) from error
    main = sys.modules["__main__"]
    if file is None or getattr(main, "__file__", None) and Path(str(main.__file__)).resolve() == Path(file):
        return main
    spec = importlib.util.spec_from_file_location(f"{Path(file).stem}_of_checkpoint", file)
    if spec is None or spec.loader is None or not Path(file).is_file():
        raise UsageError(f"The checkpoint's class is in {file}, which is not there. Pass trial_class=MyTrial.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
