"""A model that user code wrote by itself: its files are taken as they are, its framework is told by their names."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from stoker.errors import ConfigError, NotFoundError
from stoker.predict import bundle, frameworks
from stoker.predict.exporters import Exported
from stoker.schema.bundle import CARD


def export(path: str | os.PathLike[str]) -> Exported:
    """A folder with one model in it, a single model file, or a bundle (whose own card gives the rest)."""
    source = Path(path)
    if not source.exists():
        raise NotFoundError(f"No model at {source}: save it there first.")
    if source.is_dir() and bundle.is_bundle(source):
        card = bundle.read_verified(source)
        return Exported(card.framework, _copier(source), card.signature, card.labels, metadata=card.metadata)
    found = frameworks.found_in(source) if source.is_dir() else _of_file(source)
    if len(found) != 1:
        what = f"holds several models: {', '.join(found)}" if found else "holds no model file that is known here"
        known = "model.joblib, model.pkl, model.bst, saved_model.pb, *.keras, *.pt2, *.onnx, predictor.py"
        raise ConfigError(f"{source} {what}. Exactly one is expected: {known}, or config.json with model.safetensors.")
    return Exported(next(iter(found.values())), _copier(source))


def _of_file(path: Path) -> dict[str, str]:
    return frameworks.found_among([_name(path)])


def _name(path: Path) -> str:
    """The name a single file gets: taxi.joblib becomes model.joblib, by which it is known."""
    named = f"model{path.suffix}"
    return path.name if frameworks.found_among([path.name]) or not frameworks.found_among([named]) else named


def _copier(source: Path) -> Callable[[Path], None]:
    is_bundle = bundle.is_bundle(source)
    # What Python left beside the code is no part of the model; a bundle gets a new card.
    ignored = shutil.ignore_patterns("__pycache__", *([CARD] if is_bundle else []))

    def copy(draft: Path) -> None:
        if source.is_dir():
            shutil.copytree(source, draft, dirs_exist_ok=True, ignore=ignored)
        else:
            shutil.copy2(source, draft / _name(source))
        if (draft / CARD).is_file():  # XGBoost's own; the card needs the name
            (draft / CARD).rename(draft / "model.bst")

    return copy
