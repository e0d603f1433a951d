"""The fine-tuned encoder in the Hugging Face layout, with stoker's card beside it: both can load the same folder."""

import importlib.metadata
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stoker.context import Context
from stoker.recipes.text import scores
from stoker.recipes.text.encoder import Encoder, quiet
from stoker.recipes.text.settings import TextSettings

_NEEDS = ("torch", "transformers", "tokenizers", "numpy")


def export(
    encoder: Encoder, model_dir: Path, *, settings: TextSettings, metrics: Mapping[str, Any], run: Context
) -> Path:
    """Write the bundle and return its folder: config.json, weights, the tokenizer, and the confusion matrix."""
    from stoker.predict import bundle  # noqa: PLC0415 - a training that exports nothing needs no pydantic
    from stoker.schema.bundle import FieldSpec, ModelCard, Origin, Signature  # noqa: PLC0415

    labels = encoder.labels
    card = ModelCard(
        name=model_dir.name,
        framework="text",
        signature=Signature(
            inputs=(FieldSpec(name="text", dtype="string", shape=()),),
            outputs=(
                FieldSpec(name="label", dtype="string", shape=(), categories=labels),
                FieldSpec(name="probabilities", dtype="float", shape=(len(labels),)),
            ),
        ),
        labels=labels,
        metrics={name: float(value) for name, value in metrics.items() if isinstance(value, int | float)},
        metadata={
            "max_length": encoder.max_length,
            "long_texts": settings.long_texts,
            "stride": settings.stride,
            "trained_from": settings.model,
        },
        requirements=tuple(f"{name}=={importlib.metadata.version(name)}" for name in _NEEDS),
        python=platform.python_version(),
        created=datetime.now(UTC),
        origin=Origin(
            job=run.job,
            trial=run.trial if run.job else None,
            run=run.run_id or None,
            hparams=run.hparams,
            data=(settings.dataset, *([settings.eval_dataset] if settings.eval_dataset else ())),
        ),
    )

    def fill(folder: Path) -> None:
        with quiet():
            encoder.model.save_pretrained(folder)
            encoder.tokenizer.save_pretrained(folder)
        if "confusion" in metrics:
            (folder / "confusion.txt").write_text(scores.confusion_text(metrics["confusion"], labels) + "\n")
            scores.draw_confusion(metrics["confusion"], labels, folder / "confusion.png")

    bundle.write(model_dir, card, fill)
    return model_dir
