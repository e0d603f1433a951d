"""What the platforms' images had in them, so that packages of the time never declared it, and what went with what."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from stoker.packaging.requirements import normal_name

# Module: distribution. What is not here was nobody's to provide, and is an error of the package's.
IN_IMAGES = {
    "PIL": "pillow",
    "absl": "absl-py",
    "attrdict": "attrdict3",  # attrdict itself cannot be imported on Python 3.10 and later
    "boto3": "boto3",
    "cloudpickle": "cloudpickle",
    "cv2": "opencv-python-headless",
    "dill": "dill",
    "filelock": "filelock",
    "google.cloud.bigquery": "google-cloud-bigquery",
    "google.cloud.storage": "google-cloud-storage",
    "h5py": "h5py",
    "joblib": "joblib",
    "keras": "keras",
    "matplotlib": "matplotlib",
    "nltk": "nltk",
    "numpy": "numpy",
    "pandas": "pandas",
    "pkg_resources": "setuptools<81",  # the last ones that have it
    "psutil": "psutil",
    "pyarrow": "pyarrow",
    "requests": "requests",
    "ruamel": "ruamel.yaml",
    "scipy": "scipy",
    "six": "six",
    "sklearn": "scikit-learn",
    "tabulate": "tabulate",
    "tensorboard": "tensorboard",
    "tensorflow": "tensorflow<2.16",  # the last ones with the Keras that the images had
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_hub": "tensorflow-hub",
    "tensorflow_probability": "tensorflow-probability",
    "termcolor": "termcolor",
    "torch": "torch",
    "torchvision": "torchvision",
    "tqdm": "tqdm",
    "xgboost": "xgboost",
    "yaml": "pyyaml",
}
# AI Platform's runtime 1.15, the last one for TensorFlow 1.
OF_RUNTIME_1 = {"tensorflow": "tensorflow==1.15.5", "sklearn": "scikit-learn==0.20.4", "xgboost": "xgboost==0.90"}
OLD_PYTHON = "3.7"
# Built from source for minutes, and mostly in vain, on a Python that has no wheel of them.
COMPILED = frozenset(
    "h5py keras matplotlib numpy pandas pyarrow scikit-learn scipy tensorflow tensorflow-cpu tensorflow-gpu torch"
    " torchvision xgboost".split()
)

_IMPORT = re.compile(
    rb"^([ \t]*)(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(?:\(([^)]*)\)|([\w, \t]*))|import[ \t]+([\w., \t]+))",
    re.MULTILINE,
)
_OLD_TF = re.compile(
    rb"\btf\.(?:Session|placeholder|contrib|app\.run|logging|gfile|train\.\w+Optimizer|get_variable|variable_scope)\b"
    rb"|\btensorflow\.contrib\b|\btensorflow\.python\.lib\.io\b"
)
_NEW_TF = re.compile(rb"tensorflow\.compat\.v1|tf\.compat\.v1")
_OLD_SKLEARN = re.compile(rb"\bsklearn\.externals\b")

# An old release did not say that it cannot work with what came after it: (name, older than, also required).
_WENT_WITH = (
    ("tensorflow", "2.9", "protobuf<3.21"),
    ("tensorflow", "2.5", "h5py<3"),
    ("tensorflow", "1.16", "numpy<1.20"),
    ("keras", "2.4", "h5py<3"),
    ("tensorflow", "2.17", "numpy<2"),
    ("torch", "2.3", "numpy<2"),
    ("pandas", "2.2", "numpy<2"),
    ("scikit-learn", "1.4", "numpy<2"),
    ("scikit-learn", "1.0", "numpy<1.24"),
    ("pandas", "1.3", "numpy<1.24"),
    ("xgboost", "1.0", "numpy<1.24"),
    # Whose import asks pkg_resources for its own version.
    ("google-cloud-storage", "1.36", "setuptools<81"),
    ("google-cloud-bigquery", "2.0", "setuptools<81"),
    ("google-api-core", "1.16", "setuptools<81"),
    ("tensorflow-hub", "0.16", "setuptools<81"),
    ("tensorboard", "2.9", "setuptools<81"),
)


@dataclass(frozen=True, slots=True)
class Uses:
    """What the files of a program use of others."""

    modules: frozenset[str]
    is_old: bool  # written for TensorFlow 1 or for the scikit-learn of its time


def uses_of(files: Mapping[str, bytes], *, entries: Iterable[str]) -> Uses:
    """Of the files that the entries reach by importing each other; of all, where no entry is among the files."""
    reached: dict[str, bytes] = {}
    waiting = [path for path in entries if path in files] or [path for path in files if not _is_aside(path)]
    modules: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in reached:
            continue
        reached[path] = files[path]
        for name, at_top in _imported(files[path], path):
            own = [found for found in _files_of(name, path) if found in files]
            waiting += own
            if not own and at_top:
                modules.add(name)
    sources = list(reached.values())
    old_tf = any(map(_OLD_TF.search, sources)) and not any(map(_NEW_TF.search, sources))
    return Uses(frozenset(modules), old_tf or any(map(_OLD_SKLEARN.search, sources)))


def is_of_old(name: str) -> bool:
    """Whether a dotted name, written out, is of TensorFlow 1 or of scikit-learn's time: `tensorflow.Session`."""
    text = name.encode()
    return bool(
        _OLD_TF.search(text.replace(b"tensorflow.", b"tf.", 1)) or _OLD_TF.search(text) or _OLD_SKLEARN.search(text)
    )


