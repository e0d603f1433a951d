"""The recipe learns what can be learnt, does what a plain loop does, and its model predicts anywhere."""

import dataclasses
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch
import transformers

from stoker import pytorch
from stoker.errors import InstanceError, NotFoundError, UsageError
from stoker.predict.loading import load
from stoker.recipes import synthetic
from stoker.recipes.text import FineTuned, Scored, TextSettings, fine_tune, load_encoder, read_data
from stoker.recipes.text.batches import LengthOrder
from stoker.recipes.text.scores import combined, confusion_text, metrics_of, part
from tests.recipes.text.conftest import a_config, write_csv


class Losses(pytorch.PyTorchCallback):
    """Every batch's own loss, and where to stop."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        self.seen += [row["loss"] for row in batch_metrics]


def quietly(settings: TextSettings, **more: Any) -> FineTuned:
    return fine_tune(settings, progress=False, **more)


def test_the_losses_are_those_of_a_plain_loop(encoder_dir: Path, reviews_csv: Path) -> None:
    settings = TextSettings(
        str(reviews_csv), str(encoder_dir), batch_size=16, num_epochs=2, learning_rate=1e-3, max_length=48
    )
    data = read_data(settings)
    encoder = without_dropout(encoder_dir, data.labels)
    losses = Losses()
    expected = plain_loop(settings)

    quietly(settings, encoder=encoder, callbacks={"losses": losses})

    assert len(expected) == 14  # 108 texts in batches of 16, the last of 12; twice
    assert losses.seen == pytest.approx(expected, abs=2e-6)
    assert expected[-1] < expected[0]


def plain_loop(settings: TextSettings) -> list[float]:
    """What the documentation of transformers would have one write; the order of the texts is the recipe's."""
    data = read_data(settings)
    encoder = without_dropout(Path(settings.model), data.labels)
    model, tokenizer = encoder.model.train(), encoder.tokenizer
    decayed = [param for param in model.parameters() if param.ndim > 1]
    free = [param for param in model.parameters() if param.ndim == 1]
    groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": free, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, foreach=False)
    steps, warmup = 14, 1  # round(14 * 0.06)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (step + 1) / (warmup + 1) if step < warmup else (steps - step) / (steps - warmup)
    )
    lengths = np.array([len(tokenizer(text, truncation=True, max_length=48)["input_ids"]) for text in data.train.texts])
    losses = []
    for epoch in range(settings.num_epochs):
        rows = LengthOrder(lengths, batch_size=settings.batch_size, seed=settings.seed).order(epoch)
        for start in range(0, len(rows), settings.batch_size):
            chosen = rows[start : start + settings.batch_size]
            texts = [data.train.texts[row] for row in chosen]
            inputs = tokenizer(texts, truncation=True, max_length=48, padding=True, return_tensors="pt")
            loss = model(**inputs, labels=torch.from_numpy(data.train.labels[chosen])).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses


