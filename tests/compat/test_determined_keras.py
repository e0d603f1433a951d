"""TFKerasTrial and the Keras of its time: how long it trains, when it validates, and what has gone since."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.conftest import Ran, events

Script = Callable[..., Ran]
MakeRun = Callable[..., Path]

# In the style of Determined's own examples: arrays, a compiled model, two wraps.
MODEL_DEF = """
    import sys

    import keras
    import numpy
    from determined.keras import InputData, TFKerasTrial, TFKerasTrialContext

    class OneWeight(TFKerasTrial):
        def __init__(self, context: TFKerasTrialContext) -> None:
            self.context = context
            assert context.get_per_slot_batch_size() == context.get_global_batch_size()

        def build_model(self):
            model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
            model = self.context.wrap_model(model)
            optimizer = self.context.wrap_optimizer(keras.optimizers.SGD(self.context.get_hparam("lr")))
            model.compile(optimizer, "mse")
            return model

        def build_training_data_loader(self) -> InputData:
            return numpy.ones((8, 1)), numpy.ones((8, 1))

        build_validation_data_loader = build_training_data_loader

    if __name__ == "__main__":
        from stoker.compat.determined.legacy import train_class

        train_class(OneWeight, hparams={"lr": 0.1})
"""


@pytest.mark.long
@pytest.mark.slow
def test_keras_trial_is_validated_as_its_file_says_and_by_the_first_rank_alone(
    script: Script, run_dir: MakeRun
) -> None:
    trainer = {"max_length": {"epochs": 3}, "validation_period": {"epochs": 2}}
    given = {"hparams": {"global_batch_size": 4}, "origin": {"platform": "determined", "trainer": trainer}}
    first, second = run_dir(**given), run_dir(**given)

    ran = script(MODEL_DEF, run_dir=first, RANK="0", WORLD_SIZE="2", KERAS_BACKEND="torch")
    other = script(MODEL_DEF, run_dir=second, RANK="1", WORLD_SIZE="2", KERAS_BACKEND="torch")

    assert (ran.returncode, other.returncode) == (0, 0), ran.stderr + other.stderr
    reported = [(event["group"], event["step"]) for event in events(first) if event["type"] == "metric"]
    assert reported == [("training", 2), ("training", 4), ("validation", 4), ("training", 6), ("validation", 6)]
    assert not (second / "events.jsonl").exists()


@pytest.mark.slow
def test_keras_says_how_long_an_epoch_of_endless_data_is_and_has_its_old_modules(
    script: Script, run_dir: MakeRun
) -> None:
    experiment = {"records_per_epoch": 20}
    run = run_dir(hparams={"global_batch_size": 4}, origin={"platform": "determined", "document": experiment})

    ran = script(
        """
        import sys
        import stoker.packaging.job_modules.stoker_old_imports
        from keras.datasets.cifar import load_batch
        from stoker.compat.determined import keras_callbacks, keras_trial, old_optimizers

        class Endless:
            element_spec = None
            def cardinality(self): return -1
            def repeat(self): raise AssertionError("it repeats already")

        class New: pass
        class Old:
            def __init__(self, lr, decay=0.0): self.lr = lr

        data, context = Endless(), keras_trial.TFKerasTrialContext()
        how = keras_trial._how_long({"x": data}, {"max_length": {"epochs": 7}}, context)
        print(how == {"x": data, "steps_per_epoch": 5, "epochs": 7})
        print(keras_trial._how_long({"x": data}, {"test_mode": True}, context)["steps_per_epoch"])
        New.__new__ = old_optimizers._choosing(New, Old)
        print(type(New()).__name__, type(New(lr=1, decay=2)).__name__)
        begun = keras_callbacks._Begun(2)  # what Keras 2 asks, with the words that its releases do
        counters = begun.maybe_load_initial_counters_from_ckpt(5, 0, mode="train")
        print(counters, begun.maybe_load_initial_epoch_from_ckpt(3))
        context.get_experiment_config = dict
        keras_trial._how_long({"x": data}, {"max_length": {"epochs": 7}}, context)
        """,
        run_dir=run,
        KERAS_BACKEND="torch",
    )

    assert ran.stdout.splitlines() == ["True", "1", "New Old", "(2, 0) 3"], ran.stderr
    assert "how long is one? Say so with records_per_epoch" in ran.stderr
