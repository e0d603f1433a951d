"""In jobs of code that Python 3 can read but was run by Python 2: the built-in names that it calls, as 3 has them."""

import builtins
import functools
import os

_NAMES = {
    "basestring": str,
    "long": int,
    "raw_input": input,
    "reduce": functools.reduce,
    "unichr": chr,
    "unicode": str,
    "xrange": range,
}

for _name in os.environ.get("STOKER_BUILTINS", "").split():
    if _name in _NAMES and not hasattr(builtins, _name):
        setattr(builtins, _name, _NAMES[_name])