def without_dropout(folder: Path, labels: tuple[str, ...]) -> Any:
    encoder = load_encoder(str(folder), labels=labels, max_length=48)
    for module in encoder.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "dropout_prob"):
            module.dropout_prob = 0.0
    for module in encoder.model.modules():
        if type(module).__name__.endswith("SelfAttention"):
            module.dropout.p = 0.0
    return encoder


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> FineTuned:
    """Nothing but a file of texts: a tiny encoder is made for it."""
    folder = tmp_path_factory.mktemp("learnt")
    rows = synthetic.make("reviews", rows=1200, seed=1).to_pylist()
    data = write_csv(folder / "reviews.csv", rows)
    settings = TextSettings(
        str(data), num_epochs=3, learning_rate=3e-3, batch_size=32, max_length=64, cache_dir=str(folder / "cache")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return quietly(settings, model_dir=folder / "reviews-model", own_metrics=share_of_positive)


def share_of_positive(scored: Scored, labels: tuple[str, ...]) -> dict[str, float]:
    return {"share_positive": float((scored.logits.argmax(1) == labels.index("positive")).double().mean())}


def test_the_truth_is_learnt_and_predicted_from_the_bundle(learnt: FineTuned) -> None:
    fresh = synthetic.make("reviews", rows=400, seed=99)
    truth = synthetic.expected("reviews", fresh)
    clear = np.abs(truth - 0.5) > 0.3  # where the planted words leave little doubt
    assert learnt.model_dir is not None

    predictor = load(learnt.model_dir)
    answers = predictor.predict(fresh["text"].to_pylist())

    positive = np.array([answer["label"] == "positive" for answer in answers])
    assert np.mean(positive[clear] == (truth[clear] > 0.5)) > 0.9
    assert learnt.metrics["accuracy"] > 0.72
    assert 0 < learnt.metrics["share_positive"] < 1
    assert sum(answers[0]["probabilities"]) == pytest.approx(1)


def test_the_bundle_is_a_hugging_face_folder_with_a_card(learnt: FineTuned) -> None:
    assert learnt.model_dir is not None
    model = transformers.AutoModelForSequenceClassification.from_pretrained(learnt.model_dir)
    tokenizer = transformers.AutoTokenizer.from_pretrained(learnt.model_dir)
    predictor = load(learnt.model_dir)
    texts = ["wonderful kalo superb", "dull dreadful", "moving " * 100, ""]

    theirs = [model(**tokenizer(t, truncation=True, max_length=64, return_tensors="pt")).logits[0] for t in texts]
    ours = [answer["probabilities"] for answer in predictor.predict(texts)]

    torch.testing.assert_close(torch.tensor(ours), torch.stack(theirs).softmax(1).detach(), atol=1e-6, rtol=0)
    assert ours[1] == predictor.predict([{"text": texts[1]}])[0]["probabilities"]  # alone or among others
    assert model.config.id2label == {0: "negative", 1: "positive"}
    card = json.loads((Path(learnt.model_dir) / "model.json").read_text())
    assert (card["framework"], card["labels"]) == ("text", ["negative", "positive"])
    assert card["metrics"]["f1"] == learnt.metrics["f1"]
    assert (Path(learnt.model_dir) / "confusion.txt").read_text().rstrip() == learnt.confusion
    assert (Path(learnt.model_dir) / "confusion.png").stat().st_size > 1000


def test_a_bad_instance_is_named(learnt: FineTuned) -> None:
    assert learnt.model_dir is not None
    predictor = load(learnt.model_dir)

    for instance, message in ((7, "instance 1: expected a text"), ({}, "field 'text': is missing")):
        with pytest.raises(InstanceError, match=message):
            predictor.predict(["fine", instance])
    with pytest.raises(InstanceError, match="expected a text, got int"):
        predictor.predict([{"text": 3}])


class Spoiler(pytorch.PyTorchCallback):
    """Turns the head's weights round before the second validation."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.seen: list[dict[str, Any]] = []

    def on_validation_start(self) -> None:
        if len(self.seen) == 1:
            with torch.no_grad():
                self.model.classifier.weight.mul_(-30)

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.seen.append(dict(metrics))


def test_the_weights_of_the_best_evaluation_are_exported(encoder_dir: Path, reviews_csv: Path) -> None:
    settings = TextSettings(str(reviews_csv), str(encoder_dir), num_epochs=2, learning_rate=5e-3)
    data = read_data(settings)
    encoder = load_encoder(str(encoder_dir), labels=data.labels)
    spoiler = Spoiler(encoder.model)

    found = quietly(settings, data=data, encoder=encoder, model_dir="best", callbacks={"spoiler": spoiler})

    first, last = spoiler.seen
    assert first["loss"] < last["loss"]
    assert found.metrics["loss"] == first["loss"]
    answers = load("best").predict(data.evaluation.texts)
    chances = [answer["probabilities"][label] for answer, label in zip(answers, data.evaluation.labels, strict=True)]
    assert -np.mean(np.log(chances)) == pytest.approx(first["loss"], rel=1e-3)


def test_a_run_that_is_restarted_goes_on_bit_for_bit(
    encoder_dir: Path, reviews_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = TextSettings(str(reviews_csv), str(encoder_dir), num_epochs=2, learning_rate=1e-3)

    class Stop(Losses):
        def on_training_epoch_start(self, epoch_idx: int) -> None:
            if epoch_idx == 1:
                (tmp_path / "runs" / "1" / "stop").write_text("pause")
                signal.raise_signal(signal.SIGTERM)  # as the supervisor does; without it the file is seen within 50 ms

    def attempt(number: int, callback: Losses, **launch: Any) -> FineTuned:
        folder = tmp_path / "runs" / str(number)
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"run": f"j.1.{number}", "attempt": number, **launch}))
        monkeypatch.setenv("STOKER_RUN_DIR", str(folder))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a process of its own has no handler of an earlier run
        return quietly(settings, callbacks={"losses": callback})

    whole, before, after = Losses(), Stop(), Losses()
    attempt(3, whole)
    with pytest.raises(SystemExit):
        attempt(1, before)
    checkpoints = (tmp_path / "runs" / "1" / "checkpoints").glob("step-*")
    attempt(2, after, latest_checkpoint=str(max(checkpoints, key=lambda path: int(path.name.removeprefix("step-")))))

    assert 7 < len(before.seen) < len(whole.seen) == 14  # in the midst of the second epoch
    assert before.seen + after.seen == whole.seen


def test_hyperparameters_of_a_search_count_for_more_than_the_settings(
    encoder_dir: Path, reviews_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"hparams": {"batch_size": 54}}))
    monkeypatch.setenv("STOKER_RUN_DIR", str(tmp_path))
    losses = Losses()

    quietly(TextSettings(str(reviews_csv), str(encoder_dir), batch_size=8), callbacks={"losses": losses})

    assert len(losses.seen) == 2  # 108 texts


def test_long_texts_are_judged_by_the_mean_of_their_windows(encoder_dir: Path, reviews_csv: Path) -> None:
    settings = TextSettings(
        str(reviews_csv), str(encoder_dir), max_length=12, long_texts="window", stride=4, batch_size=64
    )

    found = quietly(settings, model_dir="windowed")

    data = read_data(settings)
    answers = load("windowed").predict(data.evaluation.texts)
    guesses = [data.labels.index(answer["label"]) for answer in answers]
    matrix = sklearn.metrics.confusion_matrix(data.evaluation.labels, guesses)
    assert found.metrics["confusion"].tolist() == matrix.tolist()
    assert int(found.metrics["confusion"].sum()) == 12  # documents, not windows


def test_scores_are_those_of_scikit_learn() -> None:
    chance = torch.Generator().manual_seed(0)
    logits = torch.randn(60, 4, generator=chance)
    logits[:, 3] = -9.0  # a class that is never guessed
    labels = torch.randint(0, 3, (60,), generator=chance)  # and never there
    names = ("a", "b", "c", "never seen and long")

    found = metrics_of(combined([part(torch.arange(60), labels, logits)]), names)

    guesses = logits.argmax(1)
    assert found["accuracy"] == sklearn.metrics.accuracy_score(labels, guesses)
    assert found["f1"] == pytest.approx(sklearn.metrics.f1_score(labels, guesses, average="macro"))
    assert found["f1_b"] == pytest.approx(sklearn.metrics.f1_score(labels, guesses, average=None)[1])
    assert found["confusion"][:3, :3].tolist() == sklearn.metrics.confusion_matrix(labels, guesses).tolist()
    lines = confusion_text(found["confusion"], names).splitlines()
    assert lines[0].split() == ["is", "\\", "guessed", "a", "b", "c", "never", "seen", "…"]
    assert len({len(line) for line in lines}) == 1


def test_an_encoder_that_does_not_fit_is_refused_before_training(
    encoder_dir: Path, reviews_csv: Path, tmp_path: Path
) -> None:
    good = TextSettings(str(reviews_csv), str(encoder_dir))
    misfit = tmp_path / "misfit"
    transformers.AutoTokenizer.from_pretrained(encoder_dir).save_pretrained(misfit)
    transformers.BertModel(a_config(20)).save_pretrained(misfit)
    (tmp_path / "empty").mkdir()

    for settings, kind, message in (
        (dataclasses.replace(good, model=str(misfit)), UsageError, "does not fit its model: it has"),
        (dataclasses.replace(good, model=str(tmp_path / "empty")), NotFoundError, "No encoder could be loaded from"),
        (dataclasses.replace(good, model="./nowhere"), NotFoundError, "No folder ./nowhere"),
        (dataclasses.replace(good, max_length=65), UsageError, "takes at most 64 tokens"),
    ):
        with pytest.raises(kind, match=message) as caught:
            quietly(settings)
        assert "\n" not in str(caught.value)
