"""A run seen from inside the user's process: files and a signal, nothing else.

Standard library only and valid on Python 3.7, because it is imported by user code on any runtime. It opens no
socket, starts no thread and holds no token; the supervisor reads what it writes.

    $STOKER_RUN_DIR/run.json       read:    hparams, data, origin, latest checkpoint, seed, ids
    $STOKER_RUN_DIR/events.jsonl   append:  one JSON object a line, one write() each
    $STOKER_RUN_DIR/stop           exists:  the run should end; holds the reason
    $STOKER_RUN_DIR/checkpoints/   made:    where save_checkpoint copies and where trainers write
    $STOKER_RUN_DIR/models/        made:    where save_model writes, a folder for each name

Without a supervisor (plain `python train.py`) the run directory is ./stoker-runs/TIME-PID, made at the first write.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional

from stoker.atomic import replace_folder
from stoker.run_dir import RunDir

if TYPE_CHECKING:
    from stoker.origin import Origin


def init(hparams: Optional[Dict[str, Any]] = None) -> "Context":
    """The context of this process's run. `hparams` are defaults for those the run does not set."""
    return Context(os.environ.get("STOKER_RUN_DIR"), hparams or {})


class InvalidHP(Exception):
    """Raise it when these hyperparameters cannot work: the trial ends politely, and its search tries others."""


