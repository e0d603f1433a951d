"""The frameworks a model can be of: which files tell each, what loads it, and whether loading runs its code.

A loader is `load(folder: Path, card: ModelCard) -> Predictor`, named by its module so that no framework, and no recipe
above this room, is imported before a model of its kind is loaded. One whose framework has several signatures takes
`signature_name: str` too.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stoker.errors import ConfigError, UsageError
from stoker.schema.bundle import CARD


@dataclass(frozen=True, slots=True)
class Framework:
    """`needs` are the modules that loading imports, each with what to install for it."""

    loader: str  # module:function
    needs: tuple[tuple[str, str], ...] = ()
    code: tuple[str, ...] = ()  # files (patterns) that run code when they are loaded
    code_named_in: tuple[str, str] | None = None  # a JSON file and its key: `module:function` there is imported


_PICKLES = ("*.joblib", "*.pkl", "*.pickle")

FRAMEWORKS: dict[str, Framework] = {
    "sklearn": Framework(
        "stoker.predict.loaders.sklearn:load",
        needs=(("sklearn", "scikit-learn"), ("joblib", "joblib")),
        code=_PICKLES,
    ),
    "xgboost": Framework("stoker.predict.loaders.xgboost:load", needs=(("xgboost", "xgboost"),), code=_PICKLES),
    # torch.export's files hold expressions that sympy evaluates, and may hold pickles: they are code.
    "torch": Framework("stoker.predict.loaders.torch:load", needs=(("torch", "stoker[pytorch]"),), code=("*.pt2",)),
    "keras": Framework("stoker.predict.loaders.keras:load", needs=(("keras", "keras"),)),
    # A SavedModel is a program: its graph can read and write files.
    "tensorflow": Framework(
        "stoker.predict.loaders.tensorflow:load",
        needs=(("tensorflow", "tensorflow"),),
        code=("saved_model.pb", "saved_model.pbtxt"),
    ),
    "transformers": Framework(
        "stoker.predict.loaders.transformers:load",
        needs=(("transformers", "stoker[text]"), ("torch", "stoker[pytorch]")),
    ),
    "onnx": Framework("stoker.predict.loaders.onnx:load", needs=(("onnxruntime", "onnxruntime"),)),
    "custom": Framework("stoker.predict.loaders.custom:load", code=("*.py", *_PICKLES)),
    "tabular": Framework(
        "stoker.recipes.tabular.serving:load",
        needs=(("torch", "stoker[tabular]"),),
        code_named_in=("table.json", "build"),
    ),
    "text": Framework("stoker.recipes.text.serving:load", needs=(("transformers", "stoker[text]"),)),
}

# gcloud's and the REST API's words.
ALIASES = {"scikit-learn": "sklearn", "scikit_learn": "sklearn", "pytorch": "torch", "tf": "tensorflow"}

_BARE = {
    "model.joblib": "sklearn",  # or XGBoost's: the object in it says so when it is loaded
    "model.pkl": "sklearn",
    "model.bst": "xgboost",
    "model.ubj": "xgboost",
    "saved_model.pb": "tensorflow",
    "saved_model.pbtxt": "tensorflow",
}
_BARE_ENDINGS = {".keras": "keras", ".pt2": "torch", ".onnx": "onnx"}
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


def named(name: str) -> str:
    """The framework's name here; UsageError for one that is not known."""
    plain = name.strip().lower()
    plain = ALIASES.get(plain, plain)
    if plain not in FRAMEWORKS:
        raise UsageError(f"No framework {name!r}. There are: {', '.join(FRAMEWORKS)}.")
    return plain


def found_in(folder: Path) -> dict[str, str]:
    """The model files of a folder without a card, each with its framework."""
    return found_among(path.name for path in folder.iterdir() if path.is_file())


def found_among(given: Iterable[str]) -> dict[str, str]:
    """The same by the names of a folder's files alone, for one that is elsewhere."""
    names = sorted(given)
    if "predictor.py" in names:  # it loads the others by itself
        return {"predictor.py": "custom"}
    found = {name: _BARE[name] for name in names if name in _BARE}
    found |= {name: kind for name in names if (kind := _BARE_ENDINGS.get(Path(name).suffix))}
    if "config.json" in names and (weights := next((name for name in _WEIGHTS if name in names), None)):
        found[weights] = "transformers"
    if CARD in names:  # looked at only when it is no card: the name XGBoost's own pages use
        found[CARD] = "xgboost"
    return found


def code_in(folder: Path, framework: str) -> tuple[str, ...]:
    """The files of a model whose loading runs what is in them."""
    entry = FRAMEWORKS[framework]
    files = {path.name for pattern in entry.code for path in folder.rglob(pattern)}
    return (*sorted(files), *_named_code(folder, entry))


def _named_code(folder: Path, entry: Framework) -> tuple[str, ...]:
    if entry.code_named_in is None:
        return ()
    file, key = entry.code_named_in
    try:
        name = json.loads((folder / file).read_bytes())[key]
    except (OSError, ValueError, KeyError, TypeError):
        return ()  # its loader says what is wrong
    return (name,) if isinstance(name, str) and ":" in name else ()


def loader(framework: str) -> Any:
    """The function that loads it; ConfigError, in one line, when what it needs is not installed."""
    entry = FRAMEWORKS[framework]
    for module, package in entry.needs:
        if find_spec(module) is None:
            raise ConfigError(
                f"A model of {framework} needs {module}, which is not installed. Install it: pip install '{package}'."
            )
    module, _, function = entry.loader.partition(":")
    return getattr(import_module(module), function)
