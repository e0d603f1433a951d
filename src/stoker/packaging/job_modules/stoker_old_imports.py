"""In environments of old code: imports that later releases took away, found again where nobody else finds them.

`sklearn.externals.joblib` and `.six` went with scikit-learn 0.23; `collections.Mapping` and its like with Python 3.10,
which attrdict 2.0.1, the last one, still imports; modules of Keras that are not its interface (`keras.datasets.cifar`)
are below `keras.src` from 2.13 on.
"""

import collections
import collections.abc
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types  # noqa: F401  for the comments below

_MOVED = {"sklearn.externals.joblib": "joblib", "sklearn.externals.six": "six"}


class _Moved(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last to be asked, so that a release which has the module gives its own."""

    def find_spec(self, fullname, path=None, target=None):
        # type: (str, object, object) -> importlib.machinery.ModuleSpec | None
        return importlib.machinery.ModuleSpec(fullname, self) if _place_of(fullname) else None

    def create_module(self, spec):
        # type: (importlib.machinery.ModuleSpec) -> None
        return None

    def exec_module(self, module):
        # type: (types.ModuleType) -> None
        there = importlib.import_module(_place_of(module.__name__))
        module.__dict__.update({name: value for name, value in vars(there).items() if not name.startswith("__")})


def _place_of(name):
    # type: (str) -> str
    """Where a module is now; "" where nobody knows."""
    if not name.startswith("keras.") or name.startswith("keras.src"):
        return _MOVED.get(name, "")
    there = "keras.src" + name[len("keras") :]
    try:
        return there if importlib.util.find_spec(there) is not None else ""
    except ModuleNotFoundError:
        return ""


sys.meta_path.append(_Moved())
for _name in collections.abc.__all__:
    if not hasattr(collections, _name) and sys.version_info >= (3, 10):
        setattr(collections, _name, getattr(collections.abc, _name))
