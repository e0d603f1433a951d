"""`import determined_common`, which `determined.common` was called before 0.14."""

import stoker.compat.determined.common as _later
from stoker.compat.determined.common import *  # noqa: F403

__path__ = _later.__path__


def __getattr__(name: str) -> object:
    return getattr(_later, name)
