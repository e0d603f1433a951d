"""Models of another time: which libraries made them, and how they are called in a process that has those."""

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest

from stoker.cli.main import main
from stoker.errors import ConfigError, InstanceError, StokerError, UsageError
from stoker.host.home import Home
from stoker.packaging.environment import runtimes
from stoker.packaging.environment.cache import prepare
from stoker.packaging.environment.runtimes import choose
from stoker.predict.elsewhere import runtime as other_runtime
from stoker.predict.elsewhere.tensorflow import RemoteSavedModel
from stoker.predict.loading import MadeOn, load
from stoker.schema.bundle import ModelCard

# What pickle writes of an estimator whose module has moved since.
FOREST = b"\x80\x03csklearn.ensemble.forest\nRandomForestClassifier\n)R}"
VERSION = b"X\x10\x00\x00\x00_sklearn_versionq\x01X\x06\x00\x00\x00%bq\x02sb."


def card(framework: str) -> ModelCard:
    return ModelCard(name="m", framework=framework, created=datetime(2020, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("version", "more", "first", "python"),
    [
        (b"0.20.4", b"", "scikit-learn==0.20.4", 7),
        (b"0.22.1", b"", "scikit-learn==0.22.1", 8),
        (b"1.0.2", b"xgboost.sklearn", "scikit-learn==1.0.2", 10),
    ],
)
def test_a_pickle_tells_what_made_it(tmp_path: Path, version: bytes, more: bytes, first: str, python: int) -> None:
    (tmp_path / "model.pkl").write_bytes(FOREST + VERSION % version + more)

    found = other_runtime.wanted(tmp_path, card("sklearn"))

    assert found is not None
    assert (found.requirements[0], found.newest) == (first, python)
    assert any(line.startswith("xgboost") for line in found.requirements) is bool(more)


@pytest.mark.parametrize(
    ("data", "runtime", "first"),
    [
        (struct.pack("<fI", 0.5, 12) + bytes(100), None, "xgboost==1.7.6"),
        (struct.pack("<fI", 0.5, 12) + bytes(100), "1.15", "xgboost==0.90"),
        (b"binf" + struct.pack("<fI", 0.5, 12) + bytes(100), "2.1", "xgboost==1.7.6"),
        (b'{"learner": {}}', None, None),
        (b"not a model at all", None, None),
        (b"", None, None),
    ],
)
def test_a_booster_of_the_old_format_is_told_from_what_is_none(
    tmp_path: Path, data: bytes, runtime: str | None, first: str | None
) -> None:
    (tmp_path / "model.bst").write_bytes(data)
    found = other_runtime.wanted(tmp_path, card("xgboost"), runtime=runtime)
    assert (None if found is None else found.requirements[0]) == first


# What is asked of TensorFlow, of a model that joins a name to twice a number.
TENSORFLOW = """
import types

class Kind:
    is_floating = is_integer = False

string, bool, floating = Kind(), Kind(), Kind()
floating.is_floating = True

class Array(list):
    numpy = tolist = lambda self: self

def spec(kind, *shape):
    rank = types.SimpleNamespace(rank=len(shape), as_list=lambda: list(shape))
    return types.SimpleNamespace(dtype=kind, shape=rank)

def constant(value, dtype):
    return value

class Function:
    structured_input_signature = ((), {"name": spec(string, None), "number": spec(floating, None, 1)})

    def __call__(self, name, number):
        if any(row[0] < 0 for row in number):
            raise ValueError("it is negative")
        return {"both": Array([one + b"!" for one in name]), "twice": Array([[row[0] * 2] for row in number])}

def load(folder):
    return types.SimpleNamespace(signatures={"serving_default": Function()})

saved_model = types.SimpleNamespace(load=load)
"""


@pytest.mark.slow
def test_a_saved_model_is_called_where_there_is_tensorflow(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
    script = Path(other_runtime.__file__).parent / "scripts" / "model_process.py"

    def model(*signature: str) -> RemoteSavedModel:
        words = [sys.executable, str(script), str(tmp_path), "tensorflow", *signature]
        process = other_runtime.Process(words, {"PYTHONPATH": str(tmp_path)})
        return RemoteSavedModel(process, card("tensorflow"), tmp_path)

    found = model()

    assert [(one.name, one.dtype, one.shape) for one in found.card.signature.inputs] == [
        ("name", "bytes", ()),
        ("number", "float", (1,)),
    ]
    instances = [{"name": "a", "number": [1.5]}, {"name": {"b64": "Yg=="}, "number": [2]}]
    assert found.predict(instances) == [{"both": "a!", "twice": [3.0]}, {"both": "b!", "twice": [4.0]}]
    with pytest.raises(InstanceError, match="instance 1"):
        found.predict([{"name": "a", "number": [1]}, {"name": "a", "number": [-1]}])
    with pytest.raises(ConfigError, match="no signature 'other'. There are: serving_default"):
        model("other")


@pytest.mark.skipif(find_spec("tensorflow") is not None, reason="TensorFlow is installed")
def test_a_saved_model_of_a_runtime_version_wants_tensorflow(tmp_path: Path) -> None:
    found = other_runtime.wanted(tmp_path, card("tensorflow"), runtime="2.3")

    assert found is not None
    assert found.requirements[0].startswith("tensorflow")
    assert other_runtime.wanted(tmp_path, card("tensorflow")) is None


def test_without_such_a_python_the_release_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.pkl").write_bytes(FOREST + VERSION % b"0.20.4")
    monkeypatch.setattr(runtimes, "find_pythons", lambda: [])

    with pytest.raises(UsageError, match=r"scikit-learn==0\.20\.4, .*needs Python 3\.7, and none is here") as said:
        load(tmp_path, trust_pickle=True, home=Home(tmp_path / "home").make())

    assert "\n" not in str(said.value)


MAKE = """
import sys, numpy, xgboost
from sklearn.externals import joblib
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
rows = numpy.random.RandomState(0).rand(60, 3)
labels = (rows[:, 0] > 0.5).astype(int)
pipeline = make_pipeline(StandardScaler(), xgboost.XGBClassifier(n_estimators=3)).fit(rows, labels)
joblib.dump(pipeline, "pipeline/model.joblib")
booster = xgboost.train({"objective": "binary:logistic"}, xgboost.DMatrix(rows, labels), 3)
booster.save_model("booster/model.bst")
print(pipeline.predict_proba(rows[:2]).tolist(), booster.predict(xgboost.DMatrix(rows[:2])).tolist(), rows[:2].tolist())
"""


@pytest.mark.slow
def test_models_of_runtime_1_predict_what_they_predicted_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path / "home").make()
    monkeypatch.setenv("STOKER_HOME", str(home.root))
    try:
        choose(home, python="3.7")
    except StokerError:
        pytest.skip("there is no Python 3.7 on this machine")
    lines = ["scikit-learn==0.20.4", "joblib", "numpy<1.20", "xgboost==0.90"]
    old = prepare({"python": "3.7", "requirements": lines}, home=home)
    for name in ("pipeline", "booster"):
        (tmp_path / name).mkdir()
    made = subprocess.run(
        [old.python, "-W", "ignore", "-c", MAKE], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    there, scores, rows = json.loads(f"[{made.stdout.replace('] [', '], [')}]")

    (tmp_path / "rows.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    words = ["--model-dir", str(tmp_path / "pipeline"), "--json-instances", str(tmp_path / "rows.json"), "--trust"]
    assert main(["local", "predict", *words, "--signature-name", "predict_proba", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictions"] == there

    predictor = load(tmp_path / "booster", made_on=MadeOn("1.15", "3.7"), home=home)
    assert predictor.predict(rows) == scores
    with pytest.raises(InstanceError, match=r"instance 1: has 2 values; expected 3"):
        predictor.predict([rows[0], [1.0, 2.0]])

    held = [pid for pid in os.listdir("/proc") if pid.isdigit() and _is_of(pid, tmp_path / "booster")]
    os.kill(int(held[0]), signal.SIGKILL)
    with contextlib.suppress(StokerError):  # that it ended, if it is not gone before the question
        predictor.predict(rows)
    assert predictor.predict(rows) == scores  # it was started again


def _is_of(pid: str, folder: Path) -> bool:
    try:
        return str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
