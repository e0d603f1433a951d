"""Transformers models in Hugging Face's own layout: config.json, model.safetensors, the tokenizer's files."""

from pathlib import Path
from typing import Any

from stoker.errors import ConfigError
from stoker.predict.exporters import Details, Exported, no_such_format
from stoker.schema.bundle import FieldSpec, Signature


def export(model: Any, *, example: Any, format: str | None, details: Details) -> Exported:
    if format not in (None, "safetensors"):
        raise no_such_format(format, "transformers", ["safetensors"])
    tokenizer = details.get("tokenizer")
    if tokenizer is None:
        raise ConfigError("A transformers model is of no use without its tokenizer: save_model(model, tokenizer=…).")

    def fill(folder: Path) -> None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    signature = Signature(inputs=(FieldSpec(name="text", dtype="string", shape=()),))
    names = model.config.id2label or {}
    labels = [str(names[at]) for at in sorted(names)] or None
    return Exported("transformers", fill, signature, labels, ("transformers", "torch"))
