"""What the platforms' images had in them, so that packages of the time never declared it, and what went with what."""

import ast
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from stoker.packaging.package.requirements import normal_name

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
    "pytorch_lightning": "pytorch-lightning",
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
    "torchmetrics": "torchmetrics",
    "torchvision": "torchvision",
    "tqdm": "tqdm",
    "xgboost": "xgboost",
    "yaml": "pyyaml",
}
# AI Platform's runtime 1.15, the last one for TensorFlow 1.
OF_RUNTIME_1 = {
    "keras": "keras==2.3.1",  # not in the image; the last that works with its TensorFlow
    "sklearn": "scikit-learn==0.20.4",
    "tensorflow": "tensorflow==1.15.5",
    "xgboost": "xgboost==0.90",
}
OLD_PYTHON = "3.7"
WITH_TF_1 = "numpy>=1.16,<1.19"
WITH_TF = ("tensorboard", "tensorflow-estimator")  # come in TensorFlow's own version
# Modules of Python 3 for Python 2, which a `pip freeze` there has listed. Beside Python 3 they do harm.
FOR_PYTHON_2 = frozenset("enum34 functools32 futures pathlib subprocess32 typing".split())
# Names that people require a library by, which are none of PyPI's or cannot be installed from it.
MISNAMED = {
    "cv2": "opencv-python-headless",
    "pil": "pillow",
    "pytorch": "torch",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "tensorflow-gpu": "tensorflow",  # without a version; those that are left refuse to be installed
}
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
# What makes `tf.Session` one of TensorFlow 2's: the name `tf` for its part that is TensorFlow 1.
_TF_1_IN_2 = re.compile(
    rb"import\s+tensorflow\.compat\.v1\s+as\s+tf|from\s+tensorflow\.compat\s+import\s+v1\s+as\s+tf"
    rb"|\btf\s*=\s*(?:tf|tensorflow)\.compat\.v1\b"
)
# Of what Python 3 says, and of the line that it says it of.
_OF_PYTHON_2 = re.compile(
    r"^Missing parentheses|multiple exception types|leading zeros|cannot be parenthesized|<> |invalid decimal literal"
    r"|^(?:print|exec)\s+[^=(]|^print\s*>>|^raise\s+\w+\s*,|^except\s.+,\s*\w+\s*:|`",
    re.MULTILINE,
)
_GUESS = ". Did you mean print(...)?"
_MODULES_OF_PYTHON_2 = frozenset(
    "BaseHTTPServer ConfigParser HTMLParser Queue SocketServer StringIO cPickle cStringIO commands cookielib httplib"
    " urllib2 urlparse __builtin__".split()
)
_TF_2 = Version("2.0")
_BUILTINS_OF_2 = frozenset("basestring long raw_input reduce unichr unicode xrange".split())
_BUILTIN_OF_2 = re.compile(rb"\b(?:" + b"|".join(name.encode() for name in sorted(_BUILTINS_OF_2)) + rb")\b")
_OLD_SKLEARN = re.compile(rb"\bsklearn\.externals\b")

# In no image, and with another interface since: for code of runtime 1 that declares it loosely.
_OF_ITS_TIME = ("gym==0.17.3",)

# An old release did not say that it cannot work with what came after it: (name, older than, also required).
_WENT_WITH = (
    ("tensorflow", "2.9", "protobuf<3.21"),
    ("tensorflow", "2.5", "h5py<3"),
    ("tensorflow", "1.16", "numpy<1.20"),
    ("keras", "2.4", "h5py<3"),
    ("keras", "2.4", "tensorflow==1.15.5"),  # it runs on one, and does not say so
    ("keras", "2.4", "protobuf<3.21"),
    ("keras", "2.4", "numpy<1.20"),
    ("tensorflow", "2.17", "numpy<2"),
    ("torch", "2.3", "numpy<2"),
    ("pandas", "2.2", "numpy<2"),
    ("scikit-learn", "1.4", "numpy<2"),
    ("scikit-learn", "1.0", "numpy<1.24"),
    ("pandas", "1.3", "numpy<1.24"),
    ("xgboost", "1.0", "numpy<1.24"),
    ("transformers", "4.41", "datasets<3"),  # whose scripts pass it use_auth_token
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
    folders: frozenset[str] = frozenset()  # whose modules import each other by their bare names, as in Python 2
    files: frozenset[str] = frozenset()  # that were read for it
    python_2: str | None = None  # file, line and reason, where Python 3 cannot read it
    is_of_tf_1: bool = False  # calls what TensorFlow 2 has not
    builtins_of_2: frozenset[str] = frozenset()  # that it calls, and Python 3 has under other names


def uses_of(files: Mapping[str, bytes], *, entries: Iterable[str]) -> Uses:
    """Of the files that the entries reach by importing each other; of all, where no entry is among the files."""
    reached: dict[str, bytes] = {}
    waiting = [path for path in entries if path in files] or [path for path in files if not _is_aside(path)]
    modules: set[str] = set()
    folders: set[str] = set()
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
            if own and _is_bare(name, own[0], files[path]):
                folders.add(path.rpartition("/")[0])
    sources = list(reached.values())
    old_tf = any(_OLD_TF.search(source) and not _TF_1_IN_2.search(source) for source in sources)
    is_old = old_tf or any(map(_OLD_SKLEARN.search, sources))
    old_names = frozenset(name for source in sources for name in _builtins_of_2(source))
    return Uses(
        frozenset(modules), is_old, frozenset(folders), frozenset(reached), python_2(reached), old_tf, old_names
    )


def is_of_runtime_1(uses: Uses, requirements: Iterable[str], runtime: str | None) -> bool:
    """Whether the runtime that it names, or the Keras that it pins, is one of TensorFlow 1's time."""
    tops = {name.split(".")[0] for name in uses.modules}
    if runtime is not None and runtime.startswith("1.") and tops & OF_RUNTIME_1.keys():
        return True
    parsed = [found for line in requirements if (found := _parsed(line)) is not None]
    return "keras" in tops and any(_is_older(found, "keras", Version("2.4")) for found in parsed)


def python_2(files: Mapping[str, bytes]) -> str | None:
    """Where the first file is that only Python 2 can read or run, and why; None without one."""
    for path, source in files.items():
        try:
            # Not for running: what today's Python warns of in code of another time is not its reader's concern.
            with warnings.catch_warnings(action="ignore"):
                compile(source, path, "exec", dont_inherit=True)
        except SyntaxError as error:
            line = (error.text or "").strip()
            if _OF_PYTHON_2.search(f"{error.msg}\n{line}") or isinstance(error, TabError):
                return f"{path}:{error.lineno}: {error.msg.removesuffix(_GUESS)}"
            return None
        except ValueError:
            return None
        for name, at_top in _imported(source, path):
            if at_top and name.split(".")[0] in _MODULES_OF_PYTHON_2:
                return f"{path} imports {name}"
    return None


def _builtins_of_2(source: bytes) -> set[str]:
    """Names that a file calls and does not itself bind, as `try: xrange` or an import would."""
    if not _BUILTIN_OF_2.search(source):
        return set()
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in _BUILTINS_OF_2]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name) for alias in node.names}
        elif isinstance(node, ast.FunctionDef):
            bound |= {node.name, *(argument.arg for argument in node.args.args)}
    return {node.id for node in names} - bound


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
    for line in (*OF_RUNTIME_1.values(), *_OF_ITS_TIME):
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


