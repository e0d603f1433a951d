"""Models that this Python's libraries cannot load: each in a process of the Python and libraries that made it.

Which those are is told by the pickle itself, by the model's card, or by AI Platform's --runtime-version. The instances
are checked here, as for any other model; rows go over and answers come back.
"""

import json
import os
import re
import struct
import subprocess
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import numpy as np

from stoker.errors import ConfigError, StokerError, UsageError
from stoker.host.home import Home
from stoker.predict.base import Predictor
from stoker.schema.bundle import FieldSpec, ModelCard, Signature

# In a folder of its own, which Python puts on its path: tensorflow.py here would hide the library.
_SCRIPT = Path(__file__).parent / "scripts" / "model_process.py"
_PICKLES = ("model.joblib", "model.pkl")
# In a pickle, an estimator's field and its value: "_sklearn_version", then a few bytes of opcodes, then "0.20.4".
_MADE_BY = re.compile(rb"_sklearn_version.{1,12}?(\d+\.\d+(?:\.\d+)?(?:\.post\d+|rc\d+)?)", re.DOTALL)
# The newest Python that has builds of releases before a version.
_NEWEST_PYTHON = (((0, 22), 7), ((0, 24), 8), ((1, 0), 9), ((1, 1), 10), ((1, 3), 11), ((1, 5), 12), ((1, 8), 13))
_OLDEST_PYTHON = 7
_OF_RUNTIME_1 = "0.90"  # XGBoost in AI Platform's runtimes before 2
_LAST_OF_OLD_FORMAT = "1.7.6"  # the XGBoost that reads the binary format of all before it, and runs on any Python
_READS_ALL_BEFORE = ("tensorflow<2.16", "numpy<2")  # TensorFlow's own SavedModels, of 1 and of 2
_ABOUT_INPUT = ("ValueError", "TypeError", "LookupError", "ArithmeticError", "OpError")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class OtherRuntime:
    """Libraries, and the newest Python that there are builds of them for."""

    requirements: tuple[str, ...]
    newest: int  # 3.N

    def environment(self, home: Home, *, asked: str | None) -> dict[str, Any]:
        """As a job's; UsageError where no such Python is here."""
        from stoker.packaging.environment.runtimes import choose  # noqa: PLC0415  most models need none of this

        minors = [f"3.{minor}" for minor in range(self.newest, _OLDEST_PYTHON - 1, -1)]
        for minor in [*([asked] if asked in minors else []), *minors]:
            try:
                choose(home, python=minor)
            except UsageError:
                continue
            return {"python": minor, "requirements": list(self.requirements)}
        raise UsageError(
            f"{', '.join(self.requirements)} needs Python {' or '.join(minors[:3])}, and none is here. Install one"
            " (pyenv, uv), or train the model again on this Python."
        )


def wanted(folder: Path, card: ModelCard, *, runtime: str | None = None) -> OtherRuntime | None:
    """What made the model, where that is not what is installed here; None where it is, or nothing tells.

    `runtime` is AI Platform's runtime version, which tells of XGBoost's own files; with it, a SavedModel is called in a
    process that has TensorFlow, if there is none here.
    """
    if card.framework == "tensorflow" and runtime is not None and _installed("tensorflow") is None:
        return OtherRuntime(_READS_ALL_BEFORE, 11)
    if card.framework not in ("sklearn", "xgboost"):
        return None
    pickle = next((folder / name for name in _PICKLES if (folder / name).is_file()), None)
    if pickle is None:
        return _of_booster(folder, runtime)
    data = pickle.read_bytes()
    recorded = [line.partition("==")[2] for line in card.requirements if line.startswith("scikit-learn==")]
    found = _MADE_BY.search(data)
    made_by = found[1].decode() if found else next(iter(recorded), None)
    if made_by is None or made_by == _installed("scikit-learn"):
        return None
    numbers = tuple(int(part) for part in made_by.split(".")[:2])
    newest = next((minor for before, minor in _NEWEST_PYTHON if numbers < before), 14)
    lines = list(_requirements(numbers, made_by))
    if b"xgboost" in data:
        lines.append(f"xgboost=={_OF_RUNTIME_1}" if numbers < (0, 22) else f"xgboost=={_LAST_OF_OLD_FORMAT}")
    if b"pandas" in data:
        lines.append("pandas")
    return OtherRuntime(tuple(lines), newest)


