"""`determined.experimental.create`: a script that submits itself as an experiment, and in the job trains its class."""

import enum
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from stoker.compat.determined.legacy import train_class
from stoker.compat.determined.sdk import Determined, Experiment
from stoker.errors import UsageError


class Mode(enum.Enum):
    """Where to train, before there was `local=True`."""

    CLUSTER = "cluster"
    LOCAL = "local"


def create(
    trial_def: type[Any],
    config: Mapping[str, Any] | None = None,
    local: bool = False,
    test: bool = False,
    context_dir: str = "",
    command: Sequence[str] | None = None,
    **more: Any,
) -> Experiment | None:
    """Train the class, where this is a job's process or `local`; else submit this very script as an experiment."""
    if local or more.get("mode") is Mode.LOCAL:
        test_one_batch(trial_class=trial_def, config=config)
        return None
    if "STOKER_RUN_DIR" in os.environ:
        train_class(trial_def)
        return None
    if not context_dir:
        raise UsageError("create() submits the folder of the code: pass context_dir='.'.")
    words = list(command) if command is not None else sys.argv
    if not words or not words[0]:
        raise UsageError("create() does not know which script it is in: pass command=['train.py'].")
    script = os.path.relpath(words[0], context_dir) if os.path.exists(words[0]) else words[0]
    return Determined().create_experiment(
        {**(config or {}), "entrypoint": ["python3", script, *words[1:]]}, context_dir
    )


def test_one_batch(trial_class: type[Any], config: Mapping[str, Any] | None = None) -> None:  # noqa: PT028 - their name
    """Train one batch here, validate one, save a checkpoint: does it work at all?"""
    given = (config or {}).get("hyperparameters", {})
    fixed = {name: value for name, value in given.items() if not isinstance(value, dict)}
    fixed |= {name: value["val"] for name, value in given.items() if isinstance(value, dict) and "val" in value}
    train_class(trial_class, {"test_mode": True}, hparams=fixed)
