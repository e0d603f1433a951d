"""The four kinds of package that people bring, run by their own scripts, here and as jobs."""

import shutil
from pathlib import Path

import pytest

from stoker.host.home import Home
from stoker.storage.gcs_api.lazy_gateway import folders
from tests.e2e.command import run, stoker
from tests.fixtures.datasets import write_houses, write_rides

pytestmark = pytest.mark.slow

FIXTURES = Path(__file__).parent.parent / "fixtures"
PATHS = (
    Path(__file__).parent.parent / "storage" / "gcs_api" / "tensorflow_paths.py"
)  # calls all that takes a gs:// path


@pytest.fixture
def workplace(tmp_path: Path, home: Home) -> Path:
    """A copy of the packages: running in place writes models beside the code."""
    for name in ("tabular_torch", "bert_text", "taxi_sklearn", "keras_task"):
        shutil.copytree(FIXTURES / name, tmp_path / name)
    return tmp_path


def test_no_package_knows_stoker() -> None:
    for name in ("tabular_torch", "bert_text", "taxi_sklearn", "keras_task"):
        for file in (FIXTURES / name).rglob("*.py"):
            assert "stoker" not in file.read_text(), file


def test_tabular_torch_reports_by_hypertune_and_leaves_its_model(workplace: Path) -> None:
    project = workplace / "tabular_torch"
    variables = {
        "TAXI_TRAIN": str(write_rides(workplace / "train.csv")),
        "TAXI_EVAL": str(write_rides(workplace / "eval.csv", seed=1)),
        "JOB_NAME": "tabular_1",
    }

    here = run(["scripts/train-local.sh"], cwd=project, variables={**variables, "JOB_DIR": "here"})
    there = run(["scripts/train-cloud.sh"], cwd=project, variables={**variables, "JOB_DIR": "there"})

    assert here.code == 0, here.err
    assert "Evaluate the model using the evaluation dataset\n" in here.out
    assert (project / "here" / "model.pth").exists()
    assert "What your code reported" in here.err
    assert there.code == 0, there.err
    assert "Evaluate the model using the evaluation dataset" in there.lines
    assert (project / "there" / "model.pth").exists()
    assert "--master-image-uri" in there.err
    assert "Region us-central1 is not a pool here" in there.err
    metrics = stoker("jobs", "metrics", "tabular_1", "--csv").out.splitlines()
    assert metrics[0] == "trial,run,group,step,time,test_loss"
    assert len(metrics) == 3  # both epochs, though hypertune's file holds only the last


def test_bert_text_runs_on_the_runtimes_torch_though_it_pins_another(workplace: Path) -> None:
    project = workplace / "bert_text"

    here = run(["scripts/train-local.sh"], cwd=project, variables={"JOB_DIR": "here"})
    there = run(["scripts/train-cloud.sh"], cwd=project, variables={"JOB_DIR": "there", "JOB_NAME": "bert_1"})

    assert here.code == 0, here.err
    assert there.code == 0, there.err
    for job_dir in ("here", "there"):
        model = project / job_dir / "finetuned-tiny-bert"
        assert sorted(file.name for file in model.iterdir()) == ["pytorch_model.bin", "vocab.json"]
    assert "eval_accuracy" in there.out


def test_taxi_sklearn_runs_by_its_makefile(workplace: Path) -> None:
    project = workplace / "taxi_sklearn"
    before = sorted(path.name for path in project.iterdir())

    submitted = run(["make", "submit_training", "JOB_NAME=taxi_1"], cwd=project)
    after = sorted(path.name for path in project.iterdir())
    here = run(["make", "run_locally"], cwd=project)

    assert submitted.code == 0, submitted.err
    assert after == sorted([*before, "jobs"])  # submitting writes nothing into the user's directory but the job-dir
    assert (project / "jobs" / "models" / "simpletaxifare" / "model.joblib").exists()
    assert here.code == 0, here.err
    assert here.out.splitlines()[-1] == "saved model.joblib"
    assert (project / "model.joblib").exists()


@pytest.mark.timeout(600)  # installs TensorFlow
def test_keras_task_gets_tensorflow_its_tf_config_and_buckets(workplace: Path, home: Home) -> None:
    project = workplace / "keras_task"
    variables = {
        "TRAIN_DATA": str(write_houses(workplace / "train.csv")),
        "EVAL_DATA": str(write_houses(workplace / "eval.csv", seed=1)),
        "JOB_NAME": "keras_1",
    }

    here = run(["scripts/train-local.sh"], cwd=project, variables={**variables, "OUTPUT_DIR": "here"})
    for name in ("train.csv", "eval.csv"):
        stoker("storage", "cp", str(workplace / name), "gs://houses/data/")
    in_buckets = {"TRAIN_DATA": "gs://houses/data/tr*.csv", "EVAL_DATA": "gs://houses/data/eval.csv"}
    bucket = home.root / "buckets" / "houses"
    there = run(
        ["scripts/train-cloud.sh"],
        cwd=project,
        variables={**variables, **in_buckets, "OUTPUT_DIR": "gs://houses/there"},
    )

    assert here.code == 0, here.err
    assert "Installing on top of" in here.err
    assert (project / "here" / "model.keras").exists()
    assert there.code == 0, there.err
    assert 'task: {"index": 0, "type": "chief"}' in there.lines
    assert not any("Installing" in line for line in there.lines)  # the second with the same needs installs nothing
    assert (bucket / "there" / "model.keras").exists()
    (python,) = home.root.glob("environments/*/bin/python")
    buckets = {**folders(home.root, {}), "TF_CPP_MIN_LOG_LEVEL": "2"}
    led = run([str(python), str(PATHS), str(home.root / "buckets")], cwd=project, variables=buckets)
    assert led.out.splitlines()[-1:] == ["all led"], led.err