def _requirements(numbers: tuple[int, ...], release: str) -> tuple[str, ...]:
    return f"scikit-learn=={release}", "joblib", "numpy<1.20" if numbers < (0, 22) else "numpy<2"


def _of_booster(folder: Path, runtime: str | None) -> OtherRuntime | None:
    """For XGBoost's old format, which says nothing of who wrote it."""
    file = next((folder / name for name in ("model.bst", "model.json") if (folder / name).is_file()), None)
    start = file.read_bytes()[:16].removeprefix(b"binf") if file is not None else b""
    # A base score and the number of features; later formats begin with a brace.
    if len(start) < 8 or start.startswith(b"{") or not 0 < struct.unpack_from("<fI", start)[1] < 10_000_000:
        return None
    if runtime is not None and runtime.startswith("1."):
        return OtherRuntime((f"xgboost=={_OF_RUNTIME_1}", *_requirements((0, 20), "0.20.4")), 7)
    return OtherRuntime((f"xgboost=={_LAST_OF_OLD_FORMAT}", "numpy<2"), 11)


def load(
    folder: Path,
    card: ModelCard,
    other: OtherRuntime,
    *,
    home: Home,
    python: str | None = None,
    signature_name: str | None = None,
    say: Say = lambda line: None,
) -> Predictor:
    """The model in a process of that runtime, which is made the first time. ConfigError when it cannot be loaded."""
    from stoker.packaging.environment.cache import prepare  # noqa: PLC0415  as above

    environment = other.environment(home, asked=python)
    say(f"{card.name} is of {other.requirements[0]}: it is called in a Python {environment['python']} that has it.")
    prepared = prepare(environment, home=home, say=say)
    estimator = str(card.metadata.get("estimator", ""))
    kind = estimator if re.fullmatch(r"XGB\w+", estimator) else card.framework
    code = folder.resolve() / "code"
    variables = {**prepared.variables, **({"PYTHONPATH": str(code)} if code.is_dir() else {})}
    words = [
        str(prepared.python),
        str(_SCRIPT),
        str(folder.resolve()),
        kind,
        *([signature_name] if signature_name else []),
    ]
    process = Process(words, variables)
    if card.framework == "tensorflow":
        variables.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        from stoker.predict.elsewhere.tensorflow import RemoteSavedModel  # noqa: PLC0415  as above

        return RemoteSavedModel(process, card, folder)
    return _predictor(RemoteModel(process, folder), card, signature_name)


def _predictor(model: "RemoteModel", card: ModelCard, signature_name: str | None) -> Predictor:
    if model.is_booster:
        from stoker.predict.loaders.xgboost import XgboostPredictor  # noqa: PLC0415  as above

        card = card.with_(framework="xgboost")
        if not card.signature.inputs:
            card = card.with_(signature=model.signature)
        return XgboostPredictor(lambda rows: model.call("predict", rows), card)
    from stoker.predict.loaders.sklearn import predictor  # noqa: PLC0415  as above

    return predictor(model, card, signature_name=signature_name)


