"""The run directory: the name of every file between the supervisor and user code, and of every file engines keep there.

Standard library only and valid on Python 3.7, because the context uses it in the user's process. ARCHITECTURE.md says
who writes and who reads each of these files.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, Iterator, Union

from stoker.atomic import replace_file


class RunDir:
    """The directory of one run, or of one node of a run on several nodes."""

    __slots__ = ("path",)

    def __init__(self, path: "Union[str, os.PathLike[str]]") -> None:
        self.path = Path(path)

    @classmethod
    def under(cls, runs: Path) -> "Iterator[RunDir]":
        """Those of all attempts of all trials: `runs` has a folder JOB/TRIAL/ATTEMPT for each."""
        return (cls(file.parent) for file in runs.glob("*/*/*/run.json"))

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return "RunDir({!r})".format(str(self.path))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunDir) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def write_launch(self, text: str) -> None:
        """Write run.json, whole or not at all; makes the directory."""
        self.path.mkdir(parents=True, exist_ok=True)
        replace_file(self.launch, text)

    def read_launch(self) -> Dict[str, Any]:
        """The JSON object in run.json, as this version writes it; OSError or ValueError if there is none."""
        values = json.loads(self.launch.read_text())
        if not isinstance(values, dict):
            raise ValueError("{} is not a JSON object.".format(self.launch))
        if "origin" in values or "stoker" not in (values.get("data") or {}):
            return values
        from stoker.origin import from_0_1  # noqa: PLC0415 - only for what stoker 0.1.0 wrote

        return from_0_1(values)

    def name_of(self, path: Path) -> str:
        """How the spool calls one of these files: its path from here on."""
        return path.relative_to(self.path).as_posix()

    @property
    def launch(self) -> Path:
        """What to run: schema's Launch as JSON."""
        return self.path / "run.json"

    @property
    def package(self) -> Path:
        """The unpacked package, and the working directory of the replicas."""
        return self.path / "package"

    @property
    def events(self) -> Path:
        """What user code reports, one JSON object a line."""
        return self.path / "events.jsonl"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def output(self, replica: str, stream: str) -> Path:
        """What a replica prints; `stream` is stdout or stderr."""
        return self.logs / "{}.{}".format(replica, stream)

    @property
    def hypertune(self) -> Path:
        return self.path / "hypertune"

    def metric_file(self, replica: str) -> Path:
        """Where cloudml-hypertune writes a replica's metrics: CLOUD_ML_HP_METRIC_FILE."""
        return self.hypertune / "{}.metrics".format(replica)

    @property
    def stop(self) -> Path:
        """The reason to stop; there before user code gets SIGTERM."""
        return self.path / "stop"

    @property
    def interrupted(self) -> Path:
        """Exists once user code learned of a SIGTERM that the supervisor did not send."""
        return self.path / "interrupted"

    @property
    def cancelled(self) -> Path:
        """Exists once the run was cancelled, also while its cluster does not answer."""
        return self.path / "cancelled"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def models(self) -> Path:
        """A folder for each model that user code saved."""
        return self.path / "models"

    @property
    def spool(self) -> Path:
        """The numbered events, before the server has them."""
        return self.path / "spool.jsonl"

    @property
    def spool_ack(self) -> Path:
        """The number of the last event that the server has acknowledged."""
        return self.path / "spool.ack"

    @property
    def predictions(self) -> Path:
        """What batch inference keeps to continue after a stop."""
        return self.path / "predictions"

    @property
    def places(self) -> Path:
        """On which nodes of a cluster the run was started, in the server's own directory of it."""
        return self.path / "nodes.json"

    def node(self, number: int) -> "RunDir":
        """The directory of one node: the run's own for the first."""
        return RunDir(self.path / "nodes" / str(number)) if number else self

    @property
    def processes(self) -> Path:
        """Pid and start time of the supervisor and the replicas."""
        return self.path / "processes.json"

    @property
    def fetched(self) -> Path:
        """The checkpoint that the run starts from, when it was kept at a storage URL."""
        return self.path / "fetched"

    @property
    def supervisor_log(self) -> Path:
        return self.path / "supervisor.log"

    @property
    def serving(self) -> Path:
        """Exists once only parameter servers are left on this node."""
        return self.path / "serving"

    @property
    def shell(self) -> Path:
        """The socket of a job that is a shell, as soon as it listens."""
        return self.path / "shell.sock"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"
