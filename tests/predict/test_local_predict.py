"""`stoker local predict`, as gcloud printed it."""

import io
import json
import sys
from pathlib import Path

import pytest

from stoker.cli.main import main
from tests.predict.test_formats import example, record

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def line_model(tmp_path: Path) -> Path:
    """The taxi template's own way: a bare model.joblib in the job-dir."""
    import joblib
    from sklearn.linear_model import LinearRegression

    joblib.dump(LinearRegression().fit([[0.0], [1.0]], [1.0, 3.0]), tmp_path / "model.joblib")
    return tmp_path


def alive(folder: Path) -> list[float]:
    import joblib

    found: list[float] = joblib.load(folder / "model.joblib").predict([[1000.0], [2.0]]).tolist()
    return found


def predict(folder: Path, *words: str) -> int:
    return main(["ai-platform", "local", "predict", "--model-dir", str(folder), "--trust", *words])


@pytest.mark.parametrize(
    ("flag", "data"),
    [
        ("--json-instances", b"[1000]\n[2]\n"),
        ("--json-request", b'{"instances": [[1000], [2]], "signature_name": "serving_default"}'),
        ("--csv", b"x\n1000\n2\n"),
        ("--tf-example", record(example({"x": [1000.0]})) + record(example({"x": [2]}))),
    ],
)
def test_every_form_of_input_gives_the_same(line_model: Path, capsys: Capture, flag: str, data: bytes) -> None:
    (line_model / "in").write_bytes(data)

    assert predict(line_model, flag, str(line_model / "in")) == 0
    assert capsys.readouterr().out == f"{alive(line_model)}\n"
    assert predict(line_model, "--framework", "scikit-learn", flag, str(line_model / "in"), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"predictions": alive(line_model)}


def test_xgboosts_model_file_predicts_as_gclouds_local_predict_did(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np
    import xgboost

    rows = np.random.default_rng(1).normal(size=(40, 6))
    booster = xgboost.train({"objective": "binary:logistic"}, xgboost.DMatrix(rows, rows[:, 0] > 0), num_boost_round=2)
    (tmp_path / "model.bst").write_bytes(booster.save_raw("ubj"))
    stdin = io.TextIOWrapper(io.BytesIO(b"[1.0, 300, 7.5, 3, 12, 2]\n"))
    monkeypatch.setattr(sys, "stdin", stdin)

    code = main(["local", "predict", "--model-dir", str(tmp_path), "--json-instances", "-"])

    expected = booster.predict(xgboost.DMatrix([[1.0, 300, 7.5, 3, 12, 2]])).tolist()
    assert (code, capsys.readouterr().out) == (0, f"{expected}\n")


def test_objects_are_a_table_by_sorted_keys(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "predictor.py").write_text("def predict(texts): return [{'size': len(t), 'a': [t]} for t in texts]")
    (tmp_path / "in.txt").write_text("x\nlonger\n")

    assert predict(tmp_path, "--text-instances", str(tmp_path / "in.txt")) == 0
    assert capsys.readouterr().out == "A           SIZE\n['x']       1\n['longer']  6\n"


@pytest.mark.parametrize(
    ("flag", "data", "message"),
    [
        ("--json-instances", b"[1]\n[1, 2]\n", "error: instance 1: has 2 values; expected 1\n"),
        ("--json-instances", b'[1]\n["x"]\n', "error: instance 1: is the text 'x'; expected a number\n"),
        ("--json-instances", b"[NaN]\n", "error: instance 0: is nan; expected a finite number\n"),
        ("--json-instances", b"", "in holds no instances. Give one at least.\n"),
        ("--json-request", b'{"instances": []}', "in holds no instances. Give one at least.\n"),
        ("--json-request", b"{", "in: The request is not JSON: "),
        ("--csv", b"1\n\xff\n", "in: The CSV is not UTF-8: byte 0 of line 2 is 0xff.\n"),
        ("--csv", b"1,2\n", "in: instance 0: has 2 columns; expected 1\n"),
        ("--tf-example", record(example({"x": [1.0]}))[:-3], "record 1, at offset 0, is truncated: "),
        ("--text-instances", b"words\n", "error: instance 0: is the text 'words'; expected a list of 1 float values\n"),
    ],
)
def test_bad_input_is_one_line(line_model: Path, capsys: Capture, flag: str, data: bytes, message: str) -> None:
    (line_model / "in").write_bytes(data)

    code = predict(line_model, flag, str(line_model / "in"))

    captured = capsys.readouterr()
    complaint = [line for line in captured.err.splitlines(keepends=True) if "you trust it" not in line]
    assert (code, captured.out, len(complaint)) == (2, "", 1)
    assert message in complaint[0]


def test_misuse_is_one_line(line_model: Path, capsys: Capture) -> None:
    for words, message in [
        (["--csv", "nowhere.csv"], "No file 'nowhere.csv'"),
        (["--csv", str(line_model)], "cannot be read: Is a directory"),
        ([], "One of the arguments"),
        (["--csv", "a", "--json-request", "b"], "not allowed with"),
    ]:
        assert predict(line_model, *words) == 2
        assert message in capsys.readouterr().err
    (line_model / "in").write_text("1\n")
    assert main(["local", "predict", "--model-dir", str(line_model), "--csv", str(line_model / "in")]) == 2
    assert "say --trust" in capsys.readouterr().err
