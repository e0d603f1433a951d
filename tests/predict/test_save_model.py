"""`ctx.save_model`: what a run exports, and what its supervisor hears of it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.predict import bundle
from stoker.predict.loading import load
from stoker.run_dir import RunDir
from stoker.schema.event import EventBatch, ModelSaved
from stoker.supervisor.tails.reports import ReportTail
from tests.test_context import other_pythons

RUN = {"run": "taxi.2.3", "job": "taxi", "trial": 2, "attempt": 3, "package": "abc", "hparams": {"lr": 0.1}}


@pytest.fixture
def run_dir(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = own_home / "runs" / "taxi" / "2" / "3"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(RUN))
    monkeypatch.setenv("STOKER_RUN_DIR", str(folder))
    monkeypatch.delenv("RANK", raising=False)
    return folder


@pytest.fixture(scope="module")
def model() -> Any:
    from sklearn.linear_model import LinearRegression

    return LinearRegression().fit([[0.0], [1.0]], [1.0, 3.0])


def heard(run_dir: Path) -> list[ModelSaved]:
    numbered = [{"seq": seq, **entry.event} for seq, entry in enumerate(ReportTail(RunDir(run_dir)).read(), 1)]
    events = EventBatch.model_validate_json(json.dumps({"events": numbered})).events
    return [event for event in events if isinstance(event, ModelSaved)]


def test_model_is_a_bundle_of_the_run_and_an_event(run_dir: Path, model: Any) -> None:
    with stoker.init() as ctx:
        path = ctx.save_model(model, metrics={"rmse": 0.5, "worst": float("inf")}, metadata={"note": "é"})
        ctx.save_model(model, "second")

    first, second = heard(run_dir)
    card = bundle.read_verified(Path(path))
    assert path == str(run_dir / "models" / "model")
    assert (first.name, first.path, first.framework) == ("model", path, "sklearn")
    assert first.metrics == {"rmse": 0.5, "worst": float("inf")} == card.metrics
    assert first.size_bytes > bundle.size_bytes(card)
    assert second.name == "second"
    assert (card.origin.job, card.origin.trial, card.origin.run) == ("taxi", 2, "taxi.2.3")
    assert (card.origin.package, card.origin.hparams, card.metadata) == ("abc", {"lr": 0.1}, {"note": "é"})
    assert load(path).predict([[2.0]]) == pytest.approx([5.0])  # our own: no yes is asked for


def test_only_rank_0_writes(run_dir: Path, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with stoker.init() as ctx:
        path = ctx.save_model(model)

    assert path == str(run_dir / "models" / "model")
    assert not Path(path).exists()


def test_path_is_taken_as_it_is(run_dir: Path, model: Any, tmp_path: Path) -> None:
    import joblib

    joblib.dump(model, tmp_path / "model.joblib")
    with stoker.init() as ctx:
        path = ctx.save_model(tmp_path / "model.joblib", "taken", metrics={"rmse": 1})

    assert load(path).predict([[2.0]]) == pytest.approx([5.0])
    assert bundle.read_verified(Path(path)).metrics == {"rmse": 1.0}


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a\n"])
def test_name_is_a_name(run_dir: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is no name for a model"), stoker.init() as ctx:
        ctx.save_model("somewhere", name)


@pytest.mark.slow
@pytest.mark.skipif(not other_pythons(), reason="no other Python here")
def test_python_without_our_libraries_keeps_a_path(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "model.bst").write_bytes(b"model")
    code = f"import stoker; print(stoker.init().save_model({str(tmp_path / 'model.bst')!r}, 'old'))"
    environment = {**os.environ, "PYTHONPATH": str(Path(stoker.__file__).parents[1])}
    for python in other_pythons():
        done = subprocess.run(
            [python, "-I", "-c", f"import sys; sys.path.insert(0, {environment['PYTHONPATH']!r}); {code}"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert (Path(done.stdout.strip()) / "model.bst").read_bytes() == b"model"

    assert {event.framework for event in heard(run_dir)} == {""}


def test_single_file_gets_the_name_it_is_known_by(tmp_path: Path) -> None:
    import xgboost

    from stoker.predict.exporters import export

    booster = xgboost.train({"max_depth": 1}, xgboost.DMatrix([[0.0], [1.0]], [0.0, 1.0]), num_boost_round=1)
    booster.save_model(tmp_path / "model.json")
    (tmp_path / "taxi.joblib").write_bytes(b"x")

    export(tmp_path / "model.json", tmp_path / "a", name="a")
    export(tmp_path / "taxi.joblib", tmp_path / "b", name="b")

    assert load(tmp_path / "a").predict([[1.0]]) == booster.predict(xgboost.DMatrix([[1.0]])).tolist()
    assert [file.path for file in bundle.read_verified(tmp_path / "b").files] == ["model.joblib"]
