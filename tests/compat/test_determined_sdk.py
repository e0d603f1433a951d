"""Determined's SDK against a real server: an experiment from a notebook's point of view."""

import json
import textwrap
from pathlib import Path

import pytest

from stoker.compat.determined.sdk import Determined, ExperimentState
from stoker.errors import NotFoundError, StokerError
from stoker.host.home import Home
from tests.e2e.conftest import home

__all__ = ["home"]  # a fixture, for the tests here

pytestmark = pytest.mark.slow

TRAIN = """
    import determined as det
    info = det.get_cluster_info()
    with det.core.init() as context:
        x = info.trial.hparams["x"]
        print("x is", x, flush=True)
        context.train.report_training_metrics(1, {"loss": x})
        context.train.report_validation_metrics(1, {"loss": x * x})
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, uuid):
            (path / "x").write_text(str(x))
    from determined.experimental import client  # the SDK finds the server from inside, as it did there
    experiment, trial = client.get_experiment(info.trial.experiment_id), client.get_trial(info.trial.trial_id)
    print("of", experiment.config["name"], trial.hparams, flush=True)
"""
CONFIG = {
    "name": "sdk",
    "entrypoint": "python3 train.py",
    "hyperparameters": {"x": {"type": "categorical", "vals": [3, 1]}},
    "searcher": {"name": "grid", "metric": "loss", "smaller_is_better": True},
}


def test_experiment_from_beginning_to_download(home: Home, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(textwrap.dedent(TRAIN))
    with Determined() as client:
        experiment = client.create_experiment(CONFIG, code)

        assert experiment.await_first_trial().hparams["x"] in (1, 3)
        status = experiment.wait()
        assert status is ExperimentState.COMPLETED
        assert status.value == "STATE_COMPLETED"
        trials = {trial.hparams["x"]: trial for trial in experiment.list_trials()}
        assert sorted(trials) == [1, 3]
        own = [line for line in trials[3].iter_logs() if line.startswith(("x is", "of sdk"))]  # the supervisor may talk
        assert own == ["x is 3\n", "of sdk {'x': 3}\n"]
        assert [report.metrics for report in trials[3].iter_metrics("validation")] == [{"loss": 9.0}]
        best = experiment.top_checkpoint()
        assert (Path(best.download(tmp_path / "best")) / "x").read_text() == "1"
        assert client.get_checkpoint(best.uuid).metadata["steps_completed"] == 1
        assert json.loads((tmp_path / "best" / "metadata.json").read_text())["steps_completed"] == 1
        model = client.create_model("squares", labels=["mine"], metadata={"stage": "new"})
        assert model.get_version() is None
        registered = model.register_version(best.uuid)
        for checkpoint in (best, client.get_model("squares").get_version().checkpoint):
            assert checkpoint.training.validation_metrics["avgMetrics"] == {"loss": 1.0}
            assert checkpoint.validation["metrics"]["validationMetrics"] == {"loss": 1.0}
            assert (checkpoint.trial_id, checkpoint.hparams, checkpoint.batch_number) == (trials[1].id, {"x": 1}, 1)
        model.add_metadata({"deployed": False, "by": ["me"]})
        model.remove_metadata(["stage"])
        again = client.get_model("squares")
        assert (again.labels, again.metadata) == (["mine"], {"deployed": False, "by": ["me"]})
        assert model.get_version().model_version == model.get_version(1).model_version == registered.model_version
        assert client.get_model("squares").get_version().checkpoint.uuid == best.uuid
        assert (Path(registered.checkpoint.download(tmp_path / "copy")) / "x").read_text() == "1"
        assert (Path(experiment.download_code(str(tmp_path / "def"))) / "train.py").exists()
        experiment.set_labels(["a", "b"])
        experiment.remove_label("a")
        assert trials[1].get_experiment().labels == {"b"}
        model.delete()
        assert client.list_models() == []
        assert client.get_trial(trials[1].id).hparams == {"x": 1}
        assert experiment.config["searcher"]["name"] == "grid"
        assert [found.id for found in client.list_experiments()] == [experiment.id]
        with pytest.raises(NotFoundError):
            client.get_checkpoint("none")
        with pytest.raises(StokerError, match="flavour: no such field"):
            client.create_experiment({**CONFIG, "flavour": 1}, code)
