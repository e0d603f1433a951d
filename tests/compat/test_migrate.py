"""`stoker migrate` on directories in the style of both platforms, and of neither."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from stoker.compat.migrate.assess import assess
from stoker.compat.migrate.findings import Assessment, Verdict
from stoker.compat.migrate.leaving import SYSTEMS
from stoker.errors import UsageError
from stoker.host.home import Home
from stoker.origin import Platform
from stoker.submission import job_file as stoker_yaml
from tests.e2e.command import stoker
from tests.e2e.conftest import home

__all__ = ["home"]  # a fixture, for the tests here

Look = Callable[..., Assessment]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """Write files, and look at the directory without asking the package index."""

    def look(files: dict[str, str], *, platform: Platform | None = None) -> Assessment:
        for path, text in files.items():
            file = tmp_path / "old" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        home = Home(tmp_path / "home").make()
        return assess(tmp_path / "old", home=home, platform=platform, look_up=False)

    return look


SUBMIT = """
#!/bin/bash
MODULE=trainer.task
EPOCHS=3
gcloud ai-platform jobs submit training $JOB_NAME \\
    --module-name ${MODULE} --package-path ./trainer \\
    --runtime-version=2.1 --scale-tier standard-1 \\
    -- --epochs ${EPOCHS} --data "$DATA"
"""
TUNING = """
trainingInput:
  hyperparameters:
    goal: MINIMIZE
    hyperparameterMetricTag: loss
    maxTrials: 4
    params:
    - {parameterName: lr, type: DOUBLE, minValue: 0.1, maxValue: 1}