class RemoteModel:
    """An estimator that is elsewhere, as far as the loaders ask for one."""

    def __init__(self, process: "Process", folder: Path) -> None:
        self._process = process
        said = process.start()
        if "error" in said:
            raise ConfigError(f"{folder} cannot be loaded by {process.python}: {said['error']}: {said['message']}")
        self.is_booster = said["class"] == "Booster"
        self.n_features_in_ = said["width"]
        self._names = said["names"]
        if self._names is not None and not self.is_booster:
            self.feature_names_in_ = self._names
        if said["classes"] is not None:
            self.classes_ = np.array(said["classes"])
        for method in said["methods"]:
            setattr(self, method, self._method(method))

    @property
    def signature(self) -> Signature:
        """Of a booster, which takes missing values everywhere."""
        if self._names is not None:
            return Signature(
                inputs=tuple(FieldSpec(name=name, dtype="float", shape=(), nullable=True) for name in self._names)
            )
        return Signature(inputs=(FieldSpec(name="", dtype="float", shape=(self.n_features_in_,), nullable=True),))

    def call(self, method: str, rows: Any) -> Any:
        return self._process.ask(method, rows)

    def _method(self, name: str) -> Callable[[Any], Any]:
        return lambda rows: self.call(name, rows)


class Process:
    """The process, and the words that go to and fro. One question at a time; one that has died is started again."""

    def __init__(self, words: list[str], variables: dict[str, str]) -> None:
        self._words = words
        self._variables = variables
        self._turn = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def python(self) -> str:
        return self._words[0]

    def start(self) -> dict[str, Any]:
        """Start it, and hear what it has loaded."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._running = subprocess.Popen(
            self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**environment, **self._variables}
        )
        weakref.finalize(self, _end, self._running)
        return self._heard()[0]

    def ask(self, method: str, rows: Any) -> Any:
        """The model's answer. ValueError for what is wrong with the rows; StokerError when it cannot be asked."""
        header, data = _packed(method, rows)
        with self._turn:
            if self._running is None or self._running.poll() is not None:
                self.start()
            assert self._running is not None
            assert self._running.stdin is not None
            try:
                self._running.stdin.write(json.dumps(header).encode() + b"\n" + data)
                self._running.stdin.flush()
            except OSError as error:
                raise self._ended() from error
            said, found = self._heard()
        if "error" not in said:
            return said["values"] if "values" in said else _array(said, found)
        if set(said.get("kinds", ())) & set(_ABOUT_INPUT):
            raise ValueError(said["message"])
        raise StokerError(f"The model fails on {self.python}: {said['error']}: {said['message']}")

    def _heard(self) -> tuple[dict[str, Any], bytes]:
        assert self._running is not None
        out = self._running.stdout
        assert out is not None
        line = out.readline()
        if not line.endswith(b"\n"):
            raise self._ended()
        said: dict[str, Any] = json.loads(line)
        return said, out.read(said.get("bytes", 0))

    def _ended(self) -> StokerError:
        assert self._running is not None
        code = self._running.wait()
        return StokerError(f"The process that holds the model ended ({self.python}, exit code {code}).")


def _packed(method: str, rows: Any) -> tuple[dict[str, Any], bytes]:
    """Numbers as bytes; what else there is as JSON."""
    columns = [str(name) for name in rows.columns] if hasattr(rows, "columns") else None
    plain = rows.to_numpy() if columns is not None else rows
    header: dict[str, Any] = {"method": method, "columns": columns}
    if isinstance(plain, np.ndarray) and plain.dtype.kind in "fiub":
        data = np.ascontiguousarray(plain, dtype="<f8")
        return {**header, "shape": data.shape, "bytes": data.nbytes}, data.tobytes()
    values = plain.tolist() if isinstance(plain, np.ndarray) else list(plain)
    return {**header, "rows": values}, b""


def _array(said: dict[str, Any], data: bytes) -> Any:
    return np.frombuffer(data, dtype=np.dtype(said["dtype"])).reshape(said["shape"])


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _end(process: "subprocess.Popen[bytes]") -> None:
    files: list[IO[bytes] | None] = [process.stdin, process.stdout]
    for file in files:
        if file is not None:
            file.close()
    process.kill()
    process.wait()
