"""A trained model of a table as a bundle: weights as safetensors, all the rest as JSON, no code and no pickle.

model.safetensors   the weights, and the stats the columns are normalised by
table.json          the columns, their vocabularies, and how the model is built
"""

import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import nn

from stoker.errors import ConfigError, UsageError
from stoker.predict import bundle
from stoker.predict.versions import installed
from stoker.recipes.tabular.features import Features
from stoker.recipes.tabular.metadata import Metadata
from stoker.recipes.tabular.models import MODELS, Build
from stoker.recipes.tabular.settings import Settings
from stoker.schema.bundle import Dtype, FieldSpec, ModelCard, Signature

_WEIGHTS, _TABLE = "model.safetensors", "table.json"


def write_bundle(
    folder: Path,
    net: nn.Module,
    features: Features,
    settings: Settings,
    *,
    name: str,
    build: Build,
    metrics: Mapping[str, float],
) -> ModelCard:
    """Write it; a model of the user's own function is found again by that function's name."""
    about = {
        "build": name_of(build),
        "hidden": settings.hidden,
        "dropout": settings.dropout,
        "features": features.to_json(),
    }
    weights = {key: value.detach().cpu().contiguous() for key, value in net.state_dict().items()}

    def fill(draft: Path) -> None:
        save_file(weights, draft / _WEIGHTS)
        (draft / _TABLE).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")

    metadata = features.metadata
    card = ModelCard(
        name=name,
        framework="tabular",
        signature=signature_of(metadata),
        labels=metadata.labels or None,
        metrics={key: float(value) for key, value in metrics.items()},
        metadata={"task": metadata.task, "model": about["build"]},
        requirements=installed("torch", "polars", "pyarrow", "safetensors", "numpy"),
        python=platform.python_version(),
        created=datetime.now(UTC),
    )
    return bundle.write(folder, card, fill)


def read_bundle(folder: Path) -> tuple[nn.Module, Features]:
    """The model as it was trained, ready to be made `exact`."""
    try:
        about = json.loads((folder / _TABLE).read_text(encoding="utf-8"))
        features = Features.from_json(about["features"], source=str(folder / _TABLE))
        net = _build_named(about["build"])(features, hidden=tuple(about["hidden"]), dropout=about["dropout"])
        net.load_state_dict(load_file(folder / _WEIGHTS))
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{folder} holds no model of a table that can be read: {error}.") from error
    return net.eval(), features


def signature_of(metadata: Metadata) -> Signature:
    numbers = {item.name for item in metadata.numeric}
    numbers.update(name for point in metadata.points for name in (point.latitude, point.longitude))
    whole = {item.name for item in metadata.categorical if item.identity}
    known = {item.name: item.vocabulary for item in metadata.categorical}

    def field(name: str) -> FieldSpec:
        dtype: Dtype = "float" if name in numbers else "integer" if name in whole else "string"
        return FieldSpec(
            name=name, dtype=dtype, shape=(), nullable=metadata.missing != "error", categories=known.get(name) or None
        )

    outputs: tuple[FieldSpec, ...] = (FieldSpec(name="value", dtype="float", shape=()),)
    if metadata.labels:
        outputs = (
            FieldSpec(name="label", dtype="string", shape=(), categories=metadata.labels),
            FieldSpec(name="probabilities", dtype="float", shape=(len(metadata.labels),)),
        )
    return Signature(inputs=tuple(map(field, metadata.feature_columns)), outputs=outputs)


def name_of(build: Build) -> str:
    """What a bundle calls the function that builds its model."""
    known = next((name for name, each in MODELS.items() if each is build), None)
    if known is None and not getattr(build, "builds_models", False):
        raise UsageError(f"{build.__qualname__}: put @own_model over the function, so that bundles may call it.")
    return known or f"{build.__module__}:{build.__qualname__}"


def _build_named(name: str) -> Build:
    if name in MODELS:
        return MODELS[name]
    module, _, function = name.partition(":")
    try:
        found: Any = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"The model is built by {name}, which is not here. Install the package it was trained with, or put it on"
            " PYTHONPATH."
        ) from error
    if not getattr(found, "builds_models", False):
        raise ConfigError(f"The bundle asks for {name}, which is no function marked with @own_model.")
    return found  # type: ignore[no-any-return]