"""


def verdicts(found: Assessment, what: str) -> list[Verdict]:
    return [finding.verdict for finding in found.findings if finding.what == what]


def test_script_and_tuning_file_become_one_job(look: Look) -> None:
    found = look(
        {"trainer/__init__.py": "", "trainer/task.py": "import json", "run.sh": SUBMIT, "hptuning.yaml": TUNING}
    )
    assert found.platform is Platform.AI_PLATFORM
    assert found.can_run
    assert found.values["module"] == "trainer.task"
    assert found.values["args"] == ["--epochs", "3", "--data", "$DATA"]
    assert found.values["resources"]["tier"] == "STANDARD_1"
    assert found.values["search"]["max_trials"] == 4
    assert "$DATA" in next(finding.detail for finding in found.findings if finding.what == "arguments")
    stoker_yaml.read(found.values, source="what would be written")  # raises if it is none


def test_trainer_alone_is_enough(look: Look) -> None:
    found = look({"trainer/__init__.py": "", "trainer/task.py": "import json"})
    assert found.values == {"module": "trainer.task", "origin": {"platform": "aiplatform"}}


def test_tensorflow_1_gets_its_python(look: Look) -> None:
    code = "import tensorflow as tf\nwith tf.Session() as session: pass\n"
    found = look({"trainer/__init__.py": "", "trainer/task.py": code})
    era = {"python": "3.7", "as_of": "2020-01-15", "requirements": ["tensorflow==1.15.*"]}
    assert found.values["environment"] == era
    assert verdicts(found, "tensorflow.Session") in ([Verdict.RUNS], [Verdict.NEEDS])
    assert found.findings[-1].where == "trainer/task.py:2"


def test_container_gives_entrypoint_and_requirements(look: Look) -> None:
    docker = (
        'FROM python:3.7\nRUN pip install --no-cache -r req.txt \\\n  "six>=1.0"\nENTRYPOINT ["python", "main.py"]\n'
    )
    found = look({"Dockerfile": docker, "req.txt": "# x\nattrs==19.1\n", "main.py": "import hypertune"})
    assert found.values["command"] == ["python", "main.py"]
    assert found.values["environment"]["requirements"] == ["attrs==19.1", "six>=1.0"]


def test_python_2_and_horovod_cannot_run(look: Look) -> None:
    found = look({"trainer/__init__.py": "", "trainer/task.py": "print 'x'\n", "trainer/h.py": "import horovod.torch"})
    assert not found.can_run
    assert verdicts(found, "Python 2") == [Verdict.CANNOT]
    assert verdicts(found, "horovod") == [Verdict.CANNOT]


def test_python_2_aside_of_the_job_is_only_told(look: Look) -> None:
    old = "lambda (key, value): key\n"
    found = look({"trainer/__init__.py": "", "trainer/task.py": "import json", "preprocess.py": old})
    assert found.can_run
    assert verdicts(found, "Python 2") == [Verdict.NOTE]


@pytest.mark.parametrize("page", ["README.md", "Train.ipynb"])
def test_commands_on_a_page_tell_what_to_run(look: Look, page: str) -> None:
    line = "gcloud ml-engine local train --module-name code.fit --package-path code -- --epochs 3"
    cell = json.dumps({"cells": [{"cell_type": "code", "source": ["%%bash\n", line]}]})
    text = cell if page.endswith(".ipynb") else f"Run it:\n```\n{line}\n```\n"
    found = look({"code/__init__.py": "", "code/fit.py": "import json", page: text})
    assert (found.values["module"], found.values["args"]) == ("code.fit", ["--epochs", "3"])


def test_half_a_size_in_a_file_is_the_flags_other_half(look: Look) -> None:
    files = {"trainer/__init__.py": "", "trainer/task.py": "import json"}
    alone = look({**files, "config.yaml": "trainingInput: {masterType: standard_p100}"})
    assert alone.can_run
    assert alone.values["resources"]["roles"]["chief"]["machine"] == "standard_p100"
    assert look({**files, "config.yaml": "trainingInput: {scaleTier: CUSTOM}"}).can_run


def test_undeclared_library_is_added(look: Look) -> None:
    found = look({"trainer/__init__.py": "", "trainer/task.py": "import cv2, json, trainer"})
    assert found.values["environment"]["requirements"] == ["opencv-python-headless"]


EXPERIMENT = """
name: mine
entrypoint: model_def:Trial
hyperparameters: {lr: 0.1, global_batch_size: 4}
searcher: {name: single, metric: loss, max_length: {batches: 10}}
environment: {image: some/image}
"""


def test_experiment_files_run_by_their_commands(look: Look) -> None:
    wrong = "searcher: {name: custom}\nentrypoint: x\nflavour: sweet\n"
    found = look({"const.yaml": EXPERIMENT, "adaptive.yaml": wrong, "model_def.py": "import determined.pytorch"})
    assert found.platform is Platform.DETERMINED
    assert found.commands == ("stoker experiment create const.yaml .",)
    runs, cannot = (finding for finding in found.findings if finding.what == "experiment")
    assert (runs.verdict, runs.where) == (Verdict.RUNS, "const.yaml")
    assert "environment.image" in runs.detail
    assert (cannot.verdict, cannot.where) == (Verdict.CANNOT, "adaptive.yaml")
    assert "flavour: no such field" in cannot.detail


def test_deepspeed_trial_cannot_run(look: Look) -> None:
    code = "from determined.pytorch.deepspeed import DeepSpeedTrial"
    found = look({"const.yaml": EXPERIMENT, "model_def.py": code})
    assert verdicts(found, "determined.pytorch.deepspeed") == [Verdict.CANNOT]


def test_neither_and_both_are_refused(look: Look) -> None:
    with pytest.raises(UsageError, match="neither AI Platform nor Determined"):
        look({"readme.txt": "hello"})
    both = {"const.yaml": EXPERIMENT, "trainer/__init__.py": "", "trainer/task.py": "import json"}
    with pytest.raises(UsageError, match="--platform aiplatform or determined"):
        look(both)
    assert look(both, platform=Platform.AI_PLATFORM).values["module"] == "trainer.task"


@pytest.mark.parametrize("system", list(SYSTEMS))
def test_job_files_of_other_systems_hold_the_job(look: Look, system: str) -> None:
    found = look(
        {"trainer/__init__.py": "", "trainer/task.py": "import json", "run.sh": SUBMIT, "hptuning.yaml": TUNING}
    )
    text = SYSTEMS[system](found.values, "old")
    assert "trainer.task" in text
    assert "the search over hyperparameters is not carried over" in text
    if system == "vertex":
        first, rest = yaml.safe_load(text)["workerPoolSpecs"]
        assert (first["replicaCount"], rest["replicaCount"]) == (1, 4)
        assert first["pythonPackageSpec"]["args"][:2] == ["--epochs", "3"]
    else:
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)


@pytest.mark.slow
def test_command_writes_a_file_that_is_submitted(tmp_path: Path, home: Home) -> None:
    old = tmp_path / "old"
    (old / "trainer").mkdir(parents=True)
    (old / "trainer" / "__init__.py").touch()
    (old / "trainer" / "task.py").write_text("print('trained')\n")
    looked = stoker("migrate", str(old), "--offline", "--json")
    assert json.loads(looked.out)["stoker_yaml"] == {"module": "trainer.task", "origin": {"platform": "aiplatform"}}
    assert stoker("migrate", str(old), "--offline", "--write").code == 0
    again = stoker("migrate", str(old), "--offline", "--write")
    assert again.code == 2
    assert "is there already" in again.err
    ran = stoker("jobs", "submit", "training", "old_1", "--config", str(old / "stoker.yaml"), "--stream-logs")
    assert "trained" in ran.out


@pytest.mark.slow
def test_shim_runs_a_script_that_calls_gcloud(tmp_path: Path, home: Home) -> None:
    package = tmp_path / "trainer"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "task.py").write_text("import sys; print('args', sys.argv[1:])\n")
    (tmp_path / "data.csv").write_text("1,2\n")
    put_on_path = stoker("gcloud-shim").out
    script = f"""
    set -e
    {put_on_path}
    cd {tmp_path}
    gcloud config set project mine
    PROJECT=$(gcloud info --format='value(config.project)')
    gsutil mb -l europe-west1 gs://$PROJECT-data
    gsutil -m cp -r data.csv gs://$PROJECT-data/in/
    gcloud storage ls gs://$PROJECT-data/in
    gcloud ai-platform jobs submit training shim_1 --module-name trainer.task --package-path trainer \\
        --region europe-west1 --stream-logs -- --epochs 3
    gcloud container clusters list
    """
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
    assert "gs://mine-data/in/data.csv" in ran.stdout, ran.stderr
    assert "args ['--epochs', '3']" in ran.stdout
    assert ran.returncode == 2
    assert "gcloud container clusters list has no meaning here" in ran.stderr


def test_experiment_files_that_are_not_shipped_are_found_and_the_code_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "grid.yaml").write_text("entrypoint: gan:Trial\nsearcher: {name: single, metric: loss}\n")
    (tmp_path / ".detignore").write_text("configs\n")
    (tmp_path / "gan.py").write_text("from determined.pytorch import PyTorchTrial\nclass Trial(PyTorchTrial): ...\n")

    found = assess(tmp_path, home=Home(tmp_path / "home"), look_up=False)

    assert found.commands == ("stoker experiment create configs/grid.yaml .",)


def test_code_is_looked_for_in_the_folders_above_an_experiment_file(look: Look) -> None:
    trial = "from determined.pytorch import PyTorchTrial\nclass Trial(PyTorchTrial): ...\n"
    shell = "entrypoint: bash ./bin/train.sh\nsearcher: {name: single, metric: loss}\n"
    found = look(
        {
            "vision/model_def.py": trial,
            "vision/scripts/a/const.yaml": EXPERIMENT,
            "bin/train.sh": "python3 -c 1\n",
            "server/profile.yaml": shell,
        }
    )

    assert found.commands == (
        "stoker experiment create server/profile.yaml .",
        "stoker experiment create vision/scripts/a/const.yaml vision",
    )


def test_a_shells_text_that_ends_with_a_script_is_no_file_that_is_missing(look: Look) -> None:
    experiment = "entrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n"

    assert look({"const.yaml": experiment, "train.py": "import determined"}).can_run


def test_settings_of_a_notebook_are_no_experiment_that_cannot_run(look: Look) -> None:
    notebook = "description: mine\nentrypoint: null\nidle_timeout: 2h\nnotebook_idle_type: activity\nwork_dir: null\n"
    files = {"const.yaml": EXPERIMENT, "notebook.yaml": notebook, "model_def.py": "import determined.pytorch"}

    found = look(files)

    assert found.can_run
    assert found.commands == ("stoker experiment create const.yaml .",)
    (settings,) = (finding for finding in found.findings if finding.what == "settings")
    assert "stoker notebook start --config-file notebook.yaml" in settings.detail


def test_a_project_below_is_found_and_its_own_files_alone_count(look: Look) -> None:
    submit = "gcloud ml-engine jobs submit training j --module-name=trainer.task --package-path=$PWD/model/trainer\n"
    other = "gcloud ml-engine jobs submit training j --module-name=tuned.task --package-path=tuned --config=hp.yaml\n"
    code = {"model/setup.py": "", "model/trainer/task.py": "import json", "other/tuned/task.py": "import json"}
    scripts = {"train.sh": submit, "other/train.sh": other, "other/hp.yaml": TUNING, "other/setup.py": ""}
    found = look({**code, **scripts, "model/setup.py": "from setuptools import setup\nsetup(name='trainer')\n"})

    assert found.can_run
    assert (found.values["module"], found.folder) == ("trainer.task", "model")
    assert "search" not in found.values
    assert found.commands == ("stoker jobs submit training NAME --config model/stoker.yaml",)


def test_a_module_that_is_nowhere_cannot_run(look: Look) -> None:
    found = look({"trainer/train.py": "import json", "run.sh": SUBMIT})

    assert verdicts(found, "trainer.task") == [Verdict.CANNOT]


def test_a_models_settings_are_no_experiment(look: Look) -> None:
    settings = "scaleTier: CUSTOM\nhyperparameters: {goal: MINIMIZE, params: []}\n"
    found = look({"trainer/task.py": "import json", "run.sh": SUBMIT, "inputs.yaml": settings})

    assert found.platform is Platform.AI_PLATFORM


def test_a_setup_py_of_python_2_is_a_finding(look: Look) -> None:
    found = look({"trainer/task.py": "import json", "setup.py": "print 'installing'\n", "run.sh": SUBMIT})

    (detail,) = [finding.detail for finding in found.findings if finding.what == "project"]
    assert "setup.py, line 1" in detail
    assert "This is Python 2" in detail


def test_batch_files_of_windows_and_a_builds_steps_tell_what_to_run(look: Look) -> None:
    batch = (
        "set MODULE=trainer.t1\r\ngcloud ml-engine local train ^\r\n  --module-name %MODULE% ^\r\n  -- --epochs 2\r\n"
    )
    steps = "steps:\n- args:\n  - |-\n    gcloud ai-platform jobs submit training x --module-name trainer.t2\n"
    files = {"trainer/__init__.py": "", "trainer/t1.py": "import json", "trainer/t2.py": "import json"}

    assert look({**files, "cloudbuild.yaml": steps}).values["module"] == "trainer.t2"
    by_batch = look({**files, "train.bat": batch}).values

    assert (by_batch["module"], by_batch["args"]) == ("trainer.t1", ["--epochs", "2"])


def test_a_dockerfile_by_another_name_is_read_and_one_without_a_command_hinders_no_module(look: Look) -> None:
    by_variable = "train:\n\tgcloud ai-platform local train --module-name ${MODULE}\n"
    found = look({"Makefile": by_variable, "Dockerfile": "FROM python:3.7\n", "own/train.py": "import json"})
    assert found.can_run
    assert found.values["module"] == "own.train"

    found = look({"trainer.dockerfile": 'FROM python:3.7\nCOPY own own\nENTRYPOINT ["python", "own/train.py"]\n'})
    assert found.values["command"] == ["python", "own/train.py"]


def test_a_script_that_is_nowhere_and_nothing_to_run_are_told(look: Look) -> None:
    submit = "gcloud ai-platform jobs submit training x --master-image-uri gcr.io/p/image\n"

    assert verdicts(look({"run.sh": submit}), "job") == [Verdict.CANNOT]
    found = look({"Dockerfile": 'FROM python:3.7\nENTRYPOINT ["python", "gone.py"]\n'})

    assert verdicts(found, "gone.py") == [Verdict.CANNOT]
    assert not found.can_run


def test_code_that_asks_the_api_itself_is_told_what_to_do_instead(look: Look) -> None:
    source = "from googleapiclient import discovery\nml = discovery.build('ml', 'v1')\n"
    found = look({"submit.py": source, "trainer/__init__.py": "", "trainer/task.py": "import json"})

    assert verdicts(found, "googleapiclient") == [Verdict.NOTE]
    assert "submit.py asks AI Platform's API" in found.evidence
