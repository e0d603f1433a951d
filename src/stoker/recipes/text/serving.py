"""Predict with a fine-tuned encoder: what `stoker.predict` loads for a bundle of the framework `text`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers

from stoker.errors import ConfigError, InstanceError
from stoker.recipes.text.encoder import quiet
from stoker.recipes.text.tokens import Cutting, token_rows

if TYPE_CHECKING:
    from stoker.schema.bundle import ModelCard

_ROWS_AT_ONCE = 64
_HERE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}  # no network, no code of the bundle's


def load(folder: Path, card: "ModelCard") -> "TextPredictor":
    """The bundle's model, on a GPU if there is one."""
    try:
        with quiet():
            model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, **_HERE)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **_HERE)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{folder} holds no encoder that can be loaded: {str(error).splitlines()[0]}") from error
    return TextPredictor(card, model, tokenizer)


class TextPredictor:
    """Instances are texts, or objects with the field `text`; predictions have a `label` and `probabilities`."""

    def __init__(self, card: "ModelCard", model: Any, tokenizer: Any) -> None:
        self.card = card
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model = model.to(self._device).eval()
        self._tokenizer = tokenizer
        self._labels = card.labels or tuple(str(model.config.id2label[number]) for number in range(model.num_labels))
        about = card.metadata
        self._cutting = Cutting(
            max_length=int(about.get("max_length", 512)),
            window=about.get("long_texts") == "window",
            stride=int(about.get("stride", 0)),
        )

    def predict(self, instances: Sequence[Any]) -> list[dict[str, Any]]:
        texts = [_text_of(instance, index) for index, instance in enumerate(instances)]
        if not texts:
            return []
        chances = self._logits(texts).softmax(1)
        best = chances.argmax(1).tolist()
        return [
            {"label": self._labels[number], "probabilities": row}
            for number, row in zip(best, chances.tolist(), strict=True)
        ]

    def _logits(self, texts: Sequence[str]) -> torch.Tensor:
        """A row for each text: the mean over its windows."""
        parts = list(token_rows(texts, self._tokenizer, self._cutting))
        rows = [row for ids, _ in parts for row in ids]
        which = torch.from_numpy(np.concatenate([documents for _, documents in parts]))
        # One length at a time, without padding: a text's prediction must not depend on those beside it.
        by_length: dict[int, list[int]] = {}
        for number, row in enumerate(rows):
            by_length.setdefault(len(row), []).append(number)
        logits = torch.zeros(len(rows), len(self._labels), dtype=torch.float64)
        with torch.inference_mode():
            for numbers in by_length.values():
                for start in range(0, len(numbers), _ROWS_AT_ONCE):
                    some = numbers[start : start + _ROWS_AT_ONCE]
                    ids = torch.tensor([rows[number] for number in some], device=self._device)
                    said = self._model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
                    logits[torch.tensor(some)] = said.double().cpu()
        sums = torch.zeros(len(texts), logits.shape[1], dtype=torch.float64).index_add_(0, which, logits)
        return sums / torch.bincount(which, minlength=len(texts))[:, None]


def _text_of(instance: Any, index: int) -> str:
    if isinstance(instance, str):
        return instance
    if not isinstance(instance, Mapping):
        raise InstanceError(f"expected a text or {{'text': …}}, got {type(instance).__name__}", index=index)
    if "text" not in instance:
        raise InstanceError("is missing", index=index, field="text")
    if not isinstance(instance["text"], str):
        raise InstanceError(f"expected a text, got {type(instance['text']).__name__}", index=index, field="text")
    return instance["text"]
