"""What pages draw, and a script can have: lines of metrics, trials in columns, log windows, code, rungs.

In columns, all lists of an object have the same length. A number that is not finite is None.
"""

from typing import Any, Literal

from pydantic import Field

from stoker.schema.job import Share
from stoker.schema.launch import Archive
from stoker.schema.model import Model


class SeriesName(Model):
    group: str
    name: str


class SeriesLine(Model):
    """A metric of a trial to draw; `exact` if no point was left out of `total`."""

    trial: int
    group: str
    name: str
    replica: str
    total: int
    exact: bool
    x: tuple[float, ...]
    y: tuple[float | None, ...]


class Series(Model):
    """`names` are all that these trials have; `cursor` is where news begin."""

    job: str
    x: Literal["step", "time"]
    cursor: int
    trials: tuple[int, ...]
    names: tuple[SeriesName, ...]
    series: tuple[SeriesLine, ...]


class NewPoints(Model):
    """Points of a line, each with the number of its report."""

    trial: int
    group: str
    name: str
    replica: str
    n: tuple[int, ...]
    step: tuple[int, ...]
    time: tuple[float, ...]
    y: tuple[float | None, ...]


class SeriesNews(Model):
    """What was reported after a cursor; not `whole` if there was more than one answer holds."""

    job: str
    after: int
    cursor: int
    whole: bool
    series: tuple[NewPoints, ...]


class TrialColumns(Model):
    """All trials of a job. Hyperparameters are flat, with dots; metrics are the newest of each."""

    job: str
    total: int
    metric: str | None
    maximize: bool
    version: str
    columns: dict[str, tuple[Any, ...]]
    hparams: dict[str, tuple[Any, ...]] = {}
    metrics: dict[str, tuple[float | None, ...]] = {}


class LogSource(Model):
    run: str
    trial: int
    attempt: int
    replica: str
    stream: str


class LogWindow(Model):
    """Lines of a log. `n` never changes; `source` is a place in `sources`; until `complete`, ask again."""

    lines: int
    matches: int
    complete: bool
    scanned: int
    begin: int = Field(alias="from")
    n: tuple[int, ...]
    text: tuple[str, ...]
    level: tuple[str, ...]
    time: tuple[float, ...]
    source: tuple[int, ...]
    sources: tuple[LogSource, ...]
    replicas: tuple[str, ...] = ()  # all that have said anything, in this window or not


class RungTrial(Model):
    trial: int
    value: float | None = None  # its objective, where it stands; not known of rungs that it passed
    outcome: Literal["promoted", "stopped", "finished", "running"]


class Rung(Model):
    time: int
    trials: tuple[RungTrial, ...]


class BracketRungs(Model):
    bracket: int
    rungs: tuple[Rung, ...]


class Rungs(Model):
    job: str
    metric: str | None = None
    brackets: tuple[BracketRungs, ...] = ()


class PackageFile(Model):
    path: str
    size_bytes: int
    is_text: bool


class PackageText(PackageFile):
    text: str | None
    reason: str = ""  # why there is no text


class PackageFiles(Model):
    package: str
    files: tuple[PackageFile, ...]


class FileChange(Model):
    path: str
    change: str  # added, removed, changed or same
    diff: str = ""  # unified; empty for what is no text or too long
    reason: str = ""  # why there is no diff of what changed


class ConfigChange(Model):
    path: str
    a: Any = None
    b: Any = None


class JobDiff(Model):
    a: str
    b: str
    config: tuple[ConfigChange, ...]
    files: tuple[FileChange, ...]


class Process(Share):
    name: str


class JobEnvironment(Model):
    runtime: str | None
    python: str | None
    requirements: tuple[str, ...]
    archives: tuple[Archive, ...]
    variables: dict[str, str]
    package: str | None
    pool: str
    replicas: tuple[Process, ...]


class Command(Model):
    title: str
    command: str


class Commands(Model):
    commands: tuple[Command, ...]


class Prediction(Model):
    """What came back; `status` is the served model's own."""

    status: int
    answer: Any
