"""TensorFlow's calls that take a path, with gs:// paths replaced by those of the buckets' folders.

Three kinds: what Python's own part of TensorFlow asks its C++ file systems (all of tf.io.gfile, and so Keras, is
that), ops with a path that is known when they are called, and ops in a graph, which get ops that replace it. The last
are for reading data alone: a graph that saves or restores may be exported, and must hold no path of this machine.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from .paths import Folders  # noqa: TID252  a job imports this package by another name than the tests

# Of the modules that file_io asks: the arguments from the first on that are paths, and whether the last is written.
_ASKED = {
    "FileExists": (1, False),
    "DeleteFile": (1, False),
    "ReadFileToString": (1, False),
    "WriteStringToFile": (1, True),
    "CreateDir": (1, True),
    "RecursivelyCreateDir": (1, True),
    "CopyFile": (2, True),
    "RenameFile": (2, True),
    "DeleteRecursively": (1, False),
    "IsDirectory": (1, False),
    "HasAtomicMove": (1, False),
    "Stat": (1, False),
    "BufferedInputStream": (1, False),
    "CreateBufferedInputStream": (1, False),
    "CreateWritableFile": (1, True),
    "RecordIterator": (1, False),
    "RandomRecordReader": (1, False),
    "PyRecordReader_New": (1, False),
    "EventsWriter": (1, True),
    "NewCheckpointReader": (1, False),
    "Save": (1, True),
    "CreateFingerprintDef": (1, False),
    "ReadSavedModelFingerprint": (1, False),
    "SingleprintFromFP": (1, False),
    "SingleprintFromSM": (1, False),
    "load_partial": (1, False),
    "__init__": (2, True),  # of a writer: itself, and the path
}
_ASKING = (
    "lib.io._pywrap_file_io",
    "_pywrap_file_io",  # where 2.2 to 2.4 have them
    "_pywrap_record_io",
    "_pywrap_events_writer",
    "lib.io._pywrap_record_io",
    "client._pywrap_events_writer",
    "training.py_checkpoint_reader",
    "saved_model.pywrap_saved_model",
    "saved_model.pywrap_saved_model.fingerprinting",
    "saved_model.load",
    "pywrap_tensorflow",  # of TensorFlow 1: all of the above
    "training.training",  # which keeps NewCheckpointReader by its own name
)
# Ops: the argument, its place, and whether it may be replaced in a graph.
_OPS = {
    "gen_io_ops": {
        "read_file": ("filename", 0, True),
        "write_file": ("filename", 0, True),
        "save_v2": ("prefix", 0, False),
        "restore_v2": ("prefix", 0, False),
    },
    "gen_dataset_ops": {
        "text_line_dataset": ("filenames", 0, True),
        "tf_record_dataset": ("filenames", 0, True),
        "tf_record_dataset_v2": ("filenames", 0, True),
        "fixed_length_record_dataset": ("filenames", 0, True),
        "fixed_length_record_dataset_v2": ("filenames", 0, True),
        "cache_dataset": ("filename", 1, True),
        "cache_dataset_v2": ("filename", 1, True),
    },
    "gen_experimental_dataset_ops": {
        "csv_dataset": ("filenames", 0, True),
        "csv_dataset_v2": ("filenames", 0, True),
        "experimental_csv_dataset": ("filenames", 0, True),
        "load_dataset": ("path", 0, True),
        "save_dataset": ("path", 1, True),
        "save_dataset_v2": ("path", 1, True),
        "snapshot_dataset_v2": ("path", 1, True),
    },
    "gen_summary_ops": {"create_summary_file_writer": ("logdir", 1, False)},
    "gen_lookup_ops": {
        "initialize_table_from_text_file": ("filename", 1, False),
        "initialize_table_from_text_file_v2": ("filename", 1, False),
    },
}
# Where some ops are known by the same name, and so must be replaced too: of the public modules, and of the others.
_PUBLIC = (
    "io",
    "compat.v1.io",
    "compat.v1",
    "compat.v2.io",
    "profiler.experimental",
    "compat.v2.profiler.experimental",
)
_ALSO = ("ops.io_ops", "ops.lookup_ops")


def lead(tensorflow: Any) -> None:
    """Replace the calls of a TensorFlow that has just been imported."""
    layer = _Layer(Folders.of_environment())
    for name in _ASKING:
        for module in _modules(name):
            for function in _ASKED:
                _replace(module, function, layer.asked(function), public=tensorflow)
            _replace(module, "GetChildren", layer.children)
            _replace(module, "GetMatchingFiles", layer.matches)
            _replace(module, "WritableFile", layer.writable)
    for name, functions in _OPS.items():
        for module in _modules(f"ops.{name}"):
            for function, (argument, place, in_graph) in functions.items():
                _replace(module, function, layer.op(argument, place, in_graph=in_graph), public=tensorflow)
            _replace(module, "matching_files", layer.matching_files, public=tensorflow)
    for module in _modules("training.input"):  # queues of file names, which TensorFlow 1's readers take them off
        _replace(module, "input_producer", layer.op("input_tensor", 0, in_graph=True))
    for module in _modules("profiler.profiler_v2"):  # Keras's TensorBoard profiles the second batch, unasked
        _replace(module, "start", layer.op("logdir", 0, in_graph=False), public=tensorflow)
    _lead_classes(layer)


def _lead_classes(layer: _Layer) -> None:
    for module in _modules("lib.io.file_io"):
        _replace(module.FileIO, "write", _taking_views)
        _replace(module.FileIO, "_prepare_value", _giving_bytes)
    for module in _modules("lib.io.tf_record"):
        _replace(module.TFRecordWriter, "__init__", layer.asked("__init__"))
    for function in ("save", "restore"):
        for module in [*_modules("checkpoint.functional_saver"), *_modules("training.saving.functional_saver")]:
            _replace(module.MultiDeviceSaver, function, layer.op("file_prefix", 1, in_graph=False))
        for module in _modules("training.saver"):
            _replace(module.Saver, function, layer.op("save_path", 2, in_graph=False))
        for module in [*_modules("checkpoint.checkpoint"), *_modules("training.tracking.util")]:
            _replace(vars(module).get("TrackableSaver", _Layer), function, layer.in_session)


def _taking_views(write: Any) -> Any:
    """From Python 3.8 on pickle writes memoryviews, and so `joblib.dump(x, GFile(…))` does; FileIO takes bytes."""

    @functools.wraps(write)
    def call(self: Any, file_content: Any) -> Any:
        return write(self, bytes(file_content) if isinstance(file_content, memoryview) else file_content)

    return call


def _giving_bytes(prepare: Any) -> Any:
    """What is no text, though read as such: code of Python 2 copies a Keras model so, from one FileIO to another."""

    @functools.wraps(prepare)
    def call(self: Any, value: Any) -> Any:
        try:
            return prepare(self, value)
        except UnicodeDecodeError:
            return value

    return call


def _modules(name: str) -> list[Any]:
    """A module of TensorFlow's; or none, in a version that has it not; or two, for 1.15 to 2.1 load some twice."""
    if "tensorflow_core" in sys.modules:
        return [
            sys.modules[full]
            for full in (f"tensorflow.python.{name}", f"tensorflow_core.python.{name}")
            if full in sys.modules
        ]
    parent, _, last = name.rpartition(".")
    try:
        return [import_module(f"tensorflow.python.{name}")]
    except ImportError:  # a module that C++ makes inside another one
        return [vars(module)[last] for module in _modules(parent) if last in vars(module)] if parent else []


