"""Anything a run says. Numbered per run and node by its supervisor, so sending a batch twice is harmless."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from stoker.schema.model import Model
from stoker.schema.state import StopReason


class Phase(StrEnum):
    """Where a run is; a failure names the one it happened in."""

    PACKAGE = "package"  # fetching and unpacking the code
    ENVIRONMENT = "environment"  # making a Python that satisfies it
    START = "start"  # starting the replicas
    USER_CODE = "user code"


class _Event(Model):
    seq: int  # from 1, without gaps, per run and node
    time: float  # seconds since the epoch, when it happened on the worker


class Log(_Event):
    """Consecutive lines of one stream of one replica, read together. `text` has no final newline.

    A block, not a line, is the unit: 100,000 lines a second are a few dozen events. `level` holds the lines
    (by offset in the block) whose own words give a level other than INFO.
    """

    type: Literal["log"] = "log"
    replica: str  # "chief-0"; "supervisor" for what stoker itself says
    stream: Literal["stdout", "stderr"]
    line: int  # number of the first line, from 1, counted over the whole run and node
    count: int
    text: str
    levels: dict[int, str] = {}


class Metric(_Event):
    type: Literal["metric"] = "metric"
    replica: str = "chief-0"
    group: str = "training"
    step: int
    values: dict[str, float]  # NaN and the infinities travel as strings in JSON


class Checkpoint(_Event):
    type: Literal["checkpoint"] = "checkpoint"
    step: int
    path: str  # a folder or file, or a storage URL
    size_bytes: int = 0
    metadata: dict[str, str | int | float | bool | None] = {}


class ModelSaved(_Event):
    """User code exported a model: a bundle (schema/bundle.py), or files taken as they are."""

    type: Literal["model"] = "model"
    name: str
    path: str  # a folder, or a storage URL
    framework: str = ""  # a key of predict/frameworks.py; empty for files that nobody looked at yet
    metrics: dict[str, float] = {}  # NaN and the infinities travel as strings in JSON
    size_bytes: int = 0


class Progress(_Event):
    type: Literal["progress"] = "progress"
    fraction: float


class InvalidHp(_Event):
    """User code refused its hyperparameters: a search tries others in their place."""

    type: Literal["invalid_hp"] = "invalid_hp"
    reason: str = ""


class PhaseStarted(_Event):
    type: Literal["phase"] = "phase"
    phase: Phase


class Exited(_Event):
    """The last event of a node: everything it started has ended."""

    type: Literal["exited"] = "exited"
    phase: Phase  # where it ended
    code: int | None = None  # the first failing replica's exit code (0: all succeeded); None if nothing was started
    signal: str | None = None  # "SIGKILL" when a signal ended it
    replica: str | None = None  # the first that failed
    stop: StopReason | None = None  # it had been told to stop
    message: str = ""  # one line for a person: what failed
    traceback: str = ""  # the user's own, when there was one


Event = Annotated[
    Log | Metric | Checkpoint | ModelSaved | Progress | InvalidHp | PhaseStarted | Exited, Field(discriminator="type")
]


class EventBatch(Model):
    """`POST /runs/{run}/events`: what node `node` of the run says, in order."""

    node: int = 0
    events: tuple[Event, ...]


class EventReply(Model):
    """Everything up to `acked` is durable on the server; `stop` is an order to end the run."""

    acked: int
    stop: StopReason | None = None
