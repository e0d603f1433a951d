"""Which model a folder holds, where it comes from, and whether its code may run."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import ConfigError, InstanceError, NotFoundError, StokerError, UsageError
from stoker.host.home import Home
from stoker.predict import bundle
from stoker.predict.exporters import export
from stoker.predict.loading import describe, load
from stoker.schema.bundle import ModelCard

PREDICTOR = """
from pathlib import Path

def load(model_dir):
    global factor
    factor = float(Path(model_dir, "factor.txt").read_text())

def predict(instances):
    return [factor / value for value in instances]
"""

ROUTINE = """
import json, os

class Doubler:
    def __init__(self, factor):
        self.factor = factor

    @classmethod
    def from_path(cls, model_dir):
        with open(os.path.join(model_dir, "factor.txt")) as file:
            return cls(float(file.read()))

    def predict(self, instances, **kwargs):
        return [value * self.factor for value in instances]

class Bad(Doubler):
    def predict(self):
        return []
"""


@pytest.fixture(autouse=True)
def python_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Loading custom code changes both."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("stoker_predictor_", "routine_")):
            del sys.modules[name]


@pytest.fixture
def custom(tmp_path: Path) -> Path:
    folder = tmp_path / "custom"
    folder.mkdir()
    (folder / "predictor.py").write_text(PREDICTOR)
    (folder / "factor.txt").write_text("6")
    return folder


def test_predictor_file_loads_and_predicts(custom: Path, tmp_path: Path) -> None:
    export(custom, tmp_path / "bundle", name="custom")

    predictor = load(tmp_path / "bundle", trust_pickle=True)

    assert predictor.predict([1, 2]) == [6.0, 3.0]
    assert predictor.predict([]) == []
    bundle.read_verified(tmp_path / "bundle")  # nothing was left beside the code
    with pytest.raises(InstanceError, match="instance 1: the model refuses it: float division by zero"):
        predictor.predict([1, 0])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def predict(i): raise RuntimeError('out of order')", "own code failed: RuntimeError: out of order"),
        ("def predict(i): return 3", "answered with a int, not a list"),
        ("def predict(i): return [1]", "answered 2 instances with 1 predictions"),
    ],
)
def test_faults_of_custom_code_are_not_the_instances(custom: Path, code: str, message: str) -> None:
    (custom / "predictor.py").write_text(code)

    with pytest.raises(StokerError, match=message) as caught:
        load(custom, trust_pickle=True).predict([1, 2])

    assert not isinstance(caught.value, InstanceError)


@pytest.mark.parametrize(
    ("code", "message"),
    [("1/0", "fails while it is loaded: ZeroDivisionError"), ("x = 1", r"has no predict\(instances\)")],
)
def test_custom_code_that_cannot_be_loaded_is_refused(custom: Path, code: str, message: str) -> None:
    (custom / "predictor.py").write_text(code)

    with pytest.raises(ConfigError, match=message):
        load(custom, trust_pickle=True)


def test_prediction_routine_of_ai_platform_runs_unchanged(tmp_path: Path) -> None:
    (tmp_path / "routine_a.py").write_text(ROUTINE)
    (tmp_path / "factor.txt").write_text("2")

    assert load(tmp_path, prediction_class="routine_a.Doubler", trust_pickle=True).predict([1, 2]) == [2.0, 4.0]
    for name, message in [
        ("routine_a.Bad", "does not take predict"),
        ("routine_a.Missing", "No prediction class"),
        ("routine_none.Doubler", "No prediction class"),
        ("Doubler", "has no module"),
        ("os.path.join", "needs from_path"),
    ]:
        with pytest.raises(ConfigError, match=message):
            load(tmp_path, prediction_class=name, trust_pickle=True)
    with pytest.raises(UsageError, match="--trust"):
        load(tmp_path, prediction_class="routine_a.Doubler")


def test_code_needs_a_yes(custom: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UsageError, match=r"predictor\.py runs code .* say --trust \(or set STOKER_TRUST_PICKLES=1\)"):
        load(custom)

    monkeypatch.setenv("STOKER_TRUST_PICKLES", "1")
    load(custom)
    assert "you said that you trust it" in caplog.text


def test_what_a_job_of_this_home_wrote_is_trusted_and_its_word_alone_is_not(
    custom: Path, own_home: Path, tmp_path: Path
) -> None:
    run = Home(own_home).run_dir("taxi", 1, 2)
    origin: dict[str, Any] = {"job": "taxi", "trial": 1, "run": "taxi.1.2"}
    export(custom, run.models / "m", name="m", origin=origin)
    export(run.models / "m", tmp_path / "copied", name="m", origin=origin)
    (custom / "predictor.py").write_text(PREDICTOR + "# evil\n")
    export(custom, tmp_path / "forged", name="m", origin=origin)
    export(custom, tmp_path / "climbing", name="m", origin={**origin, "job": "../.."})

    assert load(run.models / "m").predict([1]) == [6.0]
    assert load(tmp_path / "copied").predict([1]) == [6.0]
    for name in ("forged", "climbing"):
        with pytest.raises(UsageError, match="--trust"):
            load(tmp_path / name)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "No model in"),
        (["config.json"], "No model in"),
        (["model.joblib", "model.bst"], "several models: model.bst, model.joblib"),
        (["saved_model.pb", "a.keras"], "several models"),
    ],
)
def test_folder_must_hold_one_model_exactly(tmp_path: Path, files: list[str], message: str) -> None:
    for name in files:
        (tmp_path / name).write_bytes(b"")

    with pytest.raises(ConfigError, match=message):
        describe(tmp_path)


@pytest.mark.parametrize(
    ("files", "framework"),
    [
        (["model.pkl"], "sklearn"),
        (["model.bst", "readme.md"], "xgboost"),
        (["saved_model.pbtxt"], "tensorflow"),
        (["x.keras"], "keras"),
        (["x.pt2", "model.safetensors"], "torch"),
        (["config.json", "model.safetensors"], "transformers"),
        (["x.onnx"], "onnx"),
        (["predictor.py", "model.joblib"], "custom"),
    ],
)
def test_bare_model_is_told_by_its_files(tmp_path: Path, files: list[str], framework: str) -> None:
    for name in files:
        (tmp_path / name).write_bytes(b"")

    assert describe(tmp_path).framework == framework


def test_framework_can_be_said_but_not_against_the_files(tmp_path: Path) -> None:
    (tmp_path / "model.joblib").write_bytes(b"")

    assert describe(tmp_path, framework="SCIKIT_LEARN").framework == "sklearn"
    assert describe(tmp_path, framework="xgboost").framework == "xgboost"
    with pytest.raises(UsageError, match="holds a model of sklearn, not of keras"):
        describe(tmp_path, framework="keras")
    with pytest.raises(UsageError, match="No framework 'caffe'"):
        describe(tmp_path, framework="caffe")
    with pytest.raises(NotFoundError, match="No folder"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("data", "message"), [(b"", "cannot be loaded"), (b"junk", "cannot be loaded"), (None, "has no predict")]
)
def test_broken_pickle_is_one_line(tmp_path: Path, data: bytes | None, message: str) -> None:
    import joblib

    if data is None:
        joblib.dump({"not": "a model"}, tmp_path / "model.joblib")
    else:
        (tmp_path / "model.joblib").write_bytes(data)

    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path, trust_pickle=True)

    assert "\n" not in str(caught.value)


def test_other_version_is_said(export_sklearn: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = export_sklearn / "model.json"
    values = json.loads(path.read_text())
    values["requirements"] = ["scikit-learn==0.1"]
    path.write_text(json.dumps(values))

    load(export_sklearn, trust_pickle=True)

    assert "was made with scikit-learn 0.1 (here " in caplog.text


@pytest.fixture
def export_sklearn(tmp_path: Path) -> Path:
    from sklearn.linear_model import LinearRegression

    export(LinearRegression().fit([[1.0], [2.0]], [1.0, 2.0]), tmp_path / "sk", name="sk")
    return tmp_path / "sk"


def test_model_in_a_bucket_is_fetched_once_for_each_state(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, export_sklearn: Path
) -> None:
    own_home.mkdir()
    (tmp_path / "bucket").mkdir()
    (own_home / "config.toml").write_text(f'[storage.buckets]\n"gs://models" = "{tmp_path / "bucket"}"\n')
    from stoker.storage import Storage

    Storage(own_home).copy(export_sklearn, "gs://models/sk/v1", recursive=True)
    monkeypatch.setattr(Storage, "local_path", lambda self, url: None)  # as if it were far away

    first = load("gs://models/sk/v1/", trust_pickle=True)
    load("gs://models/sk/v1", trust_pickle=True)

    assert first.predict([[3.0]]) == pytest.approx([3.0])
    assert len(list((own_home / "cache" / "models").iterdir())) == 1
    with pytest.raises(NotFoundError, match="gs://models/none"):
        load("gs://models/none")


def test_nobody_exports_what_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No exporter for a builtins.object"):
        export(object(), tmp_path / "m", name="m")
    with pytest.raises(NotFoundError, match="save it there first"):
        export(tmp_path / "nowhere", tmp_path / "m", name="m")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no model file"):
        export(tmp_path / "empty", tmp_path / "m", name="m")


def test_saved_model_needs_consent_because_its_graph_can_write_files(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"")

    with pytest.raises(UsageError, match=r"saved_model\.pb runs code"):
        load(str(tmp_path / "model"), home=Home(tmp_path / "home"))


def test_tabular_bundle_that_names_a_function_imports_nothing_without_consent(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    card = ModelCard(name="m", framework="tabular", created=datetime.now(UTC))
    bundle.write(folder, card, lambda draft: (draft / "table.json").write_text('{"build": "this:x"}'))
    sys.modules.pop("this", None)

    with pytest.raises(UsageError, match="this:x runs code"):
        load(str(folder), home=Home(tmp_path / "home"))

    assert "this" not in sys.modules
