"""Text classifiers in Hugging Face's layout: texts in, the label and each class's probability out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from stoker.errors import ConfigError
from stoker.predict.base import Instance, Prediction, Predictor
from stoker.predict.instances.blame import predict_or_blame
from stoker.predict.instances.checking import checked
from stoker.predict.versions import warn_of_other_versions
from stoker.schema.bundle import FieldSpec, ModelCard, Signature

_BATCH = 32
_LONGEST = 512  # for tokenizers that know no limit of their own
# False said aloud: without it transformers asks on the terminal whether to run a model's code.
_HERE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
_TEXT = Signature(inputs=(FieldSpec(name="text", dtype="string", shape=()),))


def load(folder: Path, card: ModelCard) -> Predictor:
    """Only what lies in the folder is used: nothing is downloaded, and no code of the model's repository is run."""
    warn_of_other_versions(card)
    transformers.utils.logging.disable_progress_bar()
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **_HERE)
        architectures = config.architectures or []
        if not any(name.endswith("ForSequenceClassification") for name in architectures):
            what = ", ".join(architectures) or "a model of no known kind"
            raise ConfigError(
                f"{folder} holds {what}; stoker predicts with classifiers of texts (…ForSequenceClassification)."
                " For others, put a predictor.py beside it."
            )
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **_HERE)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, **_HERE)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        what = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        version = transformers.__version__
        raise ConfigError(f"{folder} cannot be loaded by transformers {version}: {what[:300]}") from error
    card = card.with_(signature=card.signature if card.signature.inputs else _TEXT)
    if card.labels is None:
        card = card.with_(labels=tuple(str(model.config.id2label[at]) for at in range(model.config.num_labels)))
    return TextPredictor(model.eval(), tokenizer, card)


class TextPredictor:
    """Instances are texts, or {"text": …}."""

    def __init__(self, model: Any, tokenizer: Any, card: ModelCard) -> None:
        self.card = card
        self._model = model
        self._tokenizer = tokenizer
        self._labels = card.labels or ()
        limits = (tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None) or _LONGEST)
        self._longest = min(limits)

    def predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        return predict_or_blame(self._predict, instances, about=(RuntimeError,))

    def _predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        if not instances:
            return []
        texts = [row[0] for row in checked(instances, self.card.signature)]
        tokens = self._tokenizer(texts, truncation=True, max_length=self._longest)
        probabilities: list[list[float]] = [[]] * len(texts)
        for group in self._groups(tokens["input_ids"]):
            found = self._probabilities({name: [values[at] for at in group] for name, values in tokens.items()})
            for at, row in zip(group, found, strict=True):
                probabilities[at] = row
        return [self._prediction(row) for row in probabilities]

    def _groups(self, ids: list[list[int]]) -> list[list[int]]:
        """Texts of one length together: nothing is padded, so that no text's numbers depend on its neighbours'."""
        by_length: dict[int, list[int]] = {}
        for at, tokens in enumerate(ids):
            by_length.setdefault(len(tokens), []).append(at)
        return [group[at : at + _BATCH] for group in by_length.values() for at in range(0, len(group), _BATCH)]

    def _probabilities(self, tokens: dict[str, list[list[int]]]) -> list[list[float]]:
        with torch.inference_mode():
            logits = self._model(**{name: torch.tensor(values) for name, values in tokens.items()}).logits.float()
        if logits.shape[-1] == 1:  # a regression: the number itself
            return [[float(value)] for value in logits[:, 0]]
        found: list[list[float]] = torch.softmax(logits, dim=-1).tolist()
        return found

    def _prediction(self, row: list[float]) -> Prediction:
        if len(row) == 1:
            return row[0]
        return {"label": self._labels[max(range(len(row)), key=row.__getitem__)], "probabilities": row}
