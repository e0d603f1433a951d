"""Of DeepSpeed Autotune, what scripts call though they tune nothing: arguments and settings of a run."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stoker.atomic import replace_file
from stoker.compat.determined.merging import merge_dicts
from stoker.errors import UsageError

_OVERWRITES = "overwrite_deepspeed_args"
_FLAGS = {
    "--per_device_train_batch_size": "train_micro_batch_size_per_gpu",
    "--gradient_accumulation_steps": "gradient_accumulation_steps",
}


@contextlib.contextmanager
def dsat_reporting_context(core_context: Any, op: Any, steps_completed: int | None = None) -> Iterator[None]:
    """Around training. What a tuner would take from DeepSpeed's exit, nobody asks for here."""
    yield


def get_ds_config_from_hparams(hparams: Mapping[str, Any], base_dir: "str | os.PathLike[str]" = ".") -> dict[str, Any]:
    """DeepSpeed's settings from the file that `deepspeed_config` names, under what the hyperparameters overwrite."""
    if "deepspeed_config" not in hparams:
        raise UsageError("No hyperparameter 'deepspeed_config': it is to name the file of DeepSpeed's settings.")
    found: dict[str, Any] = json.loads((Path(base_dir) / hparams["deepspeed_config"]).read_text())
    return merge_dicts(found, hparams.get(_OVERWRITES) or {})


def get_hf_args_with_overwrites(args: list[str], hparams: Mapping[str, Any]) -> list[str]:
    """The script's arguments and the settings' file it names, in agreement with what the hyperparameters overwrite."""
    if _OVERWRITES not in hparams:
        return args
    if "--deepspeed" not in args:
        raise UsageError(f"{_OVERWRITES} is set, but the script has no --deepspeed FILE to overwrite.")
    file = Path(args[args.index("--deepspeed") + 1])
    settings = merge_dicts(json.loads(file.read_text()), hparams[_OVERWRITES])
    replace_file(file, json.dumps(settings))  # every rank writes the same
    changed = list(args)
    for flag, key in _FLAGS.items():
        if settings.get(key, "auto") != "auto":
            if flag in changed:
                changed[changed.index(flag) + 1] = str(settings[key])
            else:
                changed += [flag, str(settings[key])]
    return changed
