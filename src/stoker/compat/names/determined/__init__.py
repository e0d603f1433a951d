"""`import determined` in a job: the modules of stoker.compat.determined under the name that old code knows.

Their files are imported a second time under this name, so public modules there hold names alone, and no classes.
"""

import stoker.compat.determined as _ours
from stoker.compat.determined import *  # noqa: F403
from stoker.compat.determined import __version__ as __version__
from stoker.compat.determined.gloo import stand_in_for_nccl

__path__ = _ours.__path__

stand_in_for_nccl()


def __getattr__(name: str) -> object:
    return _ours.lazily(__name__, name)
