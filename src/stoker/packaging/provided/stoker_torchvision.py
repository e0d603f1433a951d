"""Let torchvision be imported where its compiled part cannot be: built for GPUs, beside a torch for CPUs.

It declares the meaning of two operators that only the compiled part defines, and fails there. Once they are defined,
all the rest works, and `torchvision.ops` says for itself what it lacks. Runs on any Python from 3.7 on.
"""

import sys

_OPERATORS = ("nms", "qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class Finder:
    """Finds no module, but is asked before torchvision's declarations are loaded, and not before."""

    def find_spec(self, name, path=None, target=None):
        # type: (str, object, object) -> None
        if name == "torchvision._meta_registrations":
            _define()


def _define():
    # type: () -> None
    torch, extension = sys.modules.get("torch"), sys.modules.get("torchvision.extension")
    if torch is None or extension is None or extension._has_ops() or not hasattr(torch.library, "define"):
        return
    for name in _OPERATORS:
        torch.library.define("torchvision::" + name, _SCHEMA)


sys.meta_path.insert(0, Finder())