def _first(name: str) -> Any:
    return _modules(name)[-1]


def _replace(owner: Any, name: str, wrap: Callable[[Any], Any], public: Any = None) -> None:
    """Put a call around an attribute; where another version of TensorFlow has none, do nothing."""
    original = vars(owner).get(name)
    if original is None:
        return
    wrapped = wrap(original)
    setattr(owner, name, wrapped)
    for there in _also(public) if public is not None else ():
        if getattr(there, name, None) is original:
            setattr(there, name, wrapped)


def _also(tensorflow: Any) -> Iterator[Any]:
    for name in _PUBLIC:
        yield functools.reduce(lambda there, part: getattr(there, part, None), name.split("."), tensorflow)
    for name in _ALSO:
        yield from _modules(name)


class _Layer:
    """What is put around calls."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._errors = _first("framework.errors")
        self._ops = _first("framework.ops")

    def asked(self, name: str) -> Callable[[Any], Any]:
        count, is_written = _ASKED[name]

        def wrap(function: Any) -> Any:
            @functools.wraps(function, assigned=("__name__", "__doc__"))
            def call(*given: Any, **options: Any) -> Any:
                if "path" in options:
                    given = (*given, options.pop("path"))
                paths = [self._local(path) for path in given[:count]]
                if is_written and len(paths) == count and paths[-1] is not given[count - 1]:
                    os.makedirs(os.path.dirname(paths[-1]), exist_ok=True)
                return function(*paths, *given[count:], **options)

            return call

        return wrap

    def children(self, function: Any) -> Any:
        def call(path: Any, *given: Any) -> Any:
            local = self._local(path)
            if local is path:
                return function(path, *given)
            # As Google's: a folder's name ends with a slash. What lies in .stoker are no objects.
            names = [os.fsdecode(name) for name in function(local, *given)]
            folder = os.fsdecode(local)
            return [name + "/" * os.path.isdir(f"{folder}/{name}") for name in names if name != ".stoker"]

        return call

    def matches(self, function: Any) -> Any:
        def call(pattern: Any, *given: Any) -> Any:
            local = self._local(pattern)
            found = function(local, *given)
            if local is pattern:
                return found
            return [url for url in map(self._folders.url, found) if not _is_hidden(url)]

        return call

    def writable(self, kind: Any) -> Any:
        def call(path: Any, mode: Any) -> Any:
            local = self._local(path)
            if local is path:
                return kind(path, mode)
            local = os.fsdecode(local)
            folder = os.path.dirname(local)
            os.makedirs(folder, exist_ok=True)
            bucket = os.fsdecode(path)[len("gs://") :].partition("/")[0]
            drafts = os.path.join(str(self._folders.folder(bucket)), ".stoker", "partial")
            os.makedirs(drafts, exist_ok=True)
            # A folder of the bucket may be on another disk: no file can be moved there in one step.
            if os.fsdecode(mode).startswith("w") and os.stat(drafts).st_dev == os.stat(folder).st_dev:
                return _Draft(kind, mode, local, drafts)
            return kind(local, mode)

        return call

    def op(self, argument: str, place: int, *, in_graph: bool) -> Callable[[Any], Any]:
        def wrap(function: Any) -> Any:
            @functools.wraps(function)
            def call(*given: Any, **options: Any) -> Any:
                if argument in options:
                    options[argument] = self._value(options[argument], in_graph=in_graph)
                elif place < len(given):
                    changed = self._value(given[place], in_graph=in_graph)
                    given = (*given[:place], changed, *given[place + 1 :])
                return function(*given, **options)

            return call

        return wrap

    def in_session(self, function: Any) -> Any:
        """Of an object that saves by feeding the path to its graph, where no op can see it; without one, as it is."""

        @functools.wraps(function)
        def call(saver: Any, *given: Any, **options: Any) -> Any:
            if _first("eager.context").executing_eagerly():
                return function(saver, *given, **options)
            named = [name for name in ("file_prefix", "save_path") if name in options]  # Keras 2 gives it by name
            path, given = (options.pop(named[0]), given) if named else (given[0], given[1:])
            local = self._local(path)
            found = function(saver, local, *given, **options)
            return found if local is path or not isinstance(found, (str, bytes)) else self._folders.url(found)

        return call

    def matching_files(self, function: Any) -> Any:
        @functools.wraps(function)
        def call(pattern: Any, name: Any = None) -> Any:
            local = self._value(pattern, in_graph=True)
            found = function(local, name)
            if local is pattern:
                return found
            strings = _first("ops.string_ops")
            arrays = _first("ops.array_ops")
            maths = _first("ops.math_ops")
            urls = self._in_graph(found, self._folders.back())
            hidden = strings.regex_full_match(urls, r"gs://[^/]+/\.stoker(/.*)?")
            return arrays.boolean_mask(urls, maths.logical_not(hidden))

        return call

    def _local(self, path: Any) -> Any:
        try:
            return self._folders.local(path)
        except FileNotFoundError as error:
            raise self._errors.NotFoundError(None, None, str(error)) from None
        except NotImplementedError as error:
            raise self._errors.UnimplementedError(None, None, str(error)) from None
        except ValueError as error:
            raise self._errors.InvalidArgumentError(None, None, str(error)) from None

    def _value(self, value: Any, *, in_graph: bool) -> Any:
        """A path, several, or a tensor of them; the same object if nothing is to be replaced."""
        if isinstance(value, (str, bytes, os.PathLike)):
            return self._local(value)
        if isinstance(value, (list, tuple)):
            changed = [self._value(each, in_graph=in_graph) for each in value]
            return value if all(map(operator.is_, changed, value)) else changed
        kind = getattr(getattr(value, "dtype", None), "name", "")
        if hasattr(value, "tolist"):  # NumPy's
            return (
                self._value(value.tolist(), in_graph=in_graph) if kind.startswith(("object", "str", "bytes")) else value
            )
        if kind != "string":
            return value
        if isinstance(value, self._ops.EagerTensor):
            return self._eager(value)
        return self._in_graph(value, self._folders.there()) if in_graph else value

    def _eager(self, value: Any) -> Any:
        known = value.numpy()
        items = [known] if isinstance(known, bytes) else list(known.ravel())
        if not any(item.startswith(b"gs://") for item in items):
            return value
        constant = _first("framework.constant_op").constant
        return constant([self._local(item) for item in items], shape=value.shape)

    def _in_graph(self, value: Any, replacements: list[tuple[str, str]]) -> Any:
        replace = _first("ops.string_ops").regex_replace
        for pattern, rewrite in replacements:
            value = replace(value, pattern, rewrite, replace_global=False)
        return value


class _Draft:
    """A file being written: there under its name, as Google's are, when it is flushed or closed."""

    def __init__(self, kind: Any, mode: Any, path: str, folder: str) -> None:
        self._path = path
        self._draft: str | None = os.path.join(folder, uuid.uuid4().hex)
        self._file = kind(self._draft, mode)

    def append(self, data: Any) -> None:
        self._file.append(data)

    def tell(self) -> Any:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()
        self._show()

    def close(self) -> None:
        self._file.close()
        self._show()

    def _show(self) -> None:
        if self._draft is not None:
            os.replace(self._draft, self._path)
            self._draft = None


def _is_hidden(url: Any) -> bool:
    return os.fsdecode(url).split("/")[3:4] == [".stoker"]
