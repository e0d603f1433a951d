"""Fine-tune a Hugging Face encoder to classify texts: `fine_tune(TextSettings(dataset="reviews.csv"))`."""

from stoker.recipes.text.encoder import Encoder, load_encoder
from stoker.recipes.text.export import export
from stoker.recipes.text.fine_tuning import FineTuned, fine_tune
from stoker.recipes.text.reading import LabelledTexts, TextData, read_data
from stoker.recipes.text.scores import Scored, confusion_text, draw_confusion
from stoker.recipes.text.settings import TINY, TextSettings
from stoker.recipes.text.tokens import Cutting, TokenTable, tokenized
from stoker.recipes.text.trial import TextTrial

__all__ = [
    "TINY",
    "Cutting",
    "Encoder",
    "FineTuned",
    "LabelledTexts",
    "Scored",
    "TextData",
    "TextSettings",
    "TextTrial",
    "TokenTable",
    "confusion_text",
    "draw_confusion",
    "export",
    "fine_tune",
    "load_encoder",
    "read_data",
    "tokenized",
]
