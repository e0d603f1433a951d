"""Load a model from a folder or URL: a verified bundle, or a bare model file as AI Platform took it."""

import inspect
import logging
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from stoker.errors import ConfigError, NotFoundError, UsageError
from stoker.host.home import Home
from stoker.predict import bundle, frameworks
from stoker.predict.base import Predictor
from stoker.predict.fetching import local_folder
from stoker.schema.bundle import ModelCard

TRUST_VARIABLE = "STOKER_TRUST_PICKLES"
CODE = "code"  # of a model: Python packages that its own code or pickles import
_DEFAULT = "serving_default"  # what AI Platform's clients name when they mean none

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MadeOn:
    """The runtime that somebody says a model was made on: AI Platform's --runtime-version and --python-version."""

    runtime: str | None = None
    python: str | None = None

    @property
    def is_said(self) -> bool:
        return self.runtime is not None or self.python is not None


def load(
    model_dir: str | os.PathLike[str],
    *,
    trust_pickle: bool = False,
    framework: str | None = None,
    prediction_class: str | None = None,
    signature_name: str | None = None,
    made_on: MadeOn = MadeOn(),
    home: Home | None = None,
) -> Predictor:
    """The model, ready to predict.

    A pickle or booster that was `made_on` another runtime, or that cannot be loaded by this one's libraries, is called
    in a process of that runtime: predict/elsewhere/runtime.py.

    `model_dir` is a bundle, or a folder with one model file that some framework wrote; a URL is fetched first. What
    runs code when it is loaded (pickles, predictor.py) is refused without a yes: `trust_pickle`, the variable
    STOKER_TRUST_PICKLES, or that a job of this home wrote it. NotFoundError, ConfigError, UsageError.
    """
    home = home or Home.find()
    folder = local_folder(model_dir, home=home)
    card = describe(folder, framework=framework, prediction_class=prediction_class)
    ask_for_trust(folder, card, trust_pickle=trust_pickle, home=home)
    if made_on.is_said and (other := _elsewhere(folder, card, made_on, signature_name, home)) is not None:
        return other
    try:
        return _load_here(folder, card, signature_name)
    except ConfigError:
        if made_on.is_said or (other := _elsewhere(folder, card, made_on, signature_name, home)) is None:
            raise
        return other


def _elsewhere(
    folder: Path, card: ModelCard, made_on: MadeOn, signature_name: str | None, home: Home
) -> Predictor | None:
    """On the runtime that the model was made on; None where that is this one, or not known."""
    # By its name: it makes environments, which those who only describe models have no business with.
    other_runtime = import_module("stoker.predict.elsewhere.runtime")
    other = other_runtime.wanted(folder, card, runtime=made_on.runtime)
    if other is None:
        return None
    predictor: Predictor = other_runtime.load(
        folder, card, other, home=home, python=made_on.python, signature_name=signature_name, say=logger.warning
    )
    return predictor


def _load_here(folder: Path, card: ModelCard, signature_name: str | None) -> Predictor:
    _find_its_code(folder)
    load_it = frameworks.loader(card.framework)
    takes_names = "signature_name" in inspect.signature(load_it).parameters
    if signature_name is None or (signature_name == _DEFAULT and not takes_names):
        predictor: Predictor = load_it(folder, card)
    elif takes_names:
        predictor = load_it(folder, card, signature_name=signature_name)
    else:
        raise UsageError(f"A model of {card.framework} has one signature. Leave --signature-name out.")
    return predictor


def describe(folder: Path, *, framework: str | None = None, prediction_class: str | None = None) -> ModelCard:
    """What is in a local folder: the card of a bundle whose files are as they were, or one made for a bare model."""
    if not folder.is_dir():
        raise NotFoundError(f"No folder {folder}: give the one that holds the model.")
    if bundle.is_bundle(folder):
        card = bundle.read_verified(folder)
    else:
        card = _card_of_bare(folder, framework=framework, prediction_class=prediction_class)
    if prediction_class is not None:
        card = card.with_(framework="custom", metadata={**card.metadata, "prediction_class": prediction_class})
    elif framework is not None and frameworks.named(framework) != card.framework:
        given = frameworks.named(framework)
        if not {given, card.framework} <= {"sklearn", "xgboost"}:  # a pickle may be of either
            raise UsageError(f"{folder} holds a model of {card.framework}, not of {given}. Leave --framework out.")
        card = card.with_(framework=given)
    if card.framework not in frameworks.FRAMEWORKS:
        known = ", ".join(frameworks.FRAMEWORKS)
        raise ConfigError(f"{folder}: model.json says framework {card.framework!r}. This stoker knows: {known}.")
    return card


def _card_of_bare(folder: Path, *, framework: str | None, prediction_class: str | None) -> ModelCard:
    found = frameworks.found_in(folder)
    if prediction_class is not None:
        kind = "custom"
    elif not found:
        raise ConfigError(
            f"No model in {folder}: expected model.json (a bundle), or one of model.joblib, model.pkl, model.bst, "
            "saved_model.pb, *.keras, *.pt2, *.onnx, config.json with model.safetensors, or predictor.py."
        )
    elif len(found) > 1:
        raise ConfigError(f"{folder} holds several models: {', '.join(found)}. Leave one, exactly.")
    else:
        kind = next(iter(found.values()))
    created = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
    return ModelCard(name=folder.resolve().name or "model", framework=kind, created=created)


def _find_its_code(folder: Path) -> None:
    """Make the packages that were registered with a model importable, without leaving anything beside them."""
    code = str(folder.resolve() / CODE)
    if os.path.isdir(code) and code not in sys.path:
        sys.dont_write_bytecode = True
        sys.path.insert(0, code)


def ask_for_trust(folder: Path, card: ModelCard, *, trust_pickle: bool, home: Home) -> None:
    """UsageError if loading this model runs code that nobody has said a yes to."""
    code = frameworks.code_in(folder, card.framework)
    if (folder / CODE).is_dir():
        code = (*code, f"{CODE}/")
    if "prediction_class" in card.metadata:
        code = (*code, str(card.metadata["prediction_class"]))
    if not code or is_our_own(folder, card, home=home):
        return
    what = f"{folder}: loading {', '.join(code[:3])} runs code that is in it"
    if not (trust_pickle or os.environ.get(TRUST_VARIABLE, "") not in ("", "0", "no", "false")):
        raise UsageError(
            f"{what}, with your rights. If you trust whoever made it, say --trust (or set {TRUST_VARIABLE}=1)."
        )
    logger.warning("%s; you said that you trust it.", what)


def is_our_own(folder: Path, card: ModelCard, *, home: Home) -> bool:
    """Whether a job of this home wrote it: it lies in a run's directory, or is to the byte what lies in one.

    The card's word alone is not taken: anybody can write one.
    """
    runs = home.runs.resolve()
    if folder.resolve().is_relative_to(runs):
        return True
    origin = card.origin
    attempt = (origin.run or "").rpartition(".")[2]
    if origin.job is None or origin.trial is None or not attempt.isdecimal() or not card.files:
        return False
    written = home.run_dir(origin.job, origin.trial, int(attempt)).models / card.name
    if not written.resolve().is_relative_to(runs) or not bundle.is_bundle(written):
        return False
    try:
        return bundle.read(written).files == card.files
    except (NotFoundError, UsageError):
        return False