class Context:
    """Hyperparameters in; metrics, checkpoints and progress out. Also a context manager, for those who like it."""

    def __init__(self, run_dir: Optional[str], hparams: Dict[str, Any]) -> None:
        self._run = {} if run_dir is None else RunDir(run_dir).read_launch()
        self.managed = run_dir is not None  # a supervisor is watching
        folder = run_dir or os.path.join("stoker-runs", time.strftime("%Y%m%d-%H%M%S-") + str(os.getpid()))
        self.run_dir = os.path.abspath(folder)
        self.hparams = {**hparams, **self._run.get("hparams", {})}
        self.config_data = self._run.get("data", {})
        self.job = self._run.get("job")
        self.trial = self._run.get("trial", 1)
        self.trial_id = self._run.get("trial_id", 0)
        self.run_id = self._run.get("run", "")
        self.attempt = self._run.get("attempt", 1)
        self.seed = self._run.get("seed", 0)
        self.job_dir = self._run.get("job_dir")
        self.in_search = bool(self._run.get("in_search"))
        self.latest_checkpoint = self._run.get("latest_checkpoint")  # a path, or None
        self.rank = int(os.environ.get("RANK", "0"))
        self.world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self._replica = _encode(os.environ.get("STOKER_REPLICA", "chief-0"))
        self._stop_file = str(RunDir(self.run_dir).stop)
        self._stopped = False
        self._is_signalled = False  # by SIGTERM, and user code does not know it yet
        self._events = -1  # file descriptor, opened at the first event
        self._is_torn = False  # the last line lacks its end
        self._asked = 0.0
        if self.managed:
            _notice_sigterm(self)

    def report(self, step: int, group: str = "training", **metrics: float) -> None:
        """Record metrics at a step. Values are numbers, or anything `float()` takes (a 0-d tensor, a numpy scalar)."""
        # Written out by hand: a general JSON encoder takes longer than all the rest, and some report at every step.
        values = ",".join([_quoted(name) + ":" + _number(value) for name, value in metrics.items()])
        self._write('"type":"metric","step":%d,"group":%s,"values":{%s}' % (int(step), _quoted(str(group)), values))

    def progress(self, fraction: float) -> None:
        """How far along the run is, from 0 to 1."""
        self._write('"type":"progress","fraction":%r' % min(max(float(fraction), 0.0), 1.0))

    def invalid_hp(self, reason: str = "") -> None:
        """Say that these hyperparameters cannot work, before ending: a search then tries others in their place."""
        self._write('"type":"invalid_hp","reason":%s' % _encode(str(reason)))

    def save_checkpoint(self, path: Any, step: int, **metadata: Any) -> str:
        """Keep a file or folder as the checkpoint of this step; returns where it is kept.

        What lies outside the run's checkpoints/ is copied there under a temporary name and renamed, so a checkpoint is
        whole or not there. A restarted run gets the newest one as `latest_checkpoint`.
        """
        source = os.path.abspath(os.fspath(path))
        if not os.path.exists(source):
            raise FileNotFoundError("No checkpoint at {!r}: save it there first, then report it.".format(source))
        kept = source if _is_inside(source, self.checkpoint_dir) else self._copy_in(source, int(step))
        event = {"type": "checkpoint", "step": int(step), "path": kept, "size_bytes": _size(kept), "metadata": metadata}
        self._write(_encode(event)[1:-1])
        self.latest_checkpoint = kept
        return kept

    def save_model(self, model: Any, name: str = "model", **details: Any) -> str:
        """Keep a model to predict with, as the bundle `name` of this run; returns its folder. Only rank 0 writes.

        `model` is what was trained (torch, scikit-learn, XGBoost, Keras, transformers), or the path of a file or folder
        that holds one already. `details` are those of `stoker.predict.exporters.export`: example, metrics, labels,
        metadata, tokenizer, format.
        """
        if not re.match(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z", name):
            raise ValueError("{!r} is no name for a model: letters, digits, '.', '_' and '-'.".format(name))
        folder = str(RunDir(self.run_dir).models / name)
        if self.rank == 0:
            framework = self._export(model, folder, name, details)
            metrics = {key: float(value) for key, value in (details.get("metrics") or {}).items()}
            event = {"type": "model", "name": name, "path": folder, "framework": framework, "size_bytes": _size(folder)}
            values = ",".join([_quoted(key) + ":" + _number(value) for key, value in metrics.items()])
            self._write(_encode(event)[1:-1] + ',"metrics":{%s}' % values)
        return folder

    @property
    def origin(self) -> Optional[Origin]:
        """The platform this job was written for, with what its file said there; None for a job of our own."""
        from stoker.origin import Origin  # noqa: PLC0415 - takes half as long to import as all of this file

        return Origin.from_json(self._run.get("origin"))

    @property
    def checkpoint_dir(self) -> str:
        """The run's own folder for checkpoints; made when asked for."""
        path = str(RunDir(self.run_dir).checkpoints)
        os.makedirs(path, exist_ok=True)
        return path

    def should_stop(self) -> bool:
        """True once the run was told to end: save what you need and leave. Cheap enough for every step."""
        if not self._stopped:
            now = time.monotonic()
            if now - self._asked >= 0.05:  # a signal can be missed by a busy rank; the file is there all the same
                self._asked = now
                self._stopped = os.path.exists(self._stop_file)
        if self._is_signalled:
            self._is_signalled = False
            self._note_interruption()
        return self._stopped

    def _note_interruption(self) -> None:
        """User code is about to leave early because of a SIGTERM. If the supervisor did not send it (it writes the stop
        file first), exit code 0 must not pass for success."""
        if self.managed and not os.path.exists(self._stop_file):
            with open(str(RunDir(self.run_dir).interrupted), "w"):
                pass

    @property
    def stop_reason(self) -> Optional[str]:
        """cancel, pause, preempt, prune or timeout, once told to stop."""
        try:
            with open(self._stop_file) as file:
                return file.read().strip() or None
        except OSError:
            return None

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, kind: Any = None, error: Any = None, at: Any = None) -> None:
        refused = isinstance(error, InvalidHP) and self.in_search
        if refused and self.rank == 0:
            self.invalid_hp(str(error))
        if self._events >= 0:
            os.close(self._events)
            self._events = -1
        if refused:
            raise SystemExit(0)  # nothing went wrong; without a search it is an error like any other

    def _write(self, fields: str) -> None:
        """Append an event; `fields` is its JSON without the brackets."""
        if self._events < 0:
            os.makedirs(self.run_dir, exist_ok=True)
            self._events = os.open(RunDir(self.run_dir).events, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        # One write() with O_APPEND: lines of several ranks do not mix, and none is half there after kill -9.
        line = ('{%s,"time":%r,"replica":%s}\n' % (fields, time.time(), self._replica)).encode()
        if self._is_torn:
            line = b"\n" + line  # ends what a full disk cut off
        written = os.write(self._events, line)
        self._is_torn = written < len(line)
        while written < len(line):  # a full disk takes a part, and then raises: the caller has to know
            written += os.write(self._events, line[written:])
        self._is_torn = False

    def _export(self, model: Any, folder: str, name: str, details: Dict[str, Any]) -> str:
        """Write the bundle; returns the framework's name."""
        is_path = isinstance(model, (str, os.PathLike))
        try:
            # By its name, and only here: it needs a newer Python than this file does, and libraries.
            exporters = importlib.import_module("stoker.predict.exporters")
        except (ImportError, SyntaxError) as error:
            if not is_path:
                hint = "Save the model with its framework, and give save_model() the path."
                raise RuntimeError("This Python cannot write models ({}). {}".format(error, hint)) from error
            _copy_as_folder(model, folder)  # as it is: a folder with one model file is a model too
            return ""
        details = dict(details)
        details.setdefault("origin", self._made_by())
        return str(exporters.export(model, folder, name=name, **details).framework)

    def _made_by(self) -> Dict[str, Any]:
        origin = {"hparams": json.loads(_encode(self.hparams)), "checkpoint": self.latest_checkpoint}
        if self.managed:
            origin.update(job=self.job, trial=self.trial, run=self.run_id, package=self._run.get("package"))
        return origin

    def _copy_in(self, source: str, step: int) -> str:
        suffix = "" if os.path.isdir(source) else os.path.splitext(source)[1]
        kept = os.path.join(self.checkpoint_dir, "step-{:09d}{}".format(step, suffix))
        partial = "{}.partial-{}".format(kept, os.getpid())
        if os.path.isdir(source):
            shutil.copytree(source, partial)
        else:
            shutil.copy2(source, partial)
        replace_folder(partial, kept)
        return kept


def _copy_as_folder(source: Any, folder: str) -> None:
    """A folder with what is in a folder, or with one file in it; whole or not at all."""
    partial = "{}.partial-{}".format(folder, os.getpid())
    if os.path.isdir(source):
        shutil.copytree(source, partial)
    else:
        os.makedirs(partial)
        shutil.copy2(source, partial)
    replace_folder(partial, folder)


def _notice_sigterm(context: Context) -> None:
    """Remember SIGTERM, and do no more: the user's loop asks should_stop().

    Only where nobody else handles it, and only in the main thread (Python allows no other).
    """

    def remember(signum: int, frame: Any) -> None:
        context._stopped = context._is_signalled = True

    try:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, remember)
    except ValueError:
        pass  # not the main thread: the stop file will do


def _number(value: Any) -> str:
    """A metric's value as JSON; NaN and the infinities go by name, for which JSON has no numbers."""
    number = float(value)
    if number - number == 0.0:
        return float.__repr__(number)
    return '"NaN"' if number != number else '"Infinity"' if number > 0 else '"-Infinity"'


def _plain(value: Any) -> Any:
    """What JSON has no word for: numpy's and torch's scalars as numbers, all else as text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


_encode = json.JSONEncoder(separators=(",", ":"), default=_plain).encode
_quoted_names: Dict[str, str] = {}


def _quoted(name: str) -> str:
    if name not in _quoted_names:
        if len(_quoted_names) > 1000:
            _quoted_names.clear()
        _quoted_names[name] = _encode(name)
    return _quoted_names[name]


def _is_inside(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep)


def _size(path: str) -> int:
    return sum(os.path.getsize(file) for file in _files(path))


def _files(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
    for folder, _, names in os.walk(path):
        for name in names:
            yield os.path.join(folder, name)