def later_tf(requirements: Iterable[str]) -> str | None:
    """The line that binds TensorFlow to a release which is none of TensorFlow 1; None without one."""
    for line in requirements:
        found = _parsed(line)
        if found is None or normal_name(found.name).removesuffix("-gpu").removesuffix("-cpu") != "tensorflow":
            continue
        if found.specifier and Version("1.15.5") not in found.specifier and not _is_older(found, "tensorflow", _TF_2):
            return line
    return None


def numpy_before_tf(requirements: Iterable[str]) -> str | None:
    """The line that binds numpy to a release before those that TensorFlow 1.15 takes, as its own then did."""
    parsed = {line: _parsed(line) for line in requirements}
    return next((line for line, one in parsed.items() if one and _is_older(one, "numpy", Version("1.16"))), None)


def compiled_pins(requirements: Iterable[str]) -> list[str]:
    """The lines that bind a compiled library to releases of some time."""
    return [
        line
        for line in dict.fromkeys(requirements)
        if (found := _parsed(line)) is not None
        and normal_name(found.name) in COMPILED
        and any(clause.operator in ("==", "<", "<=", "~=") for clause in found.specifier)
    ]


def loosened(line: str) -> str | None:
    """For a pin that nobody has a build of any more: a later release of the same major version; None where none is.

    TensorFlow 1, scikit-learn and XGBoost of old come as the last image had them.
    """
    found = _parsed(line)
    clauses = [one for one in found.specifier if one.operator in ("==", "~=", "<", "<=")] if found else []
    if found is None or not clauses or found.url:
        return None
    try:
        bound = Version(clauses[0].version.removesuffix(".*"))
    except InvalidVersion:
        return None
    name = normal_name(found.name)
    of_image = OF_RUNTIME_1.get({"scikit-learn": "sklearn"}.get(name, name), "").partition("==")[2]
    if of_image and bound < Version(of_image) and bound.major == Version(of_image).major:
        return f"{name}=={of_image}"
    lower = f">={bound}," if clauses[0].operator in ("==", "~=") else ""
    return f"{name}{lower}<{bound.major + 1}"


def is_before_trainer(requirement: str) -> bool:
    """Whether it binds torch to releases that our trainer, which Determined's trials run by, is not for."""
    found = _parsed(requirement)
    return found is not None and _is_older(found, "torch", Version("2.4"))


def without_bounds(pins: Iterable[str]) -> list[str]:
    """Pins of compiled libraries as lower bounds; those that have none, as the name alone."""
    parsed = [found for line in pins if (found := _parsed(line)) is not None]
    exact = {found.name: [one.version for one in found.specifier if one.operator in ("==", "~=")] for found in parsed}
    return [f"{name}>={versions[0].removesuffix('.*')}" if versions else name for name, versions in exact.items()]


def at_least(requirements: Iterable[str]) -> list[str]:
    """Lower bounds in place of the exact pins of what is not compiled."""
    found = []
    for line in requirements:
        parsed = _parsed(line)
        clauses = list(parsed.specifier) if parsed is not None and not parsed.marker else []
        if parsed is None or normal_name(parsed.name) in COMPILED or [one.operator for one in clauses] != ["=="]:
            continue
        extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
        found.append(f"{parsed.name}{extras}>={clauses[0].version.removesuffix('.*')}")
    return found


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


def _is_bare(name: str, file: str, source: bytes) -> bool:
    """Whether an import names a module beside it as if it were at the top, which Python 2 allowed in packages."""
    written = re.search(rb"^[ \t]*(?:import|from)[ \t]+" + name.encode().split(b".")[0] + rb"\b", source, re.MULTILINE)
    at_top = name.replace(".", "/")
    return written is not None and file not in (f"{at_top}.py", f"{at_top}/__init__.py")


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
