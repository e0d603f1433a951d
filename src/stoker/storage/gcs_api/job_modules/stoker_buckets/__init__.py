"""In the Python of a job: leads TensorFlow's gs:// paths to this machine's buckets, once TensorFlow is imported.

Its own client has Google's host compiled in and heeds no emulator variable; and google-auth of old would ask Google for
a token. Loaded at the start of a Python that has the variable (packaging/environment/layer.py writes that line), so:
the standard library alone, valid on Python 3.7.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

# The module, and which of ours is called with it once it is there.
_LED = {"tensorflow": ".tensorflow", "google.oauth2.credentials": ".credentials"}
_NAMES = {"tensorflow": "TensorFlow", "google.oauth2.credentials": "google-auth"}


class Watch:
    """A finder that finds nothing itself: of some modules, it gives the others' loader another step at the end."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _LED:
            return None
        for finder in sys.meta_path:
            look = getattr(finder, "find_spec", None)
            spec = look(name, path, target) if look is not None and finder is not self else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = Loader(spec.loader)
                return spec
        return None


class Loader:
    """The module's own loader, and then ours."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            import_module(_LED[module.__name__], __name__).lead(module)  # most programs never come here
        except Exception as error:  # noqa: BLE001  one that we do not know must still be importable
            why = f"{type(error).__name__}: {error}"
            sys.stderr.write(f"stoker: gs:// paths in this {_NAMES[module.__name__]} go to Google: {why}\n")


def watch() -> None:
    """From now on; once is enough."""
    if not any(isinstance(finder, Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, Watch())


watch()
