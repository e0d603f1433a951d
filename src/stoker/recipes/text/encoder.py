"""The encoder and its tokenizer: loaded from a folder or the hub, or a tiny one made from the data; checked to fit."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers.utils import logging as their_logging

from stoker.errors import NotFoundError, UsageError
from stoker.recipes.text.settings import TINY

LONGEST = 512  # tokens, where neither the user nor the encoder says less
_TINY_WORDS = 4000
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "longformer", "bigbird", "mpnet")  # they begin after pad


@dataclass(frozen=True, slots=True)
class Encoder:
    """A model with a classification head, its tokenizer, and how many tokens it takes."""

    model: Any
    tokenizer: Any
    max_length: int
    labels: tuple[str, ...]


def load_encoder(
    name: str, *, labels: Sequence[str], texts: Sequence[str] = (), max_length: int | None = None, seed: int = 0
) -> Encoder:
    """A folder's or the hub's encoder with a new head for these labels; `tiny` makes one, its words from the texts.

    The seed alone decides the weights that are new.
    UsageError, in one line, for a tokenizer that does not fit, NotFoundError for a model that is not there.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        tokenizer, model = _make_tiny(texts, labels, max_length) if name == TINY else _load(name, labels)
    _check_fit(name, tokenizer, model)
    taken = _length(name, tokenizer, model.config, asked=max_length)
    return Encoder(model=model, tokenizer=tokenizer, max_length=taken, labels=tuple(labels))


def _make_tiny(texts: Sequence[str], labels: Sequence[str], max_length: int | None) -> tuple[Any, Any]:
    tokenizer = make_tiny_tokenizer(texts)
    config = tiny_config(len(tokenizer), max_length or 128)
    return tokenizer, transformers.AutoModelForSequenceClassification.from_config(_with_labels(config, labels))


def make_tiny_tokenizer(texts: Sequence[str], *, words: int = _TINY_WORDS) -> Any:
    """A WordPiece tokenizer, as BERT's is, learnt from the texts."""
    from tokenizers import BertWordPieceTokenizer, processors  # noqa: PLC0415 - only for those who bring no encoder

    learnt = BertWordPieceTokenizer()
    learnt.train_from_iterator(
        texts, vocab_size=words, min_frequency=1, special_tokens=list(_SPECIAL), show_progress=False
    )
    ends = [(token, learnt.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    learnt.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), _SPECIAL, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=learnt._tokenizer, **named)


def tiny_config(vocabulary: int, max_length: int) -> Any:
    """BERT, small enough to learn on a laptop's CPU in seconds."""
    return transformers.BertConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=max(max_length, 8),
    )


def _load(name: str, labels: Sequence[str]) -> tuple[Any, Any]:
    here = os.path.isdir(name)
    if not here and (os.sep in name.rstrip("/") and name.count("/") > 1 or name.startswith((".", "/", "~"))):
        raise NotFoundError(f"No folder {name}: --model is a folder with config.json, a name on the hub, or {TINY!r}.")
    try:
        config = transformers.AutoConfig.from_pretrained(name)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        with quiet():
            model = transformers.AutoModelForSequenceClassification.from_pretrained(
                name, config=_with_labels(config, labels), ignore_mismatched_sizes=True
            )
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        where = (
            "It needs config.json, weights and a tokenizer's files" if here else "Give a folder, or a name on the hub"
        )
        raise NotFoundError(f"No encoder could be loaded from {name!r}: {reason} {where}.") from error
    return tokenizer, model.float()  # some are kept in bf16, which is too coarse to learn in


def _with_labels(config: Any, labels: Sequence[str]) -> Any:
    config.num_labels = len(labels)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: number for number, label in enumerate(labels)}
    config.problem_type = "single_label_classification"
    return config


def _check_fit(name: str, tokenizer: Any, model: Any) -> None:
    known = model.get_input_embeddings().weight.shape[0]
    highest = max(tokenizer.get_vocab().values(), default=-1) + 1
    if highest > known:
        raise UsageError(
            f"The tokenizer of {name!r} does not fit its model: it has {highest} tokens, and the model embeddings for"
            f" {known}. Use the tokenizer the model was made with."
        )
    if tokenizer.pad_token_id is None:
        raise UsageError(
            f"The tokenizer of {name!r} has no padding token, which batches need. Set its pad_token and save it again."
        )


def _length(name: str, tokenizer: Any, config: Any, *, asked: int | None) -> int:
    places = getattr(config, "max_position_embeddings", None) or LONGEST
    if config.model_type in _OFFSET_POSITIONS:
        places -= (config.pad_token_id or 0) + 1
    if asked is None:
        return int(min(places, tokenizer.model_max_length or LONGEST, LONGEST))
    if asked > places:
        raise UsageError(
            f"max_length={asked}: {name!r} takes at most {places} tokens. Use that, or long_texts='window'."
        )
    if asked < 4:
        raise UsageError(f"max_length={asked}: expected at least 4 tokens, two of which begin and end a text.")
    return asked


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without their bars and warnings: those of loading a head that is not there yet say what is meant to be so."""
    level, bars = their_logging.get_verbosity(), their_logging.is_progress_bar_enabled()
    their_logging.set_verbosity_error()
    their_logging.disable_progress_bar()
    try:
        yield
    finally:
        their_logging.set_verbosity(level)
        if bars:
            their_logging.enable_progress_bar()
