"""A package that trains from gs:// on a machine with no cloud: registered, predicted with, all by the command line."""

import json
from pathlib import Path

import pytest

from stoker.client.client import Client
from stoker.host.home import Home
from tests.e2e.command import Result, stoker, write_package

pytest.importorskip("gcsfs", reason="gcsfs is not installed")
pytest.importorskip("sklearn", reason="scikit-learn is not installed")
pytestmark = pytest.mark.slow

# As such packages were written: pandas reads the bucket, Google's client writes the model.
TAXI = """
import argparse, joblib, hypertune, pandas
from google.cloud import storage
from sklearn.linear_model import Ridge
parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--alpha", type=float)
parser.add_argument("--job-dir")
args = parser.parse_args()
rides = pandas.read_csv(args.data)
model = Ridge(alpha=args.alpha).fit(rides[["km", "passengers"]], rides["fare"])
joblib.dump(model, "model.joblib")
bucket, _, prefix = args.job_dir[len("gs://"):].partition("/")
storage.Client().bucket(bucket).blob(f"{prefix}/export/model.joblib").upload_from_filename("model.joblib")
error = float(abs(model.predict(rides[["km", "passengers"]]) - rides["fare"]).mean())
hypertune.HyperTune().report_hyperparameter_tuning_metric("error", error, 1)
"""
CONFIG = """
trainingInput:
  scaleTier: BASIC
  args: [--data, "gs://rides/train.csv"]
  hyperparameters:
    goal: MINIMIZE
    hyperparameterMetricTag: error
    maxTrials: 2
    maxParallelTrials: 1
    algorithm: GRID_SEARCH
    params:
    - {parameterName: alpha, type: DISCRETE, discreteValues: [0.001, 1000]}
"""


def did(result: Result) -> Result:
    assert result.code == 0, result.err + result.out
    return result


def test_a_taxi_model_goes_from_a_bucket_to_predictions(home: Home, tmp_path: Path) -> None:
    project = write_package(tmp_path / "project", task=TAXI)
    (project / "config.yaml").write_text(CONFIG)
    rides = [(km, people) for km in range(1, 41) for people in (1, 2)]
    data = tmp_path / "rides"
    data.mkdir()
    (data / "train.csv").write_text("km,passengers,fare\n" + "".join(f"{k},{p},{2.5 * k + p + 3}\n" for k, p in rides))
    (data / "new.csv").write_text("id,km,passengers\n" + "".join(f"r{k}-{p},{k},{p}\n" for k, p in rides) + "x,far,1\n")
    home.config.write_text(f'[storage.buckets]\n"gs://rides" = "{data}"\n')
    flags = ("--package-path", "trainer", "--module-name", "trainer.task", "--config", "config.yaml")
    places = ("--job-dir", "gs://models/taxi", "--staging-bucket", "gs://staging")

    submitted = did(stoker("jobs", "submit", "training", "taxi", *flags, *places, "--stream-logs", cwd=project))
    registered = did(stoker("models", "register", "taxi", "--name", "fares", "--alias", "production", "--json"))

    staged = [
        path.relative_to(home.root / "buckets" / "staging") for path in home.root.glob("buckets/staging/taxi/*/*")
    ]
    assert [(path.parts[0], len(path.parts[1]), path.name) for path in staged] == [
        ("taxi", 64, "project-0.0.0.tar.gz")
    ], submitted.err
    version = json.loads(registered.out)
    origin = version["card"]["origin"]
    assert (origin["job"], origin["hparams"]) == ("taxi", {"alpha": 0.001})  # the better trial
    assert version["source"] == f"gs://models/taxi/{origin['trial']}/export"  # its own folder
    assert origin["data"] == ["gs://rides/train.csv"]
    with Client(home.server()) as client:  # type: ignore[arg-type]
        assert origin["package"] == client.job("taxi").spec.package

    (tmp_path / "ride.json").write_text('{"km": 10, "passengers": 2}\n')
    one = ("predict", "--model", "fares@production", "--json-instances", str(tmp_path / "ride.json"), "--json")
    refused = stoker(*one)
    online = did(stoker(*one, "--trust"))

    assert refused.code == 2
    assert "model.joblib runs code" in refused.err
    (fare,) = json.loads(online.out)["predictions"]
    assert fare == pytest.approx(30.0, abs=0.1)

    where = ("--input-paths", "gs://rides/new.csv", "--output-path", "gs://results/fares", "--region", "us-central1")
    what = ("--model", "fares", "--data-format", "csv", "--instance-key", "id", "--trust", "--stream-logs")
    did(stoker("jobs", "submit", "prediction", "batch_1", *what, *where))
    results = did(stoker("storage", "cat", "gs://results/fares/prediction.results-*"))
    errors = did(stoker("storage", "cat", "gs://results/fares/prediction.errors_stats-*"))
    shown = did(stoker("jobs", "describe", "batch_1", "--format", "value(predictionOutput.predictionCount)"))

    lines = [json.loads(line) for line in results.out.splitlines()]
    assert [line["id"] for line in lines] == [f"r{k}-{p}" for k, p in rides]
    assert dict((line["id"], line["prediction"]) for line in lines)["r10-2"] == fare  # the same number, to the last bit
    (error,) = [json.loads(line) for line in errors.out.splitlines()]
    assert (error["line"], error["field"], error["row"]) == (82, "km", "x,far,1")
    assert shown.out.strip() == "80"
