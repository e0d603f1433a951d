"""`python -m stoker.compat.determined script.py …` or `-m module …`: run it with `import determined` being ours.

`--trial module:Class` trains a trial class that has no main of its own, as `entrypoint: model_def:MyTrial` asks for.
"""

import os
import runpy
import sys

from stoker.compat import names
from stoker.compat.determined.gloo import stand_in_for_nccl

USAGE = "usage: python -m stoker.compat.determined SCRIPT.py | -m MODULE | --trial MODULE:CLASS  [arguments]"


def main(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        sys.stderr.write(USAGE + "\n")
        return 0 if words else 2
    _put_on_path()
    stand_in_for_nccl()
    if words[0] == "--trial" and len(words) == 2:
        from stoker.compat.determined.legacy import train  # noqa: PLC0415 - torch

        return train(words[1])
    if words[0] == "-m" and len(words) > 1:
        sys.argv = words[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return 0
    if words[0].startswith("-") or not os.path.exists(words[0]):
        sys.stderr.write(f"error: no script {words[0]!r}.\n{USAGE}\n")
        return 2
    sys.argv = words
    sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
    runpy.run_path(words[0], run_name="__main__")
    return 0


def _put_on_path() -> None:
    """For this process, and for those it starts."""
    folder = os.path.dirname(os.path.abspath(names.__file__))
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