def in_images(uses: Uses) -> dict[str, str]:
    """The requirement for each module that an image had."""
    found: dict[str, str] = {}
    for module, requirement in IN_IMAGES.items():
        if any(name == module or name.startswith(f"{module}.") for name in uses.modules):
            found[module] = OF_RUNTIME_1.get(module, requirement) if uses.is_old else requirement
    return found


def as_in_image(uses: Uses, requirements: Iterable[str]) -> list[str]:
    """For code of runtime 1 that declares its libraries loosely: the releases that were there, and so were kept."""
    if not uses.is_old:
        return []
    parsed = {normal_name(found.name): found for line in requirements if (found := _parsed(line)) is not None}
    pins = []
    for line in OF_RUNTIME_1.values():
        name, _, version = line.partition("==")
        declared = parsed.get(name)
        if declared is not None and not declared.url and Version(version) in declared.specifier:
            pins.append(line)
    return [pin for pin in pins if pin not in requirements]


def went_with(requirements: Iterable[str]) -> list[str]:
    """What has to be required beside old releases for them to work; nothing that the package itself has bounded."""
    parsed = [found for line in requirements if (found := _parsed(line)) is not None]
    bounded = {normal_name(found.name) for found in parsed if found.specifier}
    wanted: dict[str, str] = {}
    for name, older_than, also in _WENT_WITH:
        other = normal_name(Requirement(also).name)
        if other in bounded or other in wanted:
            continue
        if any(_is_older(found, name, Version(older_than)) for found in parsed):
            wanted[other] = also
    return list(wanted.values())


def compiled_pins(requirements: Iterable[str]) -> list[str]:
    """The lines that bind a compiled library to releases of some time."""
    return [
        line
        for line in requirements
        if (found := _parsed(line)) is not None
        and normal_name(found.name) in COMPILED
        and any(clause.operator in ("==", "<", "<=", "~=") for clause in found.specifier)
    ]


def _is_older(requirement: Requirement, name: str, version: Version) -> bool:
    """Whether it is of this library, and only releases before `version` meet it."""
    own = normal_name(requirement.name).removesuffix("-gpu").removesuffix("-cpu")
    if own != name:
        return False
    for clause in requirement.specifier:
        try:
            bound = Version(clause.version.removesuffix(".*"))
        except InvalidVersion:
            continue
        if clause.operator in ("==", "~=", "<=") and bound < version:
            return True
        if clause.operator == "<" and bound <= version:
            return True
    return False


def _parsed(line: str) -> Requirement | None:
    try:
        return Requirement(line.split(" --hash")[0])
    except InvalidRequirement:
        return None


def _is_aside(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return name in ("setup.py", "conftest.py") or name.startswith("test_") or path.startswith("tests/")


def _imported(source: bytes, path: str) -> Iterable[tuple[str, bool]]:
    """Names, and whether the import is at the top level, where nothing guards it."""
    for found in _IMPORT.finditer(source):
        at_top = not found[1]
        if found[5] is not None:
            for part in found[5].decode().split(","):
                yield part.split(" as ")[0].strip(), at_top
            continue
        module = _absolute(found[2].decode(), path)
        yield module, at_top
        for part in (found[3] or found[4] or b"").decode(errors="replace").split(","):
            name = part.split(" as ")[0].strip()
            if name:
                yield f"{module}.{name}" if module else name, at_top


def _absolute(module: str, path: str) -> str:
    """`from .x import y` by the folder of the file."""
    dots = len(module) - len(module.lstrip("."))
    if not dots:
        return module
    folders = path.split("/")[:-1]
    return ".".join([*folders[: len(folders) - dots + 1], *filter(None, [module[dots:]])])


def _files_of(name: str, path: str) -> list[str]:
    """Where a module may be: from the top, or beside the file that imports it."""
    inner = name.replace(".", "/")
    beside = path.rpartition("/")[0]
    roots = ["", *([f"{beside}/"] if beside else [])]
    return [f"{root}{inner}{end}" for root in roots for end in (".py", "/__init__.py")]
