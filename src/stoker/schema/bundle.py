"""A model bundle's card, `model.json`: what the model is, where it came from, and each file's checksum."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from stoker.schema.model import Model

CARD = "model.json"

Dtype = Literal["float", "integer", "boolean", "string", "bytes", "any"]


class FieldSpec(Model):
    """One input or output: its name, its kind, and its shape without the batch (None is any size; () a plain value)."""

    name: str
    dtype: Dtype = "any"
    shape: tuple[int | None, ...] | None = None  # None: not known
    categories: tuple[str, ...] | None = None
    nullable: bool = False


class Signature(Model):
    """What an instance holds and what a prediction holds. One unnamed input means instances are bare values or rows."""

    inputs: tuple[FieldSpec, ...] = ()
    outputs: tuple[FieldSpec, ...] = ()


class Origin(Model):
    """Where a model came from, as far as is known."""

    job: str | None = None
    trial: int | None = None
    run: str | None = None
    package: str | None = None  # hash
    checkpoint: str | None = None
    hparams: dict[str, Any] = {}
    data: tuple[str, ...] = ()  # URLs it was trained on


class BundleFile(Model):
    """A file of the bundle."""

    path: str  # relative, with forward slashes
    size_bytes: Annotated[int, Field(ge=0)]
    sha256: str


class ModelCard(Model):
    """The whole of model.json."""

    format: Literal[1] = 1
    name: str
    framework: (
        str  # a key of predict/frameworks.py: sklearn, xgboost, torch, keras, tensorflow, transformers, tabular, custom
    )
    signature: Signature = Signature()
    labels: tuple[str, ...] | None = None  # of classes, in the order of a classifier's outputs
    metrics: dict[str, float] = {}
    metadata: dict[str, Any] = {}
    requirements: tuple[str, ...] = ()  # name==version of what it was made with and needs to predict
    python: str | None = None
    created: datetime
    origin: Origin = Origin()
    files: tuple[BundleFile, ...] = ()
