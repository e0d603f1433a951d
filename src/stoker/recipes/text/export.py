"""The fine-tuned encoder in the Hugging Face layout, with stoker's card beside it: both can load the same folder."""

import importlib.metadata
import platform
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.context import Context
from stoker.host.home import Home
from stoker.recipes.text import scores
from stoker.recipes.text.encoder import Encoder, quiet
from stoker.recipes.text.settings import TextSettings
from stoker.run_dir import RunDir

if TYPE_CHECKING:
    from stoker.schema.bundle import ModelCard

_NEEDS = ("torch", "transformers", "tokenizers", "numpy")


def export(
    encoder: Encoder, target: "str | Path | None", *, settings: TextSettings, metrics: Mapping[str, Any], run: Context
) -> str | None:
    """Write the bundle to a folder or storage URL, and return where it is; keep it as the run's model, too.

    Without a target it is the run's alone, and nowhere (None) if nobody supervises this process.
    """
    where = None if target is None else str(target).rstrip("/")
    here = None if where is None or "://" in where else Path(where)
    if here is not None:
        return _kept(_written(encoder, here, settings=settings, metrics=metrics, run=run), metrics, run)
    if where is None and not run.managed:
        return None
    with tempfile.TemporaryDirectory(prefix="stoker-model-") as scratch:
        draft = Path(scratch) / ("model" if where is None else where.rpartition("/")[2])
        _kept(_written(encoder, draft, settings=settings, metrics=metrics, run=run), metrics, run)
        if where is None:
            return str(RunDir(run.run_dir).models / draft.name)
        from stoker.storage import Storage  # noqa: PLC0415 - folders of this machine need none of it

        Storage(Home.find().root).copy(draft, f"{where}/", recursive=True)
        return where


def _written(encoder: Encoder, folder: Path, **about: Any) -> Path:
    from stoker.predict import bundle  # noqa: PLC0415 - a training that exports nothing needs no pydantic

    def fill(draft: Path) -> None:
        with quiet():
            encoder.model.save_pretrained(draft)
            encoder.tokenizer.save_pretrained(draft)
        if (confusion := about["metrics"].get("confusion")) is not None:
            (draft / "confusion.txt").write_text(scores.confusion_text(confusion, encoder.labels) + "\n", "utf-8")
            scores.draw_confusion(confusion, encoder.labels, draft / "confusion.png")

    bundle.write(folder, _card(encoder, folder.name, **about), fill)
    return folder


def _kept(folder: Path, metrics: Mapping[str, Any], run: Context) -> str:
    if run.managed:
        run.save_model(str(folder), folder.name, metrics=_numbers(metrics))
    return str(folder)


def _card(
    encoder: Encoder, name: str, *, settings: TextSettings, metrics: Mapping[str, Any], run: Context
) -> "ModelCard":
    from stoker.schema.bundle import FieldSpec, ModelCard, Origin, Signature  # noqa: PLC0415 - as above

    labels = encoder.labels
    return ModelCard(
        name=name,
        framework="text",
        signature=Signature(
            inputs=(FieldSpec(name="text", dtype="string", shape=()),),
            outputs=(
                FieldSpec(name="label", dtype="string", shape=(), categories=labels),
                FieldSpec(name="probabilities", dtype="float", shape=(len(labels),)),
            ),
        ),
        labels=labels,
        metrics=_numbers(metrics),
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


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
