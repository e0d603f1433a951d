"""Each framework's model, really trained, predicts from its bundle what it predicted alive."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.errors import ConfigError, InstanceError, UsageError
from stoker.predict.loading import load
from tests.predict.conftest import Export

Array = Any


@pytest.fixture(scope="session")
def classes(rows: Array) -> Array:
    return (rows[:, 0] + rows[:, 1] > 0).astype(int)


def test_sklearn_classifier_gives_labels_and_probabilities(rows: Array, classes: Array, export: Export) -> None:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(rows, np.where(classes, "yes", "no"))
    folder = export(model, metrics={"accuracy": 0.9})

    labels = load(folder, trust_pickle=True)
    chances = load(folder, trust_pickle=True, signature_name="predict_proba")

    assert labels.predict(rows.tolist()) == model.predict(rows).tolist()
    assert chances.predict(rows.tolist()) == model.predict_proba(rows).tolist()
    assert (labels.card.labels, labels.card.metrics) == (("no", "yes"), {"accuracy": 0.9})
    assert labels.card.signature.inputs[0].shape == (3,)
    assert any(line.startswith("scikit-learn==") for line in labels.card.requirements)
    with pytest.raises(UsageError, match="predict_proba"):
        load(folder, trust_pickle=True, signature_name="nonsense")


def test_sklearn_pipeline_takes_fields_by_name_and_names_what_it_refuses(export: Export) -> None:
    import pandas
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    table = pandas.DataFrame({"town": ["a", "b", "a", "c"], "km": [1.0, 2.0, 3.0, 4.5]})
    steps = make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough")
    model = make_pipeline(steps, LinearRegression()).fit(table, [1.0, 2.0, 3.0, 4.0])
    predictor = load(export(model, example=table), trust_pickle=True)

    alive = model.predict(pandas.DataFrame({"town": ["b", "c"], "km": [1.0, 2.0]})).tolist()
    assert predictor.predict([{"km": 1, "town": "b"}, ["c", 2.0]]) == alive
    for bad, message in [
        ({"km": 1, "town": "z"}, r"instance 1: the model refuses it: Found unknown categories \['z'\]"),
        ({"km": "far", "town": "a"}, "instance 1, field 'km': is the text 'far'; expected a number"),
        ({"town": "a", "km": 1, "kg": 1}, "instance 1, field 'kg': the model has no such field; it takes town, km"),
        ({"km": 1}, "instance 1, field 'town': is missing"),
        (["a"], "instance 1: has 1 values; the model takes 2: town, km"),
    ]:
        with pytest.raises(InstanceError, match=message) as caught:
            predictor.predict([["a", 1.0], bad])
        assert caught.value.index == 1


def test_sklearn_text_pipeline_takes_bare_texts(export: Export) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    texts = ["good film", "bad film", "very good", "very bad"]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, [1, 0, 1, 0])

    assert load(export(model), trust_pickle=True).predict(["good", "bad"]) == [1, 0]


@pytest.mark.parametrize("form", ["booster", "classifier", "pickled booster", "pickled classifier", "bare json"])
def test_xgboost_predicts_as_it_did_alive(
    form: str, rows: Array, classes: Array, export: Export, tmp_path: Path
) -> None:
    import joblib
    import xgboost

    settings = {"max_depth": 2, "objective": "binary:logistic"}
    booster = xgboost.train(settings, xgboost.DMatrix(rows, classes), num_boost_round=3)
    classifier = xgboost.XGBClassifier(n_estimators=3, max_depth=2).fit(rows, classes)
    alive = (classifier.predict(rows) if "classifier" in form else booster.predict(xgboost.DMatrix(rows))).tolist()
    if form == "bare json":
        booster.save_model(tmp_path / "model.json")
        folder = tmp_path
    elif form.startswith("pickled"):
        joblib.dump(classifier if "classifier" in form else booster, tmp_path / "model.joblib")
        folder = tmp_path
    else:
        folder = export(classifier if form == "classifier" else booster)

    predictor = load(folder, trust_pickle=form.startswith("pickled"))

    assert predictor.card.framework == "xgboost"
    assert predictor.predict(rows.tolist()) == alive
    assert len(predictor.predict([[1.0, None, 2.0]])) == 1  # XGBoost takes what is missing
    with pytest.raises(InstanceError, match="instance 0: has 2 values; expected 3"):
        predictor.predict([[1.0, 2.0]])


def test_torch_program_takes_any_batch(export: Export, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)
            self.embedding = torch.nn.Embedding(5, 2)
            self.dropout = torch.nn.Dropout(0.5)

        def forward(self, numbers: torch.Tensor, kind: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"score": self.dropout(self.linear(numbers) + self.embedding(kind)), "double": numbers * 2}

    torch.manual_seed(0)
    model = Net().train()
    numbers, kinds = torch.randn(4, 3), torch.tensor([0, 1, 2, 3])
    folder = export(model, example=(numbers[:1], kinds[:1]))
    predictor = load(folder, trust_pickle=True)

    pairs = zip(numbers.tolist(), kinds.tolist(), strict=True)
    instances = [{"numbers": row, "kind": kind} for row, kind in pairs]
    found = predictor.predict(instances)

    assert model.training
    alive = model.eval()(numbers, kinds)
    np.testing.assert_allclose([row["score"] for row in found], alive["score"].detach().numpy(), rtol=1e-6)
    assert [row["double"] for row in found] == (numbers * 2).tolist()
    assert [predictor.predict([row])[0] for row in instances] == found  # to the last bit
    assert set(load_file(folder / "model.safetensors")) == set(model.state_dict())
    for bad, message in [
        ({"numbers": [1, 2], "kind": 0}, "instance 0, field 'numbers': has 2 values; expected 3"),
        ({"numbers": [1, 2, 3], "kind": 0.5}, "instance 0, field 'kind': is 0.5; expected a whole number"),
        ({"numbers": [1, 2, 3], "kind": 9}, "instance 0: the model refuses it: index out of range"),
    ]:
        with pytest.raises(InstanceError, match=message):
            predictor.predict([bad])


def test_torch_module_without_example_is_refused_with_what_to_do(export: Export) -> None:
    import torch

    with pytest.raises(ConfigError, match=r"save_model\(model, example=batch\)"):
        export(torch.nn.Linear(2, 1))
    with pytest.raises(ConfigError, match="does not take the example"):
        export(torch.nn.Linear(2, 1), example=torch.zeros(2, 3))


@pytest.mark.filterwarnings("ignore")  # its own
def test_torch_module_is_exported_as_onnx_on_request(export: Export) -> None:
    import onnx
    import torch
    from onnx.reference import ReferenceEvaluator

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    folder = export(model, example=torch.zeros(2, 3), format="onnx")

    graph = onnx.load(folder / "model.onnx")
    given = torch.randn(5, 3)
    (found,) = ReferenceEvaluator(graph).run(None, {graph.graph.input[0].name: given.numpy()})
    np.testing.assert_allclose(found, model(given).detach().numpy(), rtol=1e-5, atol=1e-6)
    if find_spec("onnxruntime") is None:
        with pytest.raises(ConfigError, match="needs onnxruntime, which is not installed"):
            load(folder)
    else:
        np.testing.assert_allclose(load(folder).predict(given.tolist()), found, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # its own
def test_keras_model_predicts_as_it_did_alive(rows: Array, classes: Array, export: Export) -> None:
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(rows, classes, epochs=1, verbose=0)
    predictor = load(export(model))

    np.testing.assert_allclose(predictor.predict(rows.tolist()), model.predict(rows, verbose=0), rtol=1e-5, atol=1e-6)
    assert [predictor.predict([row])[0] for row in rows[:5].tolist()] == predictor.predict(rows[:5].tolist())
    assert predictor.card.metadata["backend"] == "torch"
    with pytest.raises(InstanceError, match="instance 1: has 4 values; expected 3"):
        predictor.predict([[1, 2, 3], [1, 2, 3, 4]])
    with pytest.raises(ConfigError, match="needs Keras on TensorFlow; this one is on torch"):
        export(model, format="saved_model")


@pytest.mark.filterwarnings("ignore")  # its own
def test_keras_model_with_code_in_it_is_refused(export: Export) -> None:
    import keras

    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Lambda(lambda x: x * 2)])
    folder = export(model)

    with pytest.raises(ConfigError, match=r"model\.keras cannot be loaded by Keras"):
        load(folder)


@pytest.mark.filterwarnings("ignore")  # its own
def test_transformers_classifier_does_not_mind_its_neighbours(export: Export, tmp_path: Path) -> None:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = {word: at for at, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "a"])}
    raw = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=8,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=16,
        id2label={0: "NEGATIVE", 1: "POSITIVE"},
    )
    model = BertForSequenceClassification(config).eval()
    predictor = load(export(model, tokenizer=tokenizer))
    texts = ["good film", "bad", "a good film", "film bad", "a " * 40]

    found = predictor.predict(texts)

    for text, prediction in zip(texts, found, strict=True):
        ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=16)
        alive = torch.softmax(model(**ids).logits, -1)[0].tolist()
        assert prediction["probabilities"] == pytest.approx(alive, abs=1e-6)
        assert prediction["label"] == ("NEGATIVE" if alive[0] > alive[1] else "POSITIVE")
        (alone,) = predictor.predict([{"text": text}])
        assert alone["probabilities"] == pytest.approx(prediction["probabilities"], abs=1e-6)
    assert predictor.card.labels == ("NEGATIVE", "POSITIVE")
    with pytest.raises(InstanceError, match="instance 1, field 'text': is the number 3; expected a text"):
        predictor.predict(["good", 3])
    with pytest.raises(ConfigError, match="without its tokenizer"):
        export(model, name="other")


@pytest.mark.skipif(find_spec("tensorflow") is not None, reason="TensorFlow is installed")
def test_saved_model_says_in_one_line_that_tensorflow_is_missing(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"")

    with pytest.raises(ConfigError, match="tensorflow needs tensorflow, which is not installed"):
        load(tmp_path, trust_pickle=True)


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed")
@pytest.mark.filterwarnings("ignore")
def test_saved_model_takes_bare_values_and_objects(tmp_path: Path) -> None:
    """The iris sample's interface: a line of CSV in, an object out."""
    import tensorflow as tf

    class Iris(tf.Module):  # type: ignore[misc]
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="csv_row")])  # type: ignore[untyped-decorator]
        def serve(self, csv_row: Any) -> Any:
            numbers = tf.strings.to_number(tf.strings.split(csv_row, ",").to_tensor(), tf.float32)
            return {"class_ids": tf.argmax(numbers, 1)[:, None], "probabilities": tf.nn.softmax(numbers)}

    iris = Iris()
    tf.saved_model.save(iris, str(tmp_path), signatures={"serving_default": iris.serve})
    predictor = load(tmp_path, trust_pickle=True)

    (found,) = predictor.predict([{"csv_row": "6.4,3.2,4.5,1.5"}])

    assert found["class_ids"] == [0]
    assert predictor.predict(["6.4,3.2,4.5,1.5"]) == [found]
    with pytest.raises(InstanceError, match="instance 1: the model refuses it: StringToNumberOp could not"):
        predictor.predict(["1,2", "a,b"])
    with pytest.raises(UsageError, match="no signature 'other'. There are: serving_default"):
        load(tmp_path, trust_pickle=True, signature_name="other")


def test_bare_torch_program_of_a_fixed_batch_takes_any_number(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1).eval()
    torch.export.save(torch.export.export(model, (torch.zeros(3, 2),)), tmp_path / "net.pt2")
    given = torch.randn(4, 2)

    found = load(tmp_path, trust_pickle=True).predict(given.tolist())

    np.testing.assert_allclose(found, model(given).detach().numpy(), rtol=1e-6)
