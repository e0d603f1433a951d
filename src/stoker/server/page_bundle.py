"""All scripts of the page in one: a browser asks once, where every module of its own costs a question and an answer.

Ours are plain: each import and each export is a line of its own that names what it is about, and none goes in circles.
"""

import json
import posixpath
import re
from collections.abc import Mapping

_NAMES = re.compile(r'^import \{([^}\n]*)\} from "(\.[^"\n]+)";$', re.MULTILINE)
_WHOLE = re.compile(r'^import \* as (\w+) from "(\.[^"\n]+)";$', re.MULTILINE)
_LATER = re.compile(r'\bimport\("(\.[^"\n]+)"\)')
_EXPORT = re.compile(r"^export ((?:async )?(?:function\*?|const|class) (\w+))", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*$|\bimport\(.*$", re.MULTILINE)
_END = """
const made = {};
export function use(name) { return (made[name] ??= modules[name]()); }
"""


def bundle(scripts: Mapping[str, str], *, first: str) -> str:
    """One module of all these, by path; `first` runs at once, the others when they are first used.

    It exports `use(path)`, what a module exports. AssertionError for an import or export that is not as it should be.
    """
    modules = ",\n".join(f"{json.dumps(name)}: () => {{\n{_wrapped(name, text)}}}" for name, text in scripts.items())
    return f"const modules = {{\n{modules}\n}};{_END}use({json.dumps(first)});\n"


def _wrapped(name: str, text: str) -> str:
    def path(given: str) -> str:
        return json.dumps(posixpath.normpath(posixpath.join(posixpath.dirname(name), given)))

    exported = ", ".join(found[2] for found in _EXPORT.finditer(text))
    text = _NAMES.sub(lambda found: f"const {{{found[1].replace(' as ', ': ')}}} = use({path(found[2])});", text)
    text = _WHOLE.sub(lambda found: f"const {found[1]} = use({path(found[2])});", text)
    text = _LATER.sub(lambda found: f"use({path(found[1])})", text)
    text = _EXPORT.sub(r"\1", text)
    left = _LEFT.search(text)
    assert left is None, f"{name}: cannot bundle {left[0] if left else ''!r}"
    return f"{text}\nreturn {{ {exported} }};\n"
