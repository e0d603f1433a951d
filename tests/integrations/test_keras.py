"""Against the real Keras, on torch."""

import os

import numpy
import pytest

pytest.importorskip("torch")
os.environ.setdefault("KERAS_BACKEND", "torch")  # read when keras is first imported
keras = pytest.importorskip("keras", reason="pip install keras, to test against it")

from stoker.integrations.keras import StokerCallback  # noqa: E402
from tests.integrations.conftest import tell_to_stop  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

X = numpy.arange(40.0).reshape(20, 2) / 40
Y = X.sum(1, keepdims=True)


class StopAt(keras.callbacks.Callback):
    def __init__(self, batch) -> None:
        super().__init__()
        self.left = batch

    def on_train_batch_begin(self, batch, logs=None):
        self.left = self.left - 1 if self.left else None
        if self.left == 0:
            tell_to_stop()


def train(*, stop_at=None, others=(), **options):
    """What a user writes, and a way to be stopped."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    callback = StokerCallback(**options)
    callbacks = [callback, StopAt(stop_at), *others]
    history = model.fit(
        X, Y, epochs=4, batch_size=4, shuffle=False, validation_data=(X, Y), callbacks=callbacks, verbose=0
    )
    return model, callback, history


def test_metrics_and_checkpoints_go_to_the_run(start_run):
    run = start_run()

    train(every_n_batches=2)

    assert run.steps("training", "mae") == [2, 4, 5, 6, 8, 10, 10, 12, 14, 15, 16, 18, 20, 20]
    assert run.steps("validation", "loss") == [5, 10, 15, 20]
    assert run.checkpoints() == [5, 10, 15, 20]
    assert len(list((run.folder / "checkpoints").iterdir())) == 2
    assert [e["fraction"] for e in run.events("progress")] == [0.25, 0.5, 0.75, 1.0]


class PowerCut(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise RuntimeError("the power went out")


def test_a_run_that_died_goes_on_from_its_newest_checkpoint_as_if_it_had_not(start_run):
    straight, _, _ = train()
    start_run()
    with pytest.raises(RuntimeError, match="the power went out"):
        train(others=[PowerCut()])

    second = start_run()
    resumed, _, history = train()

    assert history.epoch == [2, 3]
    assert second.steps("validation", "loss") == [15, 20]
    for ours, theirs in zip(resumed.get_weights(), straight.get_weights(), strict=True):
        assert numpy.array_equal(ours, theirs)


def test_a_run_told_to_stop_saves_at_the_batch_leaves_and_begins_that_epoch_again(start_run):
    first = start_run()
    with pytest.raises(SystemExit) as stopped:
        train(stop_at=8)

    start_run()
    _, _, history = train()

    assert stopped.value.code == 0
    assert first.checkpoints() == [5, 8]
    assert history.epoch == [1, 2, 3]


def test_fit_returns_after_a_stop_if_asked_to(start_run):
    start_run()

    _, callback, history = train(stop_at=8, exit_on_stop=False)

    assert callback.stopped
    assert history.epoch == [0, 1]
