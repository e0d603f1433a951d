"""`import hypertune` for every job: the interface and the file of cloudml-hypertune, which a package may not declare.

A cloudml-hypertune that is installed in the environment comes first on sys.path and wins. Standard library only,
valid on Python 3.7. Unlike the original, the file is replaced whole at each report, never half-written, and a second
HyperTune() goes on where the first one stopped.
"""
# ruff: noqa: UP006, UP032, UP035

import collections
import json
import os
import time
from typing import Any, Deque, List

__all__ = ["HyperTune"]

_DEFAULT_FILE = "/tmp/hypertune/output.metrics"
_DEFAULT_TAG = "training/hptuning/metric"
_MAX_REPORTS = 100


class HyperTune:
    """Reports metrics of a hyperparameter trial: one JSON object a line, in the file the environment names."""

    def __init__(self) -> None:
        self.metric_path = os.environ.get("CLOUD_ML_HP_METRIC_FILE", _DEFAULT_FILE)
        self.trial_id = os.environ.get("CLOUD_ML_TRIAL_ID", "0")
        os.makedirs(os.path.dirname(self.metric_path) or ".", exist_ok=True)
        self._reports: Deque[str] = collections.deque(_read(self.metric_path), maxlen=_MAX_REPORTS)

    def report_hyperparameter_tuning_metric(
        self, hyperparameter_metric_tag: str, metric_value: Any, global_step: Any = None, checkpoint_path: str = ""
    ) -> None:
        """Report a metric's value, anything that `float()` takes, at a step."""
        report = {
            "timestamp": time.time(),
            "trial": str(self.trial_id),
            hyperparameter_metric_tag or _DEFAULT_TAG: str(float(metric_value)),
            "global_step": str(int(global_step) if global_step else 0),
            "checkpoint_path": checkpoint_path,
        }
        self._reports.append(json.dumps(report, sort_keys=True) + "\n")
        partial = "{}.{}.partial".format(self.metric_path, os.getpid())
        with open(partial, "w") as file:
            file.writelines(self._reports)
        os.replace(partial, self.metric_path)


def _read(path: str) -> List[str]:
    """The whole lines of an earlier HyperTune() of this run."""
    try:
        with open(path) as file:
            return [line for line in file if line.endswith("\n")]
    except OSError:
        return []
