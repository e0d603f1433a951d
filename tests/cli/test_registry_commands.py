"""The words of the registry and of batch prediction: what they become, and what is refused before anything is asked."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Stoker
from tests.cli.recorded import recorded_server

CARD = {"name": "taxi", "framework": "custom", "created": "2026-01-01T00:00:00Z"}


def a_version(url: str) -> dict[str, Any]:
    return {"model": "taxi", "name": "v1", "number": 1, "url": url, "source": "/s", "created": 1.0, "card": CARD}


POOL = {
    "name": "local",
    "engine": "local",
    "capacity": {"cpus": 2},
    "used": {},
    "slots": 2,
    "tiers": [],
    "running": [],
    "queued": [],
}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("versions", "create", "v1", "--model", "m"), "One of the arguments --origin --job --config is required"),
        (("versions", "create", "v1", "--model", "m", "--origin", "a", "--job", "b"), "not allowed with"),
        (("versions", "create", "1st", "--model", "m", "--origin", "a"), "a version's name is letters"),
        (("versions", "describe", "v1", "--model", "m:v2"), "says it again"),
        (("models", "create", "my-model"), "a model's name is letters"),
        (("predict", "--model", "m/n", "--json-instances", "-"), "names no model"),
        (("jobs", "submit", "prediction", "p", "--model", "m", "--model-dir", "d"), "not allowed with"),
        (("jobs", "submit", "prediction", "p", "--model-dir", "d", "--data-format", "xml"), "is one of text, csv"),
    ],
)
def test_wrong_words_are_refused(stoker: Stoker, words: tuple[str, ...], says: str) -> None:
    done = stoker(*words)

    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_prediction_flags_become_a_job(stoker: Stoker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rides.csv").write_text("1\n" * 10)
    (tmp_path / "predictor.py").write_text("")
    job = {"id": "p1", "state": "QUEUED", "pool": "local"}
    replies = {"GET /models/taxi/versions/v1": a_version(str(tmp_path)), "GET /pools": [POOL], "POST /jobs": job}
    flags = ("--data-format", "TEXT", "--input-paths", f"{tmp_path}/*.csv", "--output-path", f"{tmp_path}/out")
    asked = ("jobs", "submit", "prediction", "p1", "--model", "taxi", "--version", "v1", *flags)
    with recorded_server(replies) as server:
        monkeypatch.setenv("STOKER_SERVER", server.url)
        refused = stoker(*asked)
        done = stoker(*asked, "--trust", "--max-worker-count", "8", "--batch-size", "16", "--labels", "a=b")

    assert "predictor.py runs code" in refused.err
    assert done.code == 0, done.err
    assert "2 of at most 8 workers" in done.err
    (body,) = [body for question, body in server.asked if question == "POST /jobs"]
    assert (body["kind"], body["command"]) == ("predict", ["python", "-m", "stoker.predict.batch"])
    assert (body["resources"], body["labels"], body["restarts"]["max_restarts"]) == ({"slots": 2}, {"a": "b"}, 3)
    assert body["data"]["prediction"] == {
        "model": {"url": str(tmp_path), "reference": "taxi/versions/v1"},
        "trust_pickle": True,
        "data_format": "text",
        "input_paths": [f"{tmp_path}/*.csv"],
        "output_path": f"{tmp_path}/out",
        "batch_size": 16,
    }


def test_inputs_that_are_not_there_and_outputs_of_others_are_refused(
    stoker: Stoker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "predictor.py").write_text("")
    (tmp_path / "rides.json").write_text("1\n")
    plan = {"job": "other", "data_format": "text", "files": [], "shards": []}
    (tmp_path / "out" / "_stoker").mkdir(parents=True)
    (tmp_path / "out" / "_stoker" / "plan.json").write_text(json.dumps(plan))
    asked = ("jobs", "submit", "prediction", "p1", "--model-dir", f"{tmp_path}/model", "--trust")
    flags = ("--data-format", "text", "--output-path", f"{tmp_path}/out", "--input-paths")
    with recorded_server({"GET /pools": [POOL]}) as server:
        monkeypatch.setenv("STOKER_SERVER", server.url)
        nothing = stoker(*asked, *flags, f"{tmp_path}/nowhere/*")
        taken = stoker(*asked, *flags, f"{tmp_path}/rides.json")
        versioned = stoker(*asked, *flags, f"{tmp_path}/rides.json", "--version", "v1")

    assert "nowhere" in nothing.err
    assert "holds predictions of job 'other'" in taken.err
    assert "a --model-dir has none" in versioned.err
    assert [question for question, _ in server.asked if question.startswith("POST")] == []


def test_determined_words_lead_to_the_same_commands(stoker: Stoker, monkeypatch: pytest.MonkeyPatch) -> None:
    model = {
        "name": "taxi",
        "created": 1.0,
        "default_version": "v1",
        "aliases": {"production": "v1"},
        "num_versions": 1,
    }
    replies = {"GET /models": {"models": [model]}, "GET /models/taxi/versions": {"versions": [a_version("/m")]}}
    with recorded_server(replies) as server:
        monkeypatch.setenv("STOKER_SERVER", server.url)
        listed = stoker("model", "list")
        versions = stoker("model", "list-versions", "taxi", "--json")

    assert listed.out.splitlines()[1].split()[:4] == ["taxi", "1", "v1", "production=v1"]
    assert json.loads(versions.out)[0]["name"] == "v1"


def test_a_version_resource_of_ai_platform_is_read(
    stoker: Stoker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "version.yaml"
    config.write_text("deploymentUri: gs://b/m\nframework: SCIKIT_LEARN\nruntimeVersion: '2.1'\nautoScaling: {}\n")
    with recorded_server({"POST /models/taxi/versions": a_version("/m")}) as server:
        monkeypatch.setenv("STOKER_SERVER", server.url)
        done = stoker("versions", "create", "v1", "--model", "taxi", "--config", str(config), "--python-version", "3.7")
        config.write_text("deployment_uri: gs://b/m\n")
        refused = stoker("versions", "create", "v1", "--model", "taxi", "--config", str(config))

    assert done.code == 0, done.err
    body = server.asked[-1][1]
    assert (body["origin"], body["framework"], body["python_version"]) == ("gs://b/m", "SCIKIT_LEARN", "3.7")
    assert "deployment_uri" in refused.err


def test_model_made_for_a_version_that_is_not_found_is_removed_again(
    stoker: Stoker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"name": "taxi", "description": "", "labels": {}, "created": 1.0, "aliases": {}, "num_versions": 0}
    with recorded_server({"POST /models": made}) as server:
        monkeypatch.setenv("STOKER_SERVER", server.url)
        done = stoker("models", "register-version", "taxi", str(tmp_path / "nowhere"))

    assert (done.code, done.out) == (2, "")
    assert [asked for asked, _ in server.asked][-2:] == ["POST /models/taxi/versions", "DELETE /models/taxi"]
