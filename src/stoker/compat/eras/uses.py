"""What the files of a program use of others: imports, calls of TensorFlow 1, and what only Python 2 has."""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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
_BUILTINS_OF_2 = frozenset("basestring long raw_input reduce unichr unicode xrange".split())
_BUILTIN_OF_2 = re.compile(rb"\b(?:" + b"|".join(name.encode() for name in sorted(_BUILTINS_OF_2)) + rb")\b")
_OLD_SKLEARN = re.compile(rb"\bsklearn\.externals\b")


@dataclass(frozen=True, slots=True)
class Uses:
    """What the files of a program use of others."""

    modules: frozenset[str]
    is_of_runtime_1: bool = False  # calls what only TensorFlow 1, or the scikit-learn of its time, has
    folders: frozenset[str] = frozenset()  # whose modules import each other by their bare names, as in Python 2
    files: frozenset[str] = frozenset()  # that were read for it
    python_2: str | None = None  # file, line and reason, where Python 3 cannot read it
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
    is_old = any(_OLD_TF.search(source) and not _TF_1_IN_2.search(source) for source in sources)
    is_old = is_old or any(map(_OLD_SKLEARN.search, sources))
    old_names = frozenset(name for source in sources for name in _builtins_of_2(source))
    return Uses(frozenset(modules), is_old, frozenset(folders), frozenset(reached), python_2(reached), old_names)


def entries_of(values: Mapping[str, Any]) -> Iterator[str]:
    """The files that a job starts with, as far as its words name them."""
    if module := values.get("module"):
        yield from _of_module(module)
    for word in " ".join(values.get("command") or ()).split():
        if word.endswith(".py"):
            yield word.removeprefix("./")
        else:
            yield from _of_module(word.split(":")[0])


def _of_module(module: str) -> list[str]:
    path = module.replace(".", "/")
    return [f"{path}.py", f"{path}/__main__.py", f"{path}/__init__.py"]


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
