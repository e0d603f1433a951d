"""Names that old code imports from corners of Determined's library."""

import importlib.util
import subprocess
from collections.abc import Callable

import pytest

from stoker.compat.commands.determined.checkpoint import check_not_needed
from stoker.compat.determined.sdk_checkpoint import CheckpointSortBy, OrderBy, order_of
from stoker.errors import ConflictError
from stoker.schema.record import CheckpointRecord, MetricPoint
from stoker.schema.registry import RegisteredModel, Version
from tests.compat.conftest import events

Script = Callable[..., "subprocess.CompletedProcess[str]"]


def saved(trial: int, step: int) -> CheckpointRecord:
    path = f"/runs/{trial}/{step}"
    return CheckpointRecord(run="r", trial=trial, time=step, step=step, path=path, size_bytes=1)


def reported(trial: int, step: int, **values: float) -> MetricPoint:
    group = "validation" if "loss" in values else "training"
    return MetricPoint(run="r", trial=trial, time=step, replica="chief-0", group=group, step=step, values=values)


RECORDS = [saved(1, 10), saved(1, 20), saved(2, 10), saved(2, 20)]
POINTS = [reported(1, 10, loss=0.5), reported(1, 20, loss=0.1), reported(2, 10, loss=0.3), reported(1, 10, acc=0.9)]


@pytest.mark.parametrize(
    ("sort_by", "order_by", "smaller", "first"),
    [
        (None, None, None, (1, 20)),
        (None, None, False, (1, 10)),
        (CheckpointSortBy.SEARCHER_METRIC, OrderBy.DESC, None, (1, 10)),
        ("acc", OrderBy.DESCENDING, None, (1, 10)),
        (CheckpointSortBy.BATCH_NUMBER, OrderBy.ASC, None, (1, 10)),
        (CheckpointSortBy.END_TIME, OrderBy.DESC, None, (1, 20)),
    ],
)
def test_checkpoints_are_sorted_as_asked(sort_by, order_by, smaller, first) -> None:
    order = order_of(sort_by, order_by, smaller, searcher=("loss", True))

    ordered = order.apply(RECORDS, POINTS)

    assert (ordered[0].trial, ordered[0].step) == first
    assert len(ordered) == len(RECORDS)


def test_one_without_a_value_comes_last_either_way() -> None:
    for order_by in (OrderBy.ASC, OrderBy.DESC):
        ordered = order_of("loss", order_by, None, searcher=("loss", True)).apply(RECORDS, POINTS)
        assert (ordered[-1].trial, ordered[-1].step) == (2, 20)


@pytest.mark.slow
def test_corners_can_be_imported(script: Script) -> None:
    ran = script(
        """
        from determined import util
        from determined.common import api
        from determined.experimental.client import CheckpointSortBy, DownloadMode, ExperimentState, OrderBy
        from determined.horovod import hvd
        from determined.pytorch import experimental
        from determined.pytorch import _SimpleReducer
        from determined.tensorboard.metric_writers.pytorch import TorchWriter

        print(util.merge_dicts({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}, "d": {"e": 1}}))
        print(hvd.rank(), hvd.size(), hvd.allreduce(5))
        try:
            hvd.DistributedOptimizer
        except RuntimeError as error:
            print(error)
        assert experimental.torch_batch_process
        print(ExperimentState.DELETED.name, api.errors.NotFoundException.__name__)
        """
    )

    assert ran.stdout.splitlines()[:2] == ["{'a': {'b': 9, 'c': 2}, 'd': {'e': 1}}", "0 1 5"], ran.stderr
    assert "hvd.DistributedOptimizer: Horovod is not supported." in ran.stdout
    assert ran.stdout.endswith("DELETED NotFoundError\n")


@pytest.mark.slow
def test_keras_trial_trains_for_so_many_batches_whatever_its_data_has(script: Script, run_dir) -> None:
    if importlib.util.find_spec("keras") is None:
        pytest.skip("pip install keras, to test against it")
    text = """
        import os
        os.environ["KERAS_BACKEND"] = "torch"
        import keras, numpy
        from determined.keras import TFKerasTrial, TFKerasTrialContext
        from determined.keras.callbacks import EarlyStopping
        from stoker.compat.determined.keras_trial import train_keras

        class Data(keras.utils.PyDataset):
            def __len__(self):
                return 2
            def __getitem__(self, place):
                return numpy.ones((4, 2)), numpy.ones((4, 1))

        class Trial(TFKerasTrial):
            def build_model(self):
                model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
                model.compile(optimizer="adam", loss="mse")
                return self.context.wrap_model(model)
            def build_training_data_loader(self):
                self.context.configure_fit(verbose=0)
                return Data()
            def build_validation_data_loader(self):
                return numpy.ones((4, 2)), numpy.ones((4, 1))
            def keras_callbacks(self):
                return [EarlyStopping(patience=100)]

        train_keras(Trial, {"max_length": {"batches": 6}, "validation_period": {"batches": 3}})
        print("done")
    """
    run = run_dir(hparams={"global_batch_size": 4})

    ran = script(text, run_dir=run)

    assert ran.stdout.endswith("done\n"), ran.stderr
    assert [event["step"] for event in events(run) if event["type"] == "checkpoint"] == [3, 6]


class Registry:
    """A server's models, as far as deleting a checkpoint asks for them."""

    def __init__(self, source: str) -> None:
        self._version = Version.model_construct(model="mnist", name="v1", url="/registry/mnist/1", source=source)

    def models(self) -> list[RegisteredModel]:
        return [RegisteredModel.model_construct(name="mnist")]

    def versions(self, model: str) -> list[Version]:
        return [self._version]


def test_checkpoint_of_a_registered_model_is_not_deleted() -> None:
    check_not_needed(Registry("/runs/1/200"), RECORDS)  # of another, whose path only begins alike
    for source in ("/runs/1/20", "/runs/1/20/model"):
        with pytest.raises(
            ConflictError, match=r"/runs/1/20 is needed by mnist/versions/v1.*stoker versions delete v1"
        ):
            check_not_needed(Registry(source), RECORDS)
